//===- TokenizerTest.cpp - Ids and texts of the reference -----------------===//
#include "foresight/text/Tokenizer.h"
#include "foresight/support/Json.h"
#include "foresight/text/Detokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

using namespace foresight;
using namespace foresight::text;
using testing::HasSubstr;

static const std::string kFixtures =
    FORESIGHT_SOURCE_DIR "/runtime/text/test/fixtures/";
static const std::string kOptMini = FORESIGHT_SOURCE_DIR "/examples/opt-mini";

static std::string readFile(const std::string &path) {
  std::ifstream in(path, std::ios::binary);
  EXPECT_TRUE(in.good()) << path;
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

static Tokenizer load(const std::string &path) {
  Result<Tokenizer> made = Tokenizer::fromJson(readFile(path), path);
  EXPECT_TRUE(made.ok()) << made.error().message;
  return std::move(*made);
}

//===----------------------------------------------------------------------===//
// Against the Hugging Face library
//===----------------------------------------------------------------------===//

class Golden : public testing::TestWithParam<const char *> {
protected:
  const std::string name = GetParam();
  const Tokenizer tokenizer =
      load(name == "opt_mini" ? kOptMini + "/tokenizer.json"
                              : kFixtures + name + ".tokenizer.json");
  const Json cases =
      Json::parse(readFile(kFixtures + name + ".cases.json"))["cases"];
};

TEST_P(Golden, TextsGiveTheIdsOfTheReference) {
  int texts = 0;
  for (const Json &item : cases) {
    if (!item.contains("text"))
      continue;
    Result<std::vector<int32_t>> ids =
        tokenizer.encode(item["text"].get<std::string>());
    ASSERT_TRUE(ids.ok()) << ids.error().message;
    EXPECT_EQ(*ids, item["ids"].get<std::vector<int32_t>>())
        << item["text"].dump();
    ++texts;
  }
  EXPECT_GT(texts, 50);
}

TEST_P(Golden, IdsGiveTheTextOfTheReference) {
  for (const Json &item : cases) {
    const auto ids = item["ids"].get<std::vector<int32_t>>();
    EXPECT_EQ(tokenizer.decode(ids, false), item["decoded"].get<std::string>())
        << item["ids"];
    EXPECT_EQ(tokenizer.decode(ids, true), item["skipped"].get<std::string>())
        << item["ids"];
  }
}

TEST_P(Golden, StreamedTextIsUtf8AndJoinsToTheWhole) {
  for (const Json &item : cases) {
    Detokenizer stream(tokenizer, /*skipSpecial=*/true);
    std::string joined;
    for (const int32_t id : item["ids"].get<std::vector<int32_t>>()) {
      const std::string part = stream.push(id);
      EXPECT_NO_THROW(Json(part).dump()); // throws if it is not UTF-8
      joined += part;
    }
    joined += stream.finish();
    EXPECT_EQ(joined, item["skipped"].get<std::string>()) << item["ids"];
  }
}

INSTANTIATE_TEST_SUITE_P(Tokenizers, Golden,
                         testing::Values("opt_mini", "pairs",
                                         "strings_prefix_added",
                                         "ignore_merges", "whole_text_unknown"),
                         [](const auto &info) { return info.param; });

//===----------------------------------------------------------------------===//
// Behaviour
//===----------------------------------------------------------------------===//

TEST(Tokenizer, SpecialTokensAreAddedOnlyWhenAsked) {
  const Tokenizer tokenizer = load(kOptMini + "/tokenizer.json");
  auto with = tokenizer.encode("sea", true);
  auto without = tokenizer.encode("sea", false);
  ASSERT_TRUE(with.ok() && without.ok());
  EXPECT_EQ(with->front(), 2);
  with->erase(with->begin());
  EXPECT_EQ(*with, *without);
  EXPECT_TRUE(tokenizer.isSpecial(2));
  EXPECT_EQ(tokenizer.idOf("</s>"), 2);
}

TEST(Tokenizer, InvalidUtf8NamesTheFirstWrongByte) {
  const Tokenizer tokenizer = load(kOptMini + "/tokenizer.json");
  for (const auto &[text, offset] :
       std::initializer_list<std::pair<const char *, const char *>>{
           {"abc\xFF", "byte 3"},
           {"\xC3", "byte 0"},
           {"\xC3\xA9\xE2\x82", "byte 2"},
           {"x\xED\xA0\x80", "byte 1"},
           {"\xC0\xAF", "byte 0"},
           {"ok\xF4\x90\x80\x80", "byte 2"}}) {
    auto ids = tokenizer.encode(text);
    ASSERT_FALSE(ids.ok());
    EXPECT_EQ(ids.error().code, ErrorCode::Usage);
    EXPECT_THAT(ids.error().message, HasSubstr(offset));
  }
}

TEST(Tokenizer, IdsWithoutATokenDecodeToNothing) {
  const Tokenizer tokenizer = load(kOptMini + "/tokenizer.json");
  const int32_t ids[] = {-1, 1 << 30, tokenizer.idLimit()};
  EXPECT_EQ(tokenizer.decode(ids), "");
}

TEST(Tokenizer, AMegabyteWordIsEncodedInReasonableTime) {
  const Tokenizer tokenizer = load(kOptMini + "/tokenizer.json");
  const std::string word(1 << 20, 'a');
  auto ids = tokenizer.encode(word, false);
  ASSERT_TRUE(ids.ok());
  EXPECT_EQ(tokenizer.decode(*ids), word);
}

/// opt-mini's vocabulary and merges as two files, read with the text of a
/// tokenizer_config.json; "" is none.
static Result<Tokenizer> fromTwoFiles(const std::string &config) {
  const Json root = Json::parse(readFile(kOptMini + "/tokenizer.json"));
  std::string merges = "#version: 0.2\n";
  for (const Json &merge : root["model"]["merges"])
    merges += merge[0].get<std::string>() + " " + merge[1].get<std::string>() +
              "\r\n";
  FORESIGHT_TRY(const std::string text,
                tokenizerJsonFromVocab(root["model"]["vocab"].dump(),
                                       "vocab.json", merges, "merges.txt",
                                       config, "tokenizer_config.json"));
  return Tokenizer::fromJson(text, "vocab.json");
}

TEST(Tokenizer, VocabAndMergesEqualTokenizerJson) {
  const Result<Tokenizer> made = fromTwoFiles("");
  ASSERT_TRUE(made.ok()) << made.error().message;
  const Tokenizer whole = load(kOptMini + "/tokenizer.json");
  for (const char *sample : {"The old man</s> looked at the sea and", " x\n"})
    EXPECT_EQ(*made->encode(sample), *whole.encode(sample));
}

/// The tokenizer_config.json of facebook/opt-*, with its objects; ids are those
/// of AutoTokenizer (transformers 5.24) on the same three files.
TEST(Tokenizer, ConfigOfOptSaysWhatIsSpecialAndInFront) {
  const std::string token = R"({"content": "</s>", "single_word": false,
      "lstrip": false, "rstrip": false, "normalized": true,
      "__type": "AddedToken"})";
  const Result<Tokenizer> made =
      fromTwoFiles(R"({"errors": "replace", "unk_token": )" + token +
                   R"(, "bos_token": )" + token + R"(, "eos_token": )" + token +
                   R"(, "pad_token": {"content": "<pad>", "normalized": true},
          "add_prefix_space": false, "add_bos_token": true,
          "special_tokens_map_file": null,
          "tokenizer_class": "GPT2Tokenizer"})");
  ASSERT_TRUE(made.ok()) << made.error().message;
  using Ids = std::vector<int32_t>;
  for (const auto &[text, ids] :
       {std::pair("Hello world", Ids{2, 43, 567, 82, 892}),
        std::pair("a </s> b<pad>c", Ids{2, 68, 224, 2, 273, 1, 70}),
        std::pair("<s>x<unk>", Ids{2, 31, 86, 33, 91, 31, 3971, 33}),
        std::pair(" x", Ids{2, 224, 91}),
        std::pair("\u00e9\U0001f600", Ids{2, 4652, 176, 257, 250, 226})})
    EXPECT_EQ(*made->encode(text), ids) << text;
  EXPECT_TRUE(made->isSpecial(1));
  EXPECT_TRUE(made->isSpecial(2));
  EXPECT_FALSE(made->isSpecial(0));
}

