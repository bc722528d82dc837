//===- ExternalData.cpp - Fuzzes the table of external data ---------------===//
//
// Input: lines `LOCATION TAB OFFSET TAB LENGTH TAB BYTES`, one a tensor.
//
//===----------------------------------------------------------------------===//

#include "Fuzz.h"
#include "TempFolder.h"

#include "foresight/Import/Onnx/ExternalData.h"

#include <charconv>
#include <filesystem>
#include <vector>

using namespace foresight;
using namespace foresight::fuzz;
namespace fs = std::filesystem;

/// A model's folder with data files, links that stay in it and links that do
/// not, beside a folder that must not be read.
static const test::TempFolder &model() {
  static const test::TempFolder folder;
  [[maybe_unused]] static const bool made = [] {
    fs::create_directories(folder / "model/sub");
    fs::create_directories(folder / "outside");
    folder.write("model/w.bin", std::string(100, 'w'));
    folder.write("model/sub/v.bin", std::string(50, 'v'));
    folder.write("outside/secret", std::string(100, 's'));
    fs::create_symlink("w.bin", folder / "model/same");
    fs::create_symlink("../outside/secret", folder / "model/leak");
    fs::create_symlink("../outside", folder / "model/leaks");
    fs::create_symlink("nothing", folder / "model/dangling");
    fs::create_symlink("loop", folder / "model/loop");
    return true;
  }();
  return folder;
}

static int64_t numberOf(std::string_view text) {
  int64_t value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

/// The text up to `end`, which is taken off it.
static std::string_view take(std::string_view &text, char end) {
  const size_t at = std::min(text.find(end), text.size());
  const std::string_view part = text.substr(0, at);
  text.remove_prefix(std::min(at + 1, text.size()));
  return part;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static const std::string root = fs::canonical(model() / "model").string();
  onnx::ExternalData table(model() / "model");
  struct Range {
    std::string file;
    int64_t begin, end;
  };
  std::vector<Range> accepted;
  std::string_view rest = textOf(data, size);
  while (!rest.empty() && accepted.size() < 100) {
    std::string_view line = take(rest, '\n');
    const std::string_view location = take(line, '\t');
    const int64_t offset = numberOf(take(line, '\t')),
                  length = numberOf(take(line, '\t')), bytes = numberOf(line);
    // A shape gives its bytes: never a negative number.
    auto range = table.resolve("t", {location.data(), location.size()}, offset,
                               length, bytes < 0 ? 0 : bytes);
    if (!range) {
      expect(!llvm::toString(range.takeError()).empty(), "an error has a text");
      continue;
    }
    std::error_code failure;
    const fs::path real = fs::canonical(range->file, failure);
    expect(!failure, "a file that was accepted is there", range->file);
    expect(real.string().starts_with(root + "/"),
           "no file outside the model's folder is read", real.string());
    const int64_t end = range->offset + range->bytes;
    expect(range->offset >= 0 &&
               end <= static_cast<int64_t>(fs::file_size(real)),
           "a range lies in its file", range->file);
    if (range->bytes == 0)
      continue;
    for (const Range &other : accepted)
      expect(other.file != real || other.end <= range->offset ||
                 other.begin >= end ||
                 (other.begin == range->offset && other.end == end),
             "ranges are the same or apart", range->file);
    accepted.push_back({real, range->offset, end});
  }
  return 0;
}
