//===- ExternalData.cpp - Where a tensor's bytes may lie ------------------===//

#include "foresight/Import/Onnx/ExternalData.h"

#include "llvm/ADT/SmallString.h"
#include "llvm/ADT/Twine.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/Path.h"

using namespace llvm;
using namespace foresight::onnx;
namespace path = llvm::sys::path;

static Error error(const Twine &message) {
  return createStringError(inconvertibleErrorCode(), message);
}

/// Whether `inner`, an absolute path without links, lies under `outer`.
static bool isUnder(StringRef inner, StringRef outer) {
  while (outer.size() > 1 && outer.ends_with("/"))
    outer = outer.drop_back();
  return inner.starts_with(outer) &&
         (outer == "/" || inner.size() == outer.size() ||
          inner[outer.size()] == '/');
}

/// The `blobs` folder beside `snapshots`, if `folder` lies in a snapshot of a
/// Hugging Face hub cache (`MODEL/snapshots/REVISION/...`); else nothing.
static std::string hubBlobs(StringRef folder) {
  for (StringRef at = folder; !at.empty(); at = path::parent_path(at)) {
    StringRef parent = path::parent_path(at);
    if (path::filename(parent) != "snapshots")
      continue;
    SmallString<256> blobs(path::parent_path(parent));
    path::append(blobs, "blobs");
    return std::string(blobs);
  }
  return {};
}

ExternalData::ExternalData(StringRef folder, bool anyLinks)
    : folder(folder), anyLinks(anyLinks) {}

Expected<std::string> ExternalData::contained(StringRef location,
                                              StringRef file) {
  SmallString<256> real, realFolder;
  if (std::error_code code = sys::fs::real_path(file, real))
    return error("its data file '" + file +
                 "' cannot be read: " + code.message());
  if (std::error_code code =
          sys::fs::real_path(folder.empty() ? "." : folder, realFolder))
    return error("the folder '" + folder +
                 "' cannot be read: " + code.message());
  std::string blobs = hubBlobs(realFolder);
  if (anyLinks || isUnder(real, realFolder) ||
      (!blobs.empty() && isUnder(real, blobs)))
    return std::string(real);
  return error(
      "its data file '" + location + "' is a link to '" + real +
      "', outside the model's folder; copy the file beside the model, or say "
      "--allow-links if you trust where the model is from");
}

Expected<ExternalData::File *> ExternalData::open(StringRef location) {
  if (File *known = byLocation.lookup(location))
    return known;
  if (location.empty())
    return error("its external data name no file");
  if (location.contains('\0'))
    return error("its external data name a file with a zero byte");
  bool leaves = path::is_absolute(location);
  for (auto part = path::begin(location), end = path::end(location);
       part != end; ++part)
    leaves |= *part == "..";
  if (leaves)
    return error("its data file '" + location +
                 "' is outside the model's folder, which is not allowed");
  SmallString<256> file(folder);
  path::append(file, location);
  sys::fs::file_status status;
  if (sys::fs::status(file, status) || !sys::fs::exists(status))
    return error("its data file '" + file +
                 "' is missing; put it beside the model");
  if (!sys::fs::is_regular_file(status))
    return error("its data file '" + file + "' is not a regular file");
  Expected<std::string> real = contained(location, file);
  if (!real)
    return real.takeError();
  auto [entry, isNew] = files.try_emplace(*real);
  if (isNew)
    entry->second = {std::string(file), status.getSize(), {}};
  return byLocation[location] = &entry->second;
}

Expected<FileRange> ExternalData::resolve(StringRef tensor, StringRef location,
                                          int64_t offset, int64_t length,
                                          int64_t bytes) {
  Expected<File *> file = open(location);
  if (!file)
    return file.takeError();
  if (offset < 0)
    return error("its offset " + Twine(offset) + " in '" + location +
                 "' is negative");
  if (length >= 0 && length != bytes)
    return error("it has " + Twine(bytes) + " bytes, but the model says " +
                 Twine(length) + " are stored in '" + location + "'");
  uint64_t size = (*file)->size;
  if (static_cast<uint64_t>(offset) > size ||
      static_cast<uint64_t>(bytes) > size - static_cast<uint64_t>(offset))
    return error("it needs " + Twine(bytes) + " bytes at offset " +
                 Twine(offset) + " of '" + (*file)->path + "', which has " +
                 Twine(size) + " bytes: the file is short or of another model");
  FileRange range{(*file)->path, offset, bytes};
  if (bytes == 0)
    return range;
  // Tied weights name the same range; anything else that shares bytes is a
  // model whose data file was overwritten by another's.
  auto &ranges = (*file)->ranges;
  int64_t rangeEnd = offset + bytes;
  auto after = ranges.lower_bound(offset);
  if (after != ranges.end() && after->first == offset) {
    if (after->second.first == rangeEnd)
      return range;
  } else if (after != ranges.begin() &&
             std::prev(after)->second.first > offset) {
    --after;
  }
  if (after != ranges.end() && after->first < rangeEnd)
    return error("its bytes " + Twine(offset) + " to " + Twine(rangeEnd) +
                 " of '" + location + "' overlap those of '" +
                 after->second.second + "'");
  ranges[offset] = {rangeEnd, tensor.str()};
  return range;
}
