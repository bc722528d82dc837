//===- Tokenizer.cpp - Byte-level BPE -------------------------------------===//
#include "foresight/text/Tokenizer.h"

#include "ByteAlphabet.h"
#include "PreTokenizer.h"
#include "TokenizerModel.h"
#include "UnicodeClasses.h"
#include "foresight/text/Utf8.h"

#include <algorithm>
#include <deque>

namespace foresight::text {

//===----------------------------------------------------------------------===//
// Added tokens
//===----------------------------------------------------------------------===//

void AddedTokenFinder::add(const AddedToken *token) {
  auto &bucket = tokens[static_cast<uint8_t>(token->content.front())];
  const auto shorter = std::upper_bound(
      bucket.begin(), bucket.end(), token,
      [](auto *a, auto *b) { return a->content.size() > b->content.size(); });
  bucket.insert(shorter, token);
}

AddedTokenFinder::Match AddedTokenFinder::find(std::string_view text,
                                               size_t from) const {
  for (size_t at = from; at < text.size(); ++at)
    for (const AddedToken *token : tokens[static_cast<uint8_t>(text[at])])
      if (text.substr(at).starts_with(token->content))
        return {at, at + token->content.size(), token};
  return {text.size(), text.size(), nullptr};
}

static size_t withoutTrailingSpace(std::string_view text) {
  size_t end = text.size();
  while (end > 0) {
    size_t start = end - 1;
    while (start > 0 && (static_cast<uint8_t>(text[start]) & 0xC0) == 0x80)
      --start;
    const uint32_t point = stepUtf8(text.substr(start, end - start)).codePoint;
    if (classOf(point) != CharacterClass::kSpace)
      break;
    end = start;
  }
  return end;
}

static size_t leadingSpace(std::string_view text) {
  size_t at = 0;
  while (at < text.size()) {
    const Utf8Step step = stepUtf8(text.substr(at));
    if (classOf(step.codePoint) != CharacterClass::kSpace)
      break;
    at += step.length;
  }
  return at;
}

//===----------------------------------------------------------------------===//
// Encoding
//===----------------------------------------------------------------------===//

namespace {

/// One call of `encode`. Words seen before are not merged again.
class Encoder {
public:
  explicit Encoder(const TokenizerModel &model)
      : model(model), merger(model.merges) {}

  Status run(std::string_view text) {
    return splitBy(model.plainTokens, text, [&](std::string_view part) {
      return splitBy(model.normalizedTokens, part,
                     [&](std::string_view rest) { return encodePlain(rest); });
    });
  }

  std::vector<int32_t> ids;

private:
  template <typename Rest>
  Status splitBy(const AddedTokenFinder &finder, std::string_view text,
                 Rest onRest) {
    size_t done = 0, from = 0;
    while (true) {
      AddedTokenFinder::Match match = finder.find(text, from);
      if (!match.token)
        break;
      if (match.token->stripsLeft)
        match.begin =
            std::max(done, withoutTrailingSpace(text.substr(0, match.begin)));
      if (match.token->stripsRight)
        match.end += leadingSpace(text.substr(match.end));
      if (match.begin > done)
        FORESIGHT_CHECK(onRest(text.substr(done, match.begin - done)));
      ids.push_back(match.token->id);
      done = from = match.end;
    }
    if (done < text.size())
      FORESIGHT_CHECK(onRest(text.substr(done)));
    return {};
  }

  Status encodePlain(std::string_view text) {
    if (model.addPrefixSpace && text.front() != ' ') {
      prefixed.push_back(" ");
      prefixed.back() += text;
      text = prefixed.back();
    }
    while (!text.empty()) {
      const size_t length = model.splitWords ? firstPiece(text) : text.size();
      FORESIGHT_CHECK(encodePiece(text.substr(0, length)));
      text.remove_prefix(length);
    }
    return {};
  }

  Status encodePiece(std::string_view piece) {
    // Longer words hardly come again.
    constexpr size_t kLongestKept = 64;
    const bool keep = piece.size() <= kLongestKept;
    if (keep)
      if (const auto found = seen.find(piece); found != seen.end()) {
        const auto [begin, count] = found->second;
        // Not a range insert: it would read from what it may move.
        for (size_t i = 0; i < count; ++i)
          ids.push_back(ids[begin + i]);
        return {};
      }
    const size_t begin = ids.size();
    FORESIGHT_CHECK(mergePiece(piece));
    if (keep)
      seen.emplace(piece, std::pair(begin, ids.size() - begin));
    return {};
  }

