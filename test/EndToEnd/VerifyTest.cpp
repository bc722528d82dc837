//===- VerifyTest.cpp - Bundles against references ------------------------===//

#include "Harness.h"
#include "Model.h"

#include "SafetensorsWriter.h"

#include "foresight/support/Json.h"
#include "foresight/verify/Compare.h"

using namespace foresight;
using namespace foresight::test;

namespace {

/// What to compile in a folder of test/fixtures/exports.
fs::path inputOf(const fs::path &folder) {
  for (const char *name : {"model.onnx", "decoder_model.onnx"})
    if (fs::exists(folder / name))
      return folder / name;
  return folder;
}

/// Real exports of a small OPT, by several exporters: alone, left-padded and
/// greedy.
class Exports : public testing::TestWithParam<fs::path> {};

TEST_P(Exports, GiveTheLogitsAndTokensOfTheirExporter) {
  auto reference = verify::Reference::read(GetParam() / "expected.safetensors");
  ASSERT_TRUE(reference.ok()) << reference.error().message;
  ASSERT_EQ(reference->sequences.size(), 4u);
  ASSERT_EQ(reference->continuations.size(), 1u);
  // A graph that computes in f16 is itself no nearer than that.
  const bool half = GetParam().filename() == "ts_fp16_op17";
  for (const char *sparsity : {"none", "exact"}) {
    SCOPED_TRACE(sparsity);
    Model model(
        compiled({inputOf(GetParam()), "--dtype=f32", "--target=cpu:native",
                  std::string("--sparsity=") + sparsity}));
    auto report = verify::compare(model.session(), *reference,
                                  verify::toleranceOf(half ? "f16" : "f32"));
    ASSERT_TRUE(report.ok()) << report.error().message;
    EXPECT_EQ(report->findings.size(), 5u);
    for (const verify::Finding &finding : report->findings)
      EXPECT_TRUE(finding.passed(report->tolerance))
          << finding.name << ": " << finding.error << " after token "
          << finding.worst << " " << finding.mismatch;
  }
}

std::vector<fs::path> exportFolders() {
  std::vector<fs::path> folders;
  std::error_code error;
  for (const fs::directory_entry &entry :
       fs::directory_iterator(source("test/fixtures/exports"), error))
    // Quantised graphs are refused: BadModelTest.cpp.
    if (fs::exists(entry.path() / "expected.safetensors") &&
        entry.path().filename() != "ort_dynamic_quant")
      folders.push_back(entry.path());
  std::sort(folders.begin(), folders.end());
  return folders;
}

INSTANTIATE_TEST_SUITE_P(Folders, Exports, testing::ValuesIn(exportFolders()),
                         [](const auto &info) {
                           return info.param.filename().string();
                         });

/// Kinds of graphs whose weights take another way into a bundle: rows of a
/// joined matrix, together or a head at a time, f16, numbers in the graph,
/// codes of 4 and of 8 bits.
class Kinds : public testing::TestWithParam<const char *> {};

TEST_P(Kinds, GiveTheLogitsOfTheirReference) {
  const std::string name = GetParam();
  const fs::path folder = source("test/fixtures/kinds");
  const fs::path own = folder / (name + ".safetensors");
  auto reference = verify::Reference::read(
      fs::exists(own) ? own : folder / "expected.safetensors");
  ASSERT_TRUE(reference.ok()) << reference.error().message;
  const bool half = name == "dynamo_f16";
  for (const char *sparsity : {"none", "exact"}) {
    SCOPED_TRACE(sparsity);
    Model model(compiled({folder / (name + ".onnx"), "--dtype=f32",
                          "--target=cpu:native",
                          std::string("--sparsity=") + sparsity}));
    auto report = verify::compare(model.session(), *reference,
                                  verify::toleranceOf(half ? "f16" : "f32"));
    ASSERT_TRUE(report.ok()) << report.error().message;
    EXPECT_TRUE(report->passed()) << report->largestError();
  }
}

INSTANTIATE_TEST_SUITE_P(
    Files, Kinds,
    testing::Values("sim_dynamo", "fused_attention", "dynamo_f16", "typed",
                    "quantized_4bits", "quantized_4bits_qdq", "quantized_8bits",
                    "joined", "joined_heads", "no_bias", "no_final_norm"),
    [](const auto &info) { return std::string(info.param); });

/// Checkpoints as they are named and cut, all with the logits of PyTorch.
class Checkpoints : public testing::Test {
protected:
  static fs::path fixture(const std::string &name) {
    return fs::path(source("test/fixtures/huggingface")) / name;
  }
  /// Compiles `model` and compares with what `name` expects.
  static void expectLogitsOf(const std::string &name, const fs::path &model) {
    auto reference =
        verify::Reference::read(fixture(name) / "expected.safetensors");
    ASSERT_TRUE(reference.ok()) << reference.error().message;
    Model compiledModel(
        compiled({model, "--dtype=f32", "--target=cpu:native"}));
    auto report = verify::compare(compiledModel.session(), *reference,
                                  verify::toleranceOf("f32"));
    ASSERT_TRUE(report.ok()) << report.error().message;
    EXPECT_TRUE(report->passed()) << report->largestError();
  }
  /// The tensors of `name` under names of `rename` ("" leaves one out), in
  /// `shards` files.
  void write(const std::string &name, size_t shards,
             const std::function<std::string(std::string)> &rename) {
    fs::copy_file(fixture(name) / "config.json", folder / "config.json");
    auto given = Safetensors::openFile(fixture(name) / "model.safetensors");
    ASSERT_TRUE(given.ok());
    std::vector<SafetensorsWriter> writers(shards);
    Json map = Json::object();
    size_t next = 0;
    for (const auto &[old, tensor] : given->tensors()) {
      const std::string now = rename(old);
      if (now.empty())
        continue;
      const size_t shard = next++ % shards;
      writers[shard].add(now, "F32", tensor.shape, tensor.data(), tensor.bytes);
      map[now] = shardName(shard, shards);
    }
    for (size_t i = 0; i < shards; ++i)
      writeFile(folder / shardName(i, shards), writers[i].bytes());
    if (shards > 1)
      writeFile(folder / "model.safetensors.index.json",
                dumpJson(Json{{"weight_map", map}}));
  }
  static std::string shardName(size_t i, size_t shards) {
    return shards == 1 ? "model.safetensors"
                       : "model-" + std::to_string(i) + ".safetensors";
  }