TEST(Tokenizer, ConfigMayPutNothingInFrontAndABlankBefore) {
  const Result<Tokenizer> plain =
      fromTwoFiles(R"({"eos_token": "<unk>", "bos_token": null})");
  ASSERT_TRUE(plain.ok()) << plain.error().message;
  EXPECT_EQ(*plain->encode(" x"), (std::vector<int32_t>{224, 91}));
  EXPECT_EQ(*plain->encode("<unk>"), std::vector<int32_t>{3});
  const Result<Tokenizer> blank = fromTwoFiles(R"({"add_prefix_space": true})");
  ASSERT_TRUE(blank.ok()) << blank.error().message;
  EXPECT_EQ(*blank->encode("x"), (std::vector<int32_t>{224, 91}));
}

TEST(Tokenizer, ConfigOfAnotherTokenizerIsRefused) {
  struct Case {
    const char *config;
    ErrorCode code;
    const char *message;
  };
  for (const Case &c :
       {Case{R"({"tokenizer_class": "RobertaTokenizer"})",
             ErrorCode::Unsupported, "tokenizer_class is RobertaTokenizer"},
        Case{R"({"add_bos_token": true, "bos_token": "<bos>"})",
             ErrorCode::BadInput, "'<bos>' is not in the vocabulary"},
        Case{"[]", ErrorCode::BadInput, "expected an object"},
        Case{R"({"eos_token": 7})", ErrorCode::BadInput, "eos_token"}}) {
    const Result<Tokenizer> made = fromTwoFiles(c.config);
    ASSERT_FALSE(made.ok()) << c.config;
    EXPECT_EQ(made.error().code, c.code) << c.config;
    EXPECT_THAT(made.error().message, HasSubstr("tokenizer_config.json: "));
    EXPECT_THAT(made.error().message, HasSubstr(c.message));
  }
}