  Status mergePiece(std::string_view piece) {
    if (model.ignoreMerges)
      if (const auto whole = wholeToken(piece); whole >= 0) {
        ids.push_back(whole);
        return {};
      }
    symbols.clear();
    bool afterUnknown = false;
    for (const char c : piece) {
      const auto byte = static_cast<uint8_t>(c);
      int32_t id = model.byteIds[byte];
      const bool unknown = id < 0;
      if (unknown && model.unknownId < 0)
        return makeError(ErrorCode::Usage, model.source, ": byte ", int(byte),
                         " of the text has no token and the tokenizer has no "
                         "unknown token");
      if (!(unknown && afterUnknown && model.fuseUnknown))
        symbols.push_back(unknown ? model.unknownId : id);
      afterUnknown = unknown;
    }
    merger.merge(symbols);
    ids.insert(ids.end(), symbols.begin(), symbols.end());
    return {};
  }

  int32_t wholeToken(std::string_view piece) const {
    std::string token;
    for (const char c : piece)
      appendUtf8(token, characterOfByte(static_cast<uint8_t>(c)));
    const auto found = model.vocab.find(token);
    return found == model.vocab.end() ? -1 : found->second;
  }

  const TokenizerModel &model;
  Merger merger;
  std::vector<int32_t> symbols;
  /// Copies of parts of the text that a space was put in front of.
  std::deque<std::string> prefixed;
  /// Where the ids of a word stand in `ids`. Keys point into the text.
  std::unordered_map<std::string_view, std::pair<size_t, size_t>> seen;
};

} // namespace

Result<std::vector<int32_t>> Tokenizer::encode(std::string_view text,
                                               bool addSpecial) const {
  if (const size_t at = findInvalidUtf8(text); at != std::string_view::npos)
    return makeError(ErrorCode::Usage, "the text is not UTF-8: byte ", at,
                     " (value ", int(static_cast<uint8_t>(text[at])),
                     ") is not part of a character\n"
                     "convert the text to UTF-8 first, e.g. with iconv");
  Encoder encoder(*model);
  if (addSpecial)
    encoder.ids = model->before;
  FORESIGHT_CHECK(encoder.run(text));
  if (addSpecial)
    encoder.ids.insert(encoder.ids.end(), model->after.begin(),
                       model->after.end());
  return std::move(encoder.ids);
}

//===----------------------------------------------------------------------===//
// The rest
//===----------------------------------------------------------------------===//

std::string Tokenizer::decode(std::span<const int32_t> ids,
                              bool skipSpecial) const {
  std::string bytes;
  for (const int32_t id : ids)
    if (!(skipSpecial && isSpecial(id)))
      bytes += bytesOf(id);
  return replaceInvalidUtf8(bytes);
}

std::string_view Tokenizer::bytesOf(int32_t id) const {
  return id >= 0 && id < idLimit() ? std::string_view(model->bytes[id])
                                   : std::string_view();
}

bool Tokenizer::isSpecial(int32_t id) const {
  return id >= 0 && id < idLimit() && model->special[id];
}

std::optional<int32_t> Tokenizer::idOf(std::string_view token) const {
  const auto found = model->vocab.find(token);
  if (found == model->vocab.end())
    return std::nullopt;
  return found->second;
}

int32_t Tokenizer::idLimit() const {
  return static_cast<int32_t>(model->bytes.size());
}

Tokenizer::Tokenizer(std::unique_ptr<const TokenizerModel> model)
    : model(std::move(model)) {}
Tokenizer::Tokenizer(Tokenizer &&) noexcept = default;
Tokenizer &Tokenizer::operator=(Tokenizer &&) noexcept = default;
Tokenizer::~Tokenizer() = default;

Result<Tokenizer> Tokenizer::fromJson(std::string_view json,
                                      const std::string &source,
                                      ErrorCode code) {
  FORESIGHT_TRY(auto model, loadTokenizerModel(json, source, code));
  return Tokenizer(std::move(model));
}

} // namespace foresight::text
