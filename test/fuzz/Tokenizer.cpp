//===- Tokenizer.cpp - Fuzzes tokenizer files and texts -------------------===//
//
// Input: tokenizer.json, or vocab.json and merges.txt, then a text; the parts
// end at zero bytes.
//
//===----------------------------------------------------------------------===//

#include "Fuzz.h"

#include "foresight/text/Detokenizer.h"
#include "foresight/text/Tokenizer.h"
#include "foresight/text/Utf8.h"

#include <vector>

using namespace foresight;
using namespace foresight::fuzz;
using namespace foresight::text;

static void use(const Tokenizer &tokenizer, std::string_view text) {
  for (const bool special : {false, true}) {
    auto ids = tokenizer.encode(text, special);
    if (!ids.ok()) {
      expect(ids.error().code == ErrorCode::Usage,
             "a text that cannot be encoded is the caller's", text);
      continue;
    }
    std::string bytes;
    for (const int32_t id : *ids) {
      expect(id >= 0 && id < tokenizer.idLimit(),
             "an id is below the tokenizer's limit", text);
      bytes += tokenizer.bytesOf(id);
    }
    expect(findInvalidUtf8(tokenizer.decode(*ids)) == std::string_view::npos,
           "decoded text is UTF-8", text);
  }
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  std::vector<std::string_view> parts;
  std::string_view rest = textOf(data, size);
  while (parts.size() < 2) {
    const size_t end = std::min(rest.find('\0'), rest.size());
    parts.push_back(rest.substr(0, end));
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  const auto codes = {ErrorCode::BadInput, ErrorCode::Unsupported};
  std::string json(parts[0]);
  if (!parts[1].empty()) {
    auto made =
        tokenizerJsonFromVocab(parts[0], "vocab.json", parts[1], "merges.txt");
    if (!made.ok()) {
      const bool merges = made.error().message.starts_with("merges.txt");
      expectError(made.error(), merges ? "merges.txt" : "vocab.json", codes);
      return 0;
    }
    json = std::move(*made);
  }
  auto tokenizer = Tokenizer::fromJson(json, "tokenizer.json");
  if (!tokenizer.ok()) {
    expectError(tokenizer.error(), "tokenizer.json", codes);
    return 0;
  }
  use(*tokenizer, rest);
  use(*tokenizer, "The sea wasn't   </s><pad> 12\u00e9\n\t\u4e2d ");
  return 0;
}