  TemporaryFolder folder;
};

TEST_F(Checkpoints, EveryKindOfModel) {
  for (const char *name :
       {"bare_names", "post_norm", "no_bias", "no_final_norm"}) {
    SCOPED_TRACE(name);
    expectLogitsOf(name, fixture(name));
  }
}

TEST_F(Checkpoints, EveryNamingWholeOrInShards) {
  struct Case {
    const char *prefix;
    size_t shards;
  };
  for (const Case &c : {Case{"model.decoder.", 1}, Case{"decoder.", 3},
                        Case{"", 2}, Case{"_orig_mod.model.decoder.", 1}}) {
    SCOPED_TRACE(c.prefix);
    fs::remove_all(folder.path());
    fs::create_directories(folder.path());
    write("bare_names", c.shards, [&](const std::string &name) {
      return c.prefix + name.substr(std::string("decoder.").size());
    });
    TemporaryFolder copy; // a bundle is compiled once a path
    fs::copy(folder.path(), copy / "model");
    expectLogitsOf("bare_names", copy / "model");
  }
}

TEST_F(Checkpoints, AnIndexSaysWhichTensorsAreTheModels) {
  write("bare_names", 3, [](const std::string &name) { return name; });
  const fs::path index = folder / "model.safetensors.index.json";
  auto json = readJsonFile(index);
  ASSERT_TRUE(json.ok());
  const std::string needed = "decoder.layers.0.fc1.weight";
  const std::string shard = (*json)["weight_map"][needed].get<std::string>();
  Json left = *json;
  left["weight_map"].erase(needed);
  writeFile(index, dumpJson(left));
  expectError(run({tool("foresight-compile"), folder.path(), "-q", "-o",
                   folder / "m.fsb"}),
              "foresight-compile", 3,
              {"model.safetensors.index.json", "tensor '" + needed + "'",
               "is missing, though", shard + " has it",
               "\"weight_map\" does not list it"});

  // One that the model has no place for, in a shard alone, is no part of it.
  writeFile(index, dumpJson(*json));
  auto file = Safetensors::openFile(folder / shard);
  ASSERT_TRUE(file.ok());
  SafetensorsWriter writer;
  for (const auto &[name, tensor] : file->tensors())
    writer.add(name, "F32", tensor.shape, tensor.data(), tensor.bytes);
  writer.add("decoder.layers.9.fc1.weight", {1, 1}, {1});
  writeFile(folder / shard, writer.bytes());
  expectLogitsOf("bare_names", folder.path());
}

TEST_F(Checkpoints, AHeadThatStandsForTheEmbedding) {
  write("bare_names", 1, [](const std::string &name) -> std::string {
    return name == "decoder.embed_tokens.weight" ? "lm_head.weight" : name;
  });
  expectLogitsOf("bare_names", folder.path());
}

TEST_F(Checkpoints, AHeadWithTheNumbersOfTheEmbeddingIsStoredOnce) {
  write("bare_names", 1,
        [](const std::string &name) -> std::string { return name; });
  // The same numbers once more, elsewhere in the file.
  auto file = Safetensors::openFile(folder / "model.safetensors");
  ASSERT_TRUE(file.ok());
  SafetensorsWriter writer;
  for (const auto &[name, tensor] : file->tensors()) {
    writer.add(name, "F32", tensor.shape, tensor.data(), tensor.bytes);
    if (name == "decoder.embed_tokens.weight")
      writer.add("lm_head.weight", "F32", tensor.shape, tensor.data(),
                 tensor.bytes);
  }
  const std::string whole = writer.bytes();
  writeFile(folder / "model.safetensors", whole);
  const std::string out = folder / "m.fsb";
  ProcessResult result =
      run({tool("foresight-compile"), folder.path(), "--dtype=f32",
           "--sparsity=none", "--target=cpu:native", "--explain", "-o", out});
  EXPECT_EQ(result.exitCode, 0) << result.errors;
  for (const char *part : {"equal weights are stored once, which saves 6.1 kB",
                           "embed_tokens.weight = lm_head.weight, 6.1 kB"})
    EXPECT_NE(result.errors.find(part), std::string::npos) << result.errors;
  ProcessResult inspected = run({tool("foresight"), "inspect", out});
  for (const char *part : {"equal ones are stored once, which saves 6.14 kB",
                           "as embed_tokens.weight"})
    EXPECT_NE(inspected.output.find(part), std::string::npos)
        << inspected.output;
  expectLogitsOf("bare_names", folder.path());
}

const fs::path kExport =
    fs::path(source("test/fixtures/exports")) / "optimum_past";

/// A reference made of another one's first sequence.
class Verify : public testing::Test {
protected:
  Verify()
      : ids(given.ids("single.input_ids")),
        logits(given.floats("single.logits")),
        vocabulary(logits.size() / ids.size()) {}

