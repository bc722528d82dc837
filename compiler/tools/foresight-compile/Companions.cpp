//===- Companions.cpp - Files beside a model ------------------------------===//

#include "Companions.h"

#include "foresight/text/Tokenizer.h"

#include <filesystem>

using namespace foresight;
namespace fs = std::filesystem;

std::string foresight::folderOf(const std::string &path) {
  std::error_code error;
  if (fs::is_directory(path, error))
    return path;
  std::string parent = fs::path(path).parent_path();
  return parent.empty() ? "." : parent;
}

Result<Companion> foresight::readTokenizer(const std::string &folder) {
  Companion result;
  auto read = [&]() -> Status {
    FORESIGHT_TRY(std::optional<text::TokenizerText> text,
                  text::readTokenizerText(folder));
    if (!text)
      return {};
    FORESIGHT_TRY(text::Tokenizer tokenizer,
                  text::Tokenizer::fromJson(text->json, text->source));
    result.json = std::move(text->json);
    result.ids = tokenizer.idLimit();
    return {};
  };
  Status status = read();
  if (!status.ok() && status.error().code != ErrorCode::Unsupported)
    return std::move(status).error();
  if (!status.ok())
    result.unusable = status.error().message;
  return result;
}
