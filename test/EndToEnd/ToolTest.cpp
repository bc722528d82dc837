//===- ToolTest.cpp - The commands of foresight on real bundles -----------===//

#include "Harness.h"

#include "foresight/support/Json.h"
#include "foresight/support/Profile.h"

#include <cmath>
#include <set>
#include <sstream>

using namespace foresight;
using namespace foresight::test;

namespace {

const char *const kModel = "examples/opt-mini/model.onnx";
const char *const kText = "test/fixtures/text/validation.txt";

std::string predicted() {
  return compiled({source(kModel), "--sparsity=predicted"});
}

std::string outputOf(const std::vector<std::string> &arguments,
                     const ProcessOptions &options = {}) {
  std::vector<std::string> command = {tool("foresight")};
  command.insert(command.end(), arguments.begin(), arguments.end());
  ProcessResult result = run(command, options);
  EXPECT_EQ(result.exitCode, 0) << result.errors;
  return result.output;
}

Json jsonOf(const std::vector<std::string> &arguments) {
  return Json::parse(outputOf(arguments), nullptr, false);
}

TEST(Tool, PromptsFromEverySourceContinueAlike) {
  TemporaryFolder folder;
  const std::string prompt = "The history of the city begins";
  writeFile(folder / "prompt.txt", prompt);
  const std::vector<std::string> base = {"run", predicted(),
                                         "--max-new-tokens=12"};
  const auto with = [&](const std::vector<std::string> &more,
                        const ProcessOptions &options = {}) {
    std::vector<std::string> arguments = base;
    arguments.insert(arguments.end(), more.begin(), more.end());
    return outputOf(arguments, options);
  };
  const std::string text = with({"--prompt", prompt});
  EXPECT_GT(text.size(), 20u);
  EXPECT_EQ(with({"--prompt-file", folder / "prompt.txt"}), text);
  ProcessOptions piped;
  piped.input = prompt;
  EXPECT_EQ(with({}, piped), text);
  EXPECT_EQ(with({"--prompt-file=-"}, piped), text);
  EXPECT_EQ(with({"--prompt-file=/dev/stdin"}, piped), text);
  EXPECT_EQ(with({"--prompt", prompt, "--echo"}), prompt + text);
  EXPECT_EQ(with({"--prompt", prompt, "--dense"}), text);
}

TEST(Tool, SeveralPromptsAreContinuedEachByItself) {
  const std::string a = "The sea was", b = "In the year";
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.begin(), {"run", predicted(), "--max-new-tokens=9",
                               "--temperature=0.8", "--seed=5"});
    return outputOf(more);
  };
  const std::string first = with({"--prompt", a}),
                    second = with({"--prompt", b});
  EXPECT_NE(first, second);
  EXPECT_EQ(with({"--prompt", a, "--prompt", b, "--prompt", a}),
            "==> 0 <==\n" + first + "\n==> 1 <==\n" + second + "\n==> 2 <==\n" +
                first);
  // Ids of different lengths: a line each.
  const std::string few = with({"--ids=2,5", "--output=ids"});
  const std::string many = with({"--ids=2,9,31,7,7", "--output=ids"});
  EXPECT_EQ(with({"--ids=2,5", "--ids=2,9,31,7,7", "--output=ids"}),
            few + many);
  std::istringstream lines(
      with({"--prompt", a, "--prompt", b, "--output=json"}));
  std::vector<std::string> texts;
  for (std::string line; std::getline(lines, line);) {
    Json object = Json::parse(line);
    if (object.contains("done")) {
      EXPECT_EQ(object["prompt"], texts.size());
      texts.push_back(object["text"].get<std::string>() + "\n");
    }
  }
  EXPECT_EQ(texts, (std::vector<std::string>{first, second}));
}