  /// The sequence with `left` and `right` tokens of padding around it, whose
  /// logits are nonsense.
  void add(const std::string &name, size_t left, size_t right) {
    std::vector<int64_t> padded(left, 1), mask(left, 0);
    padded.insert(padded.end(), ids.begin(), ids.end());
    mask.insert(mask.end(), ids.size(), 1);
    padded.insert(padded.end(), right, 1);
    mask.insert(mask.end(), right, 0);
    std::vector<float> rows(left * vocabulary, 1e9f);
    rows.insert(rows.end(), logits.begin(), logits.end());
    rows.insert(rows.end(), right * vocabulary, -1e9f);
    add(name, padded, mask, rows);
  }
  void add(const std::string &name, const std::vector<int64_t> &tokens,
           const std::vector<int64_t> &mask, const std::vector<float> &rows) {
    const auto count = static_cast<int64_t>(tokens.size());
    writer.add(name + ".input_ids", "I64", {1, count}, tokens.data(),
               tokens.size() * 8);
    writer.add(name + ".attention_mask", "I64", {1, count}, mask.data(),
               mask.size() * 8);
    writer.add(name + ".logits", {1, count, static_cast<int64_t>(vocabulary)},
               rows);
  }
  std::string written() {
    writeFile(folder / "r.safetensors", writer.bytes());
    return folder / "r.safetensors";
  }
  static std::string bundle() {
    return compiled({kExport / "model.onnx", "--dtype=f32"});
  }
  static ProcessResult verify(const std::string &reference,
                              const std::string &more = "--dense") {
    return run(
        {tool("foresight"), "verify", bundle(), "--expected", reference, more});
  }