TEST(Tokenizer, MergesFileLineWithoutTwoTokensIsNamed) {
  Result<std::string> text = tokenizerJsonFromVocab(
      R"({"a":0,"b":1,"ab":2})", "vocab.json", "#version\na b\na\n", "m.txt");
  ASSERT_FALSE(text.ok());
  EXPECT_THAT(text.error().message, HasSubstr("m.txt: line 3"));
}

TEST(Tokenizer, FolderWithoutTokenizerIsAnError) {
  Result<Tokenizer> made = Tokenizer::fromFolder(kFixtures);
  ASSERT_FALSE(made.ok());
  EXPECT_EQ(made.error().code, ErrorCode::BadInput);
  EXPECT_TRUE(Tokenizer::fromFolder(kOptMini).ok());
}

//===----------------------------------------------------------------------===//
// Broken files
//===----------------------------------------------------------------------===//

struct Broken {
  const char *name;
  const char *patch; ///< JSON merge patch of a good tokenizer
  ErrorCode code;
  const char *says;
};

class BrokenTokenizer : public testing::TestWithParam<Broken> {};

TEST_P(BrokenTokenizer, IsRefusedWithItsReason) {
  Json root = Json::parse(R"({
    "added_tokens": [{"id": 3, "content": "</s>", "special": true}],
    "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false},
    "decoder": {"type": "ByteLevel"},
    "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2},
              "merges": ["a b"]}})");
  ASSERT_TRUE(Tokenizer::fromJson(root.dump(), "good").ok());
  root.merge_patch(Json::parse(GetParam().patch));
  Result<Tokenizer> made = Tokenizer::fromJson(root.dump(), "t.json");
  ASSERT_FALSE(made.ok());
  EXPECT_EQ(made.error().code, GetParam().code) << made.error().message;
  EXPECT_THAT(made.error().message, HasSubstr("t.json"));
  EXPECT_THAT(made.error().message, HasSubstr(GetParam().says));
}

