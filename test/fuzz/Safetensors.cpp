//===- Safetensors.cpp - Fuzzes checkpoint files and shard indices --------===//

#include "Fuzz.h"
#include "SafetensorsWriter.h"
#include "TempFolder.h"

#include "foresight/support/Safetensors.h"

using namespace foresight;
using namespace foresight::fuzz;

/// Every accepted tensor lies in its file, and its shape fills it.
static void readAll(const Safetensors &file) {
  for (const auto &[name, tensor] : file.tensors()) {
    const auto bytes = tensor.file->slice(tensor.offset, tensor.bytes);
    expect(bytes.ok(), "a tensor lies in its file", name);
    auto count = elementCount(tensor.shape);
    expect(count.ok() &&
               static_cast<uint64_t>(*count * elementBytes(tensor.type)) ==
                   tensor.bytes,
           "a tensor has the bytes of its shape", name);
    [[maybe_unused]] volatile unsigned sum = 0;
    for (std::byte byte : *bytes)
      sum = sum + static_cast<unsigned>(byte);
  }
}

/// A folder with two shards, whose index is the input.
static const test::TempFolder &shards() {
  static const test::TempFolder folder;
  [[maybe_unused]] static const bool made = [] {
    test::SafetensorsWriter first, second;
    first.add("a.weight", {2, 3}, {1, 2, 3, 4, 5, 6});
    first.add("a.bias", {2}, {1, 2});
    second.add("b.weight", {1, 2}, {1, 2});
    folder.write("model-00001-of-00002.safetensors", first.bytes());
    folder.write("model-00002-of-00002.safetensors", second.bytes());
    return true;
  }();
  return folder;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  const auto codes = {ErrorCode::BadInput, ErrorCode::Unsupported};
  // A length that starts like an object is beyond any file: such an input is
  // an index.
  if (size > 0 && data[0] == '{') {
    shards().write("model.safetensors.index.json",
                   std::string(textOf(data, size)));
    auto index = Safetensors::openFolder(shards().str());
    if (index.ok())
      readAll(*index);
    else
      expectError(index.error(), shards().str(), codes);
    return 0;
  }
  static MemoryFile input;
  input.set(textOf(data, size));
  auto file = Safetensors::openFile(input.path());
  if (file.ok())
    readAll(*file);
  else
    expectError(file.error(), input.path(), codes);
  return 0;
}
