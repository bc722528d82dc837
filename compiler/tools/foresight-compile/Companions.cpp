//===- Companions.cpp - Files beside a model ------------------------------===//

#include "Companions.h"

#include "foresight/support/MappedFile.h"
#include "foresight/text/Tokenizer.h"

#include <filesystem>

using namespace foresight;
namespace fs = std::filesystem;

static Result<std::string> readText(const std::string &path) {
  FORESIGHT_TRY(MappedFile file, MappedFile::open(path));
  return std::string(reinterpret_cast<const char *>(file.data()), file.size());
}

std::string foresight::folderOf(const std::string &path) {
  std::error_code error;
  if (fs::is_directory(path, error))
    return path;
  std::string parent = fs::path(path).parent_path();
  return parent.empty() ? "." : parent;
}

Result<std::string> foresight::readTokenizer(const std::string &folder) {
  std::error_code error;
  std::string json = folder + "/tokenizer.json";
  std::string vocab = folder + "/vocab.json";
  std::string merges = folder + "/merges.txt";
  std::string text;
  if (fs::exists(json, error)) {
    FORESIGHT_TRY(text, readText(json));
  } else if (fs::exists(vocab, error) && fs::exists(merges, error)) {
    FORESIGHT_TRY(std::string vocabText, readText(vocab));
    FORESIGHT_TRY(std::string mergesText, readText(merges));
    FORESIGHT_TRY(text, text::tokenizerJsonFromVocab(vocabText, vocab,
                                                     mergesText, merges));
    json = vocab;
  } else {
    return std::string();
  }
  FORESIGHT_TRY([[maybe_unused]] auto usable,
                text::Tokenizer::fromJson(text, json));
  return text;
}