  Expected given{kExport / "expected.safetensors"};
  std::vector<int32_t> ids;
  std::vector<float> logits;
  size_t vocabulary;
  TemporaryFolder folder;
  SafetensorsWriter writer;
};

TEST_F(Verify, TellsErrorsAndTolerance) {
  ProcessResult result = verify(kExport / "expected.safetensors");
  EXPECT_EQ(result.exitCode, 0) << result.errors;
  for (const char *part : {"single", "left_padded, row 2", "greedy.tokens",
                           "all equal", "tolerance 0.0001 (f32): passed"})
    EXPECT_NE(result.output.find(part), std::string::npos) << result.output;
}

TEST_F(Verify, PaddingOnEitherSideChangesNothing) {
  add("none", 0, 0);
  add("left", 3, 0);
  add("right", 0, 5);
  add("both", 1, 2);
  ProcessResult result = verify(written(), "--json");
  ASSERT_EQ(result.exitCode, 0) << result.errors;
  Json report = Json::parse(result.output);
  ASSERT_EQ(report["cases"].size(), 4u);
  for (const Json &item : report["cases"]) {
    EXPECT_EQ(item["tokens"], ids.size());
    // Exactly: every row runs as if it were alone.
    EXPECT_EQ(item["relative_error"], report["cases"][0]["relative_error"]);
  }
}

TEST_F(Verify, AMaskWithAHoleIsRefused) {
  add("holes", {2, 5, 6}, {1, 0, 1}, std::vector<float>(3 * vocabulary));
  expectError(verify(written()), "foresight", 4,
              {"r.safetensors", "'holes.attention_mask'", "hole at token 1"});
}

TEST_F(Verify, ADifferenceHasAnExitCodeOfItsOwn) {
  logits[4 * vocabulary + 7] += 0.1f;
  add("changed", 0, 0);
  ProcessResult result = verify(written());
  EXPECT_EQ(result.exitCode, 7);
  EXPECT_NE(result.errors.find("r.safetensors: changed: largest relative "
                               "error"),
            std::string::npos)
      << result.errors;
  EXPECT_NE(result.errors.find("after token 4"), std::string::npos);
  EXPECT_NE(result.output.find("differs"), std::string::npos);
  EXPECT_EQ(verify(written(), "--tolerance=1").exitCode, 0);
}

TEST_F(Verify, AReferenceOfAnotherVocabularyIsRefused) {
  vocabulary /= 2;
  add("other", {2, 5}, {1, 1}, std::vector<float>(2 * vocabulary));
  expectError(verify(written()), "foresight", 3,
              {"other", "vocabulary has 256"});
}

TEST_F(Verify, TheCompilerVerifiesWhatItWrote) {
  const std::string out = folder / "m.fsb";
  const auto compile = [&](const std::string &reference) {
    return run({tool("foresight-compile"), kExport / "model.onnx",
                "--dtype=f32", "-q", "--verify=" + reference, "-o", out});
  };
  ProcessResult good = compile(kExport / "expected.safetensors");
  EXPECT_EQ(good.exitCode, 0) << good.errors;
  EXPECT_NE(good.output.find("passed"), std::string::npos);

  fs::remove(out);
  logits[0] += 1;
  add("changed", 0, 0);
  ProcessResult bad = compile(written());
  EXPECT_EQ(bad.exitCode, 7);
  EXPECT_NE(bad.errors.find("foresight-compile: error: "), std::string::npos);
  EXPECT_NE(bad.errors.find("changed"), std::string::npos) << bad.errors;
  // The bundle is whole, to be looked into.
  EXPECT_TRUE(fs::exists(out));
  expectError(compile(folder / "none.safetensors"), "foresight-compile", 3,
              {"none.safetensors"});
}

} // namespace