TEST(Tool, OutputFormsTellTheSameTokens) {
  const std::vector<std::string> base = {"run", predicted(), "--prompt", "The",
                                         "--max-new-tokens=10"};
  const auto in = [&](const char *form) {
    std::vector<std::string> arguments = base;
    arguments.push_back(std::string("--output=") + form);
    return outputOf(arguments);
  };
  std::string ids, text;
  Json last;
  std::istringstream lines(in("json"));
  for (std::string line; std::getline(lines, line);) {
    last = Json::parse(line);
    if (last.contains("done"))
      break;
    text += last["text"].get<std::string>();
    if (!last["id"].is_null())
      ids += (ids.empty() ? "" : ",") + std::to_string(last["id"].get<int>());
  }
  EXPECT_EQ(ids + "\n", in("ids"));
  EXPECT_EQ(text + "\n", in("text"));
  EXPECT_EQ(last["text"], text);
  EXPECT_EQ(last["finish"], "length");
  EXPECT_EQ(last["decode"], "sparse");
  EXPECT_GT(last["weight_bytes_per_token"], 1e6);
}

TEST(Tool, SamplingRepeatsWithItsSeedAndDiffersWithAnother) {
  const auto drawn = [&](const char *seed) {
    return outputOf({"run", predicted(), "--ids=2,5,9", "--output=ids",
                     "--temperature=1.5", "--top-k=50", "--top-p=0.95",
                     "--ignore-eos", "--max-new-tokens=16", seed});
  };
  const std::string one = drawn("--seed=1");
  EXPECT_EQ(drawn("--seed=1"), one);
  EXPECT_NE(drawn("--seed=2"), one);
}

TEST(Tool, StopStringEndsTheText) {
  const std::string whole =
      outputOf({"run", predicted(), "--prompt", "The", "--max-new-tokens=24"});
  const std::string stop = whole.substr(whole.size() / 2, 3);
  const std::string text = outputOf({"run", predicted(), "--prompt", "The",
                                     "--max-new-tokens=24", "--stop", stop});
  EXPECT_EQ(text, whole.substr(0, whole.find(stop)) + "\n");
}

TEST(Tool, EvalTellsPerplexityAndWhatWasReadAndFound) {
  const std::vector<std::string> base = {
      "eval",        predicted(),        "--text",
      source(kText), "--max-tokens=200", "--json"};
  std::vector<std::string> arguments = base;
  arguments.push_back("--recall");
  const Json sparse = jsonOf(arguments);
  arguments.back() = "--dense";
  const Json dense = jsonOf(arguments);
  ASSERT_TRUE(sparse.is_object() && dense.is_object());
  EXPECT_EQ(sparse["tokens"], 199);
  EXPECT_EQ(sparse["decode"], "sparse");
  EXPECT_EQ(dense["decode"], "dense");
  EXPECT_NEAR(sparse["nll"].get<double>(), dense["nll"].get<double>(), 5e-3);
  EXPECT_LT(sparse["mlp_bytes"], 0.3);
  EXPECT_DOUBLE_EQ(dense["mlp_bytes"], 1);
  EXPECT_LT(sparse["weight_bytes_per_token"], dense["weight_bytes_per_token"]);
  ASSERT_EQ(sparse["layers"].size(), 8u);
  for (const Json &layer : sparse["layers"]) {
    EXPECT_GT(layer["recall"], 0.99);
    EXPECT_GE(layer["selected"], layer["active"]);
  }
}

TEST(Tool, WindowsStartNewSequences) {
  const auto nll = [&](const char *window) {
    return jsonOf({"eval", predicted(), "--text", source(kText),
                   "--max-tokens=128", "--json", window})["nll"]
        .get<double>();
  };
  EXPECT_GT(nll("--window=8"), nll("--window=128"));
}