constexpr auto kBad = ErrorCode::BadInput;
constexpr auto kUnsupported = ErrorCode::Unsupported;
INSTANTIATE_TEST_SUITE_P(
    Files, BrokenTokenizer,
    testing::Values(
        Broken{"NoModel", R"({"model": null})", kBad, "model"},
        Broken{"OtherModel", R"({"model": {"type": "Unigram"}})", kUnsupported,
               "'Unigram'"},
        Broken{"NoVocab", R"({"model": {"vocab": null}})", kBad, "vocab"},
        Broken{"VocabList", R"({"model": {"vocab": ["a"]}})", kBad, "vocab"},
        Broken{"NegativeId", R"({"model": {"vocab": {"c": -4}}})", kBad, "-4"},
        Broken{"HugeId", R"({"model": {"vocab": {"c": 4000000000}}})", kBad,
               "4000000000"},
        Broken{"TextId", R"({"model": {"vocab": {"c": "7"}}})", kBad, "'c'"},
        Broken{"SameId", R"({"model": {"vocab": {"c": 2}}})", kBad, "same id"},
        Broken{"MergeOfUnknown", R"({"model": {"merges": ["a b", "a x"]}})",
               kBad, "'x'"},
        Broken{"MergeWithoutResult", R"({"model": {"merges": ["b a"]}})", kBad,
               "'ba'"},
        Broken{"MergeOfThree", R"({"model": {"merges": ["a b c"]}})", kBad,
               "merge 0"},
        Broken{"MergeNumber", R"({"model": {"merges": [7]}})", kBad, "merge 0"},
        Broken{"Dropout", R"({"model": {"dropout": 0.1}})", kUnsupported,
               "dropout"},
        Broken{"Suffix", R"({"model": {"end_of_word_suffix": "</w>"}})",
               kUnsupported, "</w>"},
        Broken{"UnknownToken", R"({"model": {"unk_token": "<unk>"}})", kBad,
               "<unk>"},
        Broken{"Normalizer", R"({"normalizer": {"type": "NFC"}})", kUnsupported,
               "'NFC'"},
        Broken{"PreTokenizer", R"({"pre_tokenizer": {"type": "Whitespace"}})",
               kUnsupported, "'Whitespace'"},
        Broken{"NoPreTokenizer", R"({"pre_tokenizer": null})", kUnsupported,
               "pre_tokenizer"},
        Broken{"Decoder", R"({"decoder": {"type": "WordPiece"}})", kUnsupported,
               "'WordPiece'"},
        Broken{"AddedTwice",
               R"({"added_tokens": [{"id": 9, "content": "ab"}]})", kBad,
               "two ids"},
        Broken{"AddedText", R"({"added_tokens": [{"id": 9}]})", kBad,
               "added_tokens[0]"},
        Broken{"SingleWord",
               R"({"added_tokens": [{"id": 9, "content": "x",
                                     "single_word": true}]})",
               kUnsupported, "single_word"},
        Broken{"TemplateToken",
               R"({"post_processor": {"type": "TemplateProcessing", "single":
                 [{"SpecialToken": {"id": "</s>"}}, {"Sequence": {"id": "A"}}]}})",
               kBad, "special_tokens"},
        Broken{"TemplateId",
               R"({"post_processor": {"type": "TemplateProcessing", "single":
                 [{"SpecialToken": {"id": "</s>"}}, {"Sequence": {"id": "A"}}],
                 "special_tokens": {"</s>": {"ids": [99]}}}})",
               kBad, "99"},
        Broken{"TemplateHugeId",
               R"({"post_processor": {"type": "TemplateProcessing", "single":
                 [{"SpecialToken": {"id": "</s>"}}, {"Sequence": {"id": "A"}}],
                 "special_tokens": {"</s>": {"ids": [4294967296]}}}})",
               kBad, "adds the id 4294967296"},
        Broken{"TemplateWithoutText",
               R"({"post_processor": {"type": "TemplateProcessing",
                                      "single": []}})",
               kBad, "no place"},
        Broken{"PostProcessor", R"({"post_processor": {"type": "Magic"}})",
               kUnsupported, "'Magic'"}),
    [](const auto &info) { return info.param.name; });

TEST(AddedTokens, TheLongestOfManyThatBeginAlikeIsFound) {
  Json root = Json::parse(R"({"pre_tokenizer": {"type": "ByteLevel"},
    "model": {"type": "BPE", "vocab": {"a": 0}, "merges": []}})");
  constexpr int kCount = 20000;
  for (int i = 0; i < kCount; ++i)
    root["added_tokens"].push_back(
        {{"id", i + 1}, {"content", "<" + std::to_string(i)}});
  Result<Tokenizer> made = Tokenizer::fromJson(root.dump(), "many");
  ASSERT_TRUE(made.ok()) << made.error().message;
  EXPECT_EQ(*made->encode("<12345<7", false), (std::vector{12346, 8}));
}

TEST(BrokenTokenizerText, EveryPrefixOfAFileIsAnErrorAndNoCrash) {
  const std::string text = readFile(kFixtures + "pairs.tokenizer.json");
  for (size_t length = 0; length + 2 < text.size(); length += 97)
    EXPECT_FALSE(Tokenizer::fromJson(text.substr(0, length), "t.json").ok());
}

TEST(BrokenTokenizerText, AByteWithoutATokenIsNamed) {
  Result<Tokenizer> made = Tokenizer::fromJson(
      R"({"pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false},
          "model": {"vocab": {"a": 0}, "merges": []}})",
      "t.json");
  ASSERT_TRUE(made.ok()) << made.error().message;
  auto ids = made->encode("ab");
  ASSERT_FALSE(ids.ok());
  EXPECT_THAT(ids.error().message, HasSubstr("byte 98"));
}
