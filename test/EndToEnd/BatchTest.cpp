//===- BatchTest.cpp - Several sequences at once --------------------------===//

#include "Harness.h"
#include "Model.h"

#include "foresight/support/Json.h"

#include <cstring>
#include <sstream>

using namespace foresight;
using namespace foresight::test;

namespace {

const char *const kModel = "examples/opt-mini/model.onnx";

std::string bundleOf(const std::string &sparsity = "none",
                     const std::string &dtype = "auto") {
  return compiled({source(kModel), "--max-batch=3", "--sparsity=" + sparsity,
                   "--max-seq=64", "--dtype=" + dtype});
}

/// Prompts of different lengths, the last longer than a product's block.
const std::vector<std::vector<int32_t>> kPrompts = {
    {2}, {2, 100, 200, 300, 50, 60, 70}, [] {
      std::vector<int32_t> ids(40);
      for (int32_t i = 0; int32_t &id : ids)
        id = 2 + 37 * i++ % 500;
      return ids;
    }()};

/// The logits of each step of a sequence.
using Logits = std::vector<std::vector<float>>;

/// What a sequence feeds on, whoever decodes beside it.
int32_t idAt(size_t prompt, size_t step) {
  return static_cast<int32_t>(10 + 31 * prompt + 7 * step);
}

Status start(Session &session, int64_t sequence,
             const std::vector<int32_t> &prompt) {
  FORESIGHT_CHECK(session.select(sequence));
  FORESIGHT_CHECK(session.reset());
  FORESIGHT_CHECK(session.prompt(prompt));
  return {};
}

/// Prompt `p` in sequence `p` for `steps` steps, decoded alone.
Logits alone(Model &model, size_t p, size_t steps) {
  Session &session = model.session();
  const auto sequence = static_cast<int64_t>(p);
  EXPECT_TRUE(start(session, sequence, kPrompts[p]).ok());
  Logits logits;
  for (size_t i = 0; i < steps; ++i) {
    const Session::BatchRow row{sequence, idAt(p, i)};
    const Status done = session.decodeBatch({&row, 1});
    EXPECT_TRUE(done.ok()) << done.error().message;
    const auto row0 = session.batchLogits(0);
    logits.emplace_back(row0.begin(), row0.end());
  }
  return logits;
}

void expectSameBits(std::span<const float> a, const std::vector<float> &b) {
  ASSERT_EQ(a.size(), b.size());
  EXPECT_EQ(std::memcmp(a.data(), b.data(), a.size_bytes()), 0);
}

class OfBundles : public testing::TestWithParam<const char *> {};

INSTANTIATE_TEST_SUITE_P(Batches, OfBundles, testing::Values("none", "exact"),
                         [](const auto &info) { return info.param; });

TEST_P(OfBundles, ARowHasTheBitsThatItHasAlone) {
  Model model(bundleOf(GetParam()));
  constexpr size_t kSteps = 12;
  // How long each prompt goes on, and in which sequence: all of them together,
  // then fewer, in other places of the batch.
  const size_t ends[] = {kSteps, 4, 9};
  const int64_t sequences[] = {1, 2, 0};
  const std::vector<Logits> expected = {alone(model, 0, kSteps),
                                        alone(model, 1, kSteps),
                                        alone(model, 2, kSteps)};
  Session &session = model.session();
  for (size_t p = 0; p < 3; ++p)
    ASSERT_TRUE(start(session, sequences[p], kPrompts[p]).ok());
  for (size_t i = 0; i < kSteps; ++i) {
    std::vector<Session::BatchRow> rows;
    std::vector<size_t> prompts;
    for (size_t n = 0; n < 3; ++n)
      if (const size_t p = (n + i) % 3; i < ends[p]) {
        rows.push_back({sequences[p], idAt(p, i)});
        prompts.push_back(p);
      }
    ASSERT_TRUE(session.decodeBatch(rows).ok());
    for (size_t r = 0; r < rows.size(); ++r) {
      SCOPED_TRACE(testing::Message() << "step " << i << " row " << r);
      expectSameBits(session.batchLogits(static_cast<int64_t>(r)),
                     expected[prompts[r]][i]);
    }
  }
}

/// Other sums than those of one sequence: rounding is apart.
TEST_P(OfBundles, ARowIsWhatDecodingItsSequenceGives) {
  Model model(bundleOf(GetParam(), "f32"));
  Session &session = model.session();
  ASSERT_TRUE(session.useDense(true).ok());
  for (size_t p = 0; p < 3; ++p) {
    const Logits batch = alone(model, p, 8);
    ASSERT_TRUE(start(session, 0, kPrompts[p]).ok());
    for (size_t i = 0; i < batch.size(); ++i) {
      const std::span<const float> one = model.decode(idAt(p, i));
      for (size_t v = 0; v < one.size(); ++v)
        ASSERT_NEAR(one[v], batch[i][v], 1e-4f) << "token " << i;
      EXPECT_EQ(argmax(one), argmax(batch[i]));
    }
  }
}

/// A prompt, a token and going back in one sequence leave the others alone.
TEST(Batches, SequencesDoNotDisturbEachOther) {
  Model model(bundleOf());
  Session &session = model.session();
  const Logits expected = alone(model, 2, 6);
  ASSERT_TRUE(start(session, 2, kPrompts[2]).ok());
  for (size_t i = 0; i < expected.size(); ++i) {
    const auto other = static_cast<int64_t>(i % 2);
    ASSERT_TRUE(start(session, other, kPrompts[1]).ok());
    model.decode(77);
    ASSERT_TRUE(session.truncate(3).ok());
    EXPECT_EQ(session.position(), 3);
    const Session::BatchRow rows[] = {{other, 5}, {2, idAt(2, i)}};
    ASSERT_TRUE(session.decodeBatch(rows).ok());
    expectSameBits(session.batchLogits(1), expected[i]);
  }
}

TEST(Batches, WhatABatchCannotTakeIsRefusedAndChangesNothing) {
  Model model(bundleOf());
  Session &session = model.session();
  ASSERT_TRUE(start(session, 1, std::vector<int32_t>(64, 5)).ok());
  ASSERT_TRUE(start(session, 0, {2, 3}).ok());
  using Rows = std::vector<Session::BatchRow>;
  const std::pair<Rows, const char *> cases[] = {
      {{}, "a batch of 0: the bundle takes 1..3 sequences at once"},
      {{{0, 1}, {1, 1}, {2, 1}, {0, 1}}, "a batch of 4"},
      {{{0, 1}, {3, 1}}, "row 1 is of sequence 3: the bundle holds 3"},
      {{{2, 1}, {0, -1}}, "token id -1 of row 1 is not in the model's"},
      {{{0, 1}, {1, 1}}, "sequence 1 is full: the model allows 64 tokens"},
      {{{0, 1}, {2, 1}, {0, 2}}, "rows 0 and 2 are both of sequence 0"}};
  for (const auto &[rows, message] : cases) {
    const Status status = session.decodeBatch(rows);
    ASSERT_FALSE(status.ok()) << message;
    EXPECT_EQ(status.error().code, ErrorCode::Usage);
    EXPECT_NE(status.error().message.find(message), std::string::npos)
        << status.error().message;
  }
  EXPECT_EQ(session.position(), 2);
  const Status selected = session.select(3);
  ASSERT_FALSE(selected.ok());
  EXPECT_EQ(selected.error().code, ErrorCode::Usage);

  Model one(compiled({source(kModel), "--sparsity=none"}));
  const Session::BatchRow row{0, 1};
  const Status status = one.session().decodeBatch({&row, 1});
  ASSERT_FALSE(status.ok());
  EXPECT_NE(status.error().message.find("--max-batch"), std::string::npos);
}

std::vector<std::string> runCommand(const std::string &bundle,
                                    const std::vector<std::string> &more) {
  std::vector<std::string> command = {tool("foresight"),
                                      "run",
                                      bundle,
                                      "--max-new-tokens=16",
                                      "--prompt=One",
                                      "--prompt=In the city of",
                                      "--prompt=The",
                                      "--prompt=He was"};
  command.insert(command.end(), more.begin(), more.end());
  return command;
}

/// Four prompts: a batch of three, then one of one. A stop string ends some
/// early.
TEST(Batches, RunContinuesPromptsTogetherAsEachByItself) {
  const std::string bundle = bundleOf();
  for (const char *form : {"text", "ids"})
    for (const std::vector<std::string> &more :
         {std::vector<std::string>{}, {"--stop= the"}, {"--echo"}}) {
      if (form == std::string("ids") && !more.empty() && more[0] == "--echo")
        continue;
      std::vector<std::string> options = {"--output=" + std::string(form)};
      options.insert(options.end(), more.begin(), more.end());
      const ProcessResult together = run(runCommand(bundle, options));
      EXPECT_EQ(together.exitCode, 0) << together.errors;
      EXPECT_EQ(together.errors, "");
      options.push_back("--batch=1");
      const ProcessResult each = run(runCommand(bundle, options));
      EXPECT_EQ(together.output, each.output);
      EXPECT_GT(each.output.size(), 100u);
    }
}

TEST(Batches, JsonLinesSayTheirPromptAndTheBatch) {
  const ProcessResult result =
      run(runCommand(bundleOf("exact"), {"--output=json"}));
  EXPECT_EQ(result.exitCode, 0);
  EXPECT_NE(result.errors.find("continued together and dense"),
            std::string::npos);
  std::istringstream lines(result.output);
  std::vector<int> tokens(4, 0), ended(4, 0);
  for (std::string line; std::getline(lines, line);) {
    const Json json = Json::parse(line);
    const size_t prompt = json.at("prompt");
    ASSERT_LT(prompt, 4u);
    if (!json.contains("done")) {
      tokens[prompt] += !json.at("id").is_null();
      continue;
    }
    ++ended[prompt];
    EXPECT_EQ(json.at("decode"), "dense");
    EXPECT_EQ(json.at("ids").size(), static_cast<size_t>(tokens[prompt]));
    EXPECT_EQ(json.at("batch"), prompt < 3 ? 3 : 1);
  }
  EXPECT_EQ(ended, std::vector<int>(4, 1));
}

TEST(Batches, ToolsRefuseMoreThanTheBundleTakes) {
  const char *const message = "the bundle takes 3 sequences at once";
  expectError(
      run({tool("foresight"), "run", bundleOf(), "--ids=2,3", "--batch=4"}),
      "foresight", 2, {"--batch=4", message});
  expectError(run({tool("foresight"), "bench", bundleOf(), "--batch=4"}),
              "foresight", 2, {"--batch=4", message});
  expectError(run({tool("foresight"), "bench",
                   compiled({source(kModel), "--sparsity=none"}), "--batch=1"}),
              "foresight", 2, {"--max-batch"});
  expectError(run({tool("foresight-compile"), source(kModel),
                   "--max-batch=1000", "-o", "x.fsb"}),
              "foresight-compile", 2,
              {"--max-batch is a number from 1 to 256"});
}

TEST(Batches, BenchTimesABatchBesideOneSequence) {
  const ProcessResult result =
      run({tool("foresight"), "bench", bundleOf("exact"), "--batch=3",
           "--prompt-tokens=8", "--tokens=4", "--repeat=2", "--json"});
  ASSERT_EQ(result.exitCode, 0) << result.errors;
  const Json json = Json::parse(result.output);
  const Json &batch = json.at("decode_batch");
  EXPECT_EQ(batch.at("batch"), 3);
  EXPECT_EQ(batch.at("seconds").at("count"), 8);
  // All weights once for three tokens.
  EXPECT_NEAR(batch.at("weight_bytes_per_token").get<double>() * 3,
              json.at("decode_dense").at("weight_bytes_per_token"), 1e5);
}

} // namespace
