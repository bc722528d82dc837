//===- FolderTest.cpp - What lies beside the weights of a folder ----------===//

#include "Harness.h"

#include "foresight/support/Json.h"

#include <gmock/gmock.h>

using namespace foresight;
using namespace foresight::test;
using testing::HasSubstr;

namespace {

/// A copy of a tiny checkpoint; tests add files.
class Folder : public testing::Test {
protected:
  Folder() {
    for (const char *name : {"config.json", "model.safetensors"})
      fs::copy_file(fs::path(source("test/fixtures/huggingface/bare_names")) /
                        name,
                    folder / name);
  }
  ProcessResult compile() {
    return run({tool("foresight-compile"), folder.path(), "--sparsity=none",
                "--target=cpu:native", "-q", "-o", bundle()});
  }
  /// `--check` says of the folder what compiling it said.
  void expectSameWarnings(const ProcessResult &compiled) {
    ProcessResult result =
        run({tool("foresight-compile"), "--check", folder.path()});
    EXPECT_EQ(result.exitCode, 0) << result.errors;
    EXPECT_EQ(result.errors, compiled.errors);
    EXPECT_THAT(result.output, HasSubstr("can be compiled"));
  }
  std::string bundle() const { return folder / "m.fsb"; }
  /// The ids that follow 2,5,9 and why there are no more.
  Json continued(const std::vector<std::string> &more = {}) {
    std::vector<std::string> command = {
        tool("foresight"), "run",           bundle(),
        "--ids=2,5,9",     "--output=json", "--max-new-tokens=8"};
    command.insert(command.end(), more.begin(), more.end());
    ProcessResult result = run(command);
    EXPECT_EQ(result.exitCode, 0) << result.errors;
    Json last;
    for (size_t at = 0, end; at < result.output.size(); at = end + 1) {
      end = result.output.find('\n', at);
      last = Json::parse(result.output.substr(at, end - at));
    }
    return last;
  }
  static size_t countOf(const std::string &text, const std::string &part) {
    size_t count = 0;
    for (size_t at = 0; (at = text.find(part, at)) != std::string::npos; ++at)
      ++count;
    return count;
  }

  TemporaryFolder folder;
};

TEST_F(Folder, WithATokenizerOfAnotherKindRunsOnIds) {
  struct Case {
    const char *json, *reason;
  };
  const std::string bpe = R"("pre_tokenizer": {"type": "ByteLevel"},
      "model": {"type": "BPE", "vocab": {"a": 0}, "merges": []}})";
  const std::string normalized = R"({"normalizer": {"type": "NFKC"}, )" + bpe;
  for (const Case &c :
       {Case{R"({"pre_tokenizer": {"type": "ByteLevel"},
                 "model": {"type": "Unigram", "vocab": [["a", -1.5]]}})",
             "model of type 'Unigram' is not supported"},
        Case{R"({"pre_tokenizer": {"type": "BertPreTokenizer"},
                 "model": {"type": "WordPiece", "vocab": {"a": 0}}})",
             "pre_tokenizer of type 'BertPreTokenizer' is not supported"},
        Case{normalized.c_str(), "normalizer of type 'NFKC'"}}) {
    SCOPED_TRACE(c.reason);
    writeFile(folder / "tokenizer.json", c.json);
    ProcessResult result = compile();
    EXPECT_EQ(result.exitCode, 0) << result.errors;
    EXPECT_EQ(countOf(result.errors, "warning: "), 1u) << result.errors;
    EXPECT_THAT(result.errors, HasSubstr(folder / "tokenizer.json"));
    EXPECT_THAT(result.errors, HasSubstr(c.reason));
    EXPECT_THAT(result.errors, HasSubstr("token ids only"));
  }
  EXPECT_EQ(continued()["ids"].size(), 8u);
  for (const char *wrong : {"--prompt=a", "--stop=a", "--output=text"})
    expectError(run({tool("foresight"), "run", bundle(), wrong,
                     std::string(wrong) == "--prompt=a" ? "--max-new-tokens=1"
                                                        : "--ids=2"}),
                "foresight", 5, {bundle(), "carries no tokenizer", "--ids"});
}

TEST_F(Folder, WithHalfOfATokenizerSaysWhichHalfIsMissing) {
  writeFile(folder / "vocab.json", R"({"a": 0})");
  ProcessResult result = compile();
  EXPECT_EQ(result.exitCode, 0) << result.errors;
  EXPECT_EQ(countOf(result.errors, "warning: "), 1u) << result.errors;
  EXPECT_THAT(result.errors,
              HasSubstr("merges.txt is missing beside it; the "
                        "bundle takes and gives token ids only"));
}

TEST_F(Folder, WithAnEndOutsideOfTheVocabularyWarns) {
  writeFile(folder / "generation_config.json", R"({"eos_token_id": [2, 48]})");
  ProcessResult result = compile();
  EXPECT_EQ(result.exitCode, 0) << result.errors;
  EXPECT_EQ(countOf(result.errors, "warning: "), 1u) << result.errors;
  EXPECT_THAT(result.errors, HasSubstr("eos_token_id is 48 but the model's "
                                       "vocabulary has 48 tokens"));
  expectSameWarnings(result);
}

TEST_F(Folder, WithATokenizerOfALargerVocabularyWarns) {
  writeFile(folder / "tokenizer.json",
            R"({"pre_tokenizer": {"type": "ByteLevel"}, "model": {
                "type": "BPE", "vocab": {"a": 48}, "merges": []}})");
  ProcessResult result = compile();
  EXPECT_EQ(result.exitCode, 0) << result.errors;
  EXPECT_EQ(countOf(result.errors, "warning: "), 1u) << result.errors;
  EXPECT_THAT(result.errors, HasSubstr("ids up to 48 but the model's "
                                       "vocabulary has 48"));
  expectSameWarnings(result);
}

TEST_F(Folder, EndsTextWhereGenerationConfigSays) {
  ASSERT_EQ(compile().exitCode, 0);
  const auto free = continued({"--ignore-eos"})["ids"].get<std::vector<int>>();
  ASSERT_EQ(free.size(), 8u);
  const int end = free[2];
  const size_t first = std::find(free.begin(), free.end(), end) - free.begin();
  writeFile(folder / "generation_config.json",
            dumpJson(Json{{"eos_token_id", {47, end}}, {"do_sample", true}}));
  ASSERT_EQ(compile().exitCode, 0);
  const Json stopped = continued();
  EXPECT_EQ(stopped["finish"], "eos");
  EXPECT_EQ(stopped["ids"].size(), first) << stopped["ids"];
  EXPECT_EQ(continued({"--ignore-eos"})["ids"], Json(free));
}

} // namespace