TEST(Tool, BenchTimesPromptAndBothWaysToDecode) {
  TemporaryFolder folder;
  const Json bench =
      jsonOf({"bench", predicted(), "--json", "--prompt-tokens=16",
              "--tokens=4", "--repeat=2", "--trace=" + (folder / "trace")});
  ASSERT_TRUE(bench.is_object());
  EXPECT_EQ(bench["prompt"]["seconds"]["count"], 2);
  for (const char *entry : {"decode", "decode_dense"}) {
    EXPECT_EQ(bench[entry]["seconds"]["count"], 8) << entry;
    EXPECT_GT(bench[entry]["seconds"]["median"], 0) << entry;
    EXPECT_GT(bench[entry]["bandwidth_share"], 0) << entry;
  }
  EXPECT_LT(bench["decode"]["weight_bytes_per_token"],
            bench["decode_dense"]["weight_bytes_per_token"]);
  const Json trace = Json::parse(readFile(folder / "trace"));
  std::set<std::string> tracks;
  for (const Json &event : trace["traceEvents"])
    if (event["ph"] == "M")
      tracks.insert(event["args"]["name"]);
  EXPECT_EQ(tracks,
            (std::set<std::string>{"decode dense", "decode sparse", "prompt"}));
}

TEST(Tool, InspectShowsStagesAndTheManifest) {
  const std::string text = outputOf({"inspect", predicted()});
  for (const char *part : {"opt-mini", "layers.3.fc1", "selections", "kv.0",
                           "entry decode_dense", "x86-64-v3"})
    EXPECT_NE(text.find(part), std::string::npos) << part;
  EXPECT_EQ(jsonOf({"inspect", predicted(), "--json"})["format"], 1);
}

TEST(Tool, CalibrationMeetsItsBudgetAndReadsLess) {
  TemporaryFolder folder;
  const std::string profile = folder / "profile.json";
  outputOf({"calibrate", predicted(), "--text", source(kText), "-o", profile,
            "--tokens=600", "--budget=0.02"});
  Result<Profile> made = Profile::readFile(profile);
  ASSERT_TRUE(made.ok()) << made.error().message;
  EXPECT_EQ(made->layers.size(), 8u);
  ASSERT_TRUE(made->calibration);

  const std::string bundle = folder / "calibrated.fsb";
  ProcessResult compile =
      run({tool("foresight-compile"), source(kModel), "-q", "-o", bundle,
           "--sparsity=predicted", "--profile=" + profile});
  ASSERT_EQ(compile.exitCode, 0) << compile.errors;
  const auto eval = [&](const std::string &file) {
    return jsonOf(
        {"eval", file, "--text", source(kText), "--max-tokens=300", "--json"});
  };
  const Json calibrated = eval(bundle), derived = eval(predicted());
  EXPECT_LT(calibrated["mlp_bytes"].get<double>() + 0.03,
            derived["mlp_bytes"].get<double>());
  // The tokens it was chosen on: what the choice was measured with is what the
  // compiled bundle computes.
  EXPECT_LE(calibrated["nll"].get<double>() - derived["nll"].get<double>(),
            std::log1p(0.02));
}

TEST(Tool, CalibrationRefusesWhatItCannotUse) {
  TemporaryFolder folder;
  const std::vector<std::string> rest = {"--text", source(kText), "-o",
                                         folder / "p.json"};
  const auto refused = [&](const std::string &bundle,
                           const std::vector<std::string> &more,
                           const std::vector<std::string> &parts) {
    std::vector<std::string> command = {tool("foresight"), "calibrate", bundle};
    command.insert(command.end(), rest.begin(), rest.end());
    command.insert(command.end(), more.begin(), more.end());
    expectError(run(command), "foresight", 2, parts);
    EXPECT_TRUE(folder.names().empty());
  };
  refused(compiled({source(kModel), "--sparsity=none"}), {},
          {"the bundle is dense", "--sparsity=predicted"});
  refused(predicted(), {"--budget=-1"}, {"budget"});
  refused(predicted(), {"--tokens=50"}, {"at least 128"});
  // Known before the work, which takes minutes.
  fs::create_directory(folder / "p.json");
  ProcessResult result =
      run({tool("foresight"), "calibrate", predicted(), "--text", source(kText),
           "-o", folder / "p.json"});
  expectError(result, "foresight", 2, {"p.json"});
  EXPECT_EQ(result.errors.find("tokens densely"), std::string::npos);
}

} // namespace
