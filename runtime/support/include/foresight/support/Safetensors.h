//===- Safetensors.h - Reader of safetensors files --------------*- C++ -*-===//
//
// A file is: u64 header length, JSON header, data. Files are untrusted: the
// header's length, every dtype, shape and range is checked before use, ranges
// may not overlap, and a name may occur once.
//
//===----------------------------------------------------------------------===//
#ifndef FORESIGHT_SUPPORT_SAFETENSORS_H
#define FORESIGHT_SUPPORT_SAFETENSORS_H

#include "foresight/support/ElementType.h"
#include "foresight/support/MappedFile.h"

#include <map>
#include <memory>
#include <string>
#include <vector>

namespace foresight {

/// One tensor of a file. `offset` counts from the start of the file, so that it
/// can be written down as file + offset + bytes.
struct TensorInfo {
  ElementType type = ElementType::F32;
  std::vector<int64_t> shape;
  uint64_t offset = 0;
  uint64_t bytes = 0;
  std::shared_ptr<const MappedFile> file;

  const std::byte *data() const { return file->data() + offset; }
};

/// The tensors of one file or of a set of shards, by name.
class Safetensors {
public:
  /// Opens one `.safetensors` file.
  static Result<Safetensors> openFile(const std::string &path);
  /// Opens the shards of a `*.safetensors.index.json`. The set is what the
  /// index lists, and all of it must be there.
  static Result<Safetensors> openIndex(const std::string &path,
                                       bool anyLinks = false);
  /// Opens `model.safetensors.index.json` or `model.safetensors` of a folder,
  /// or its only `*.safetensors` file.
  /// `anyLinks`: files may be links to elsewhere than a hub cache's blobs.
  static Result<Safetensors> openFolder(const std::string &folder,
                                        bool anyLinks = false);

  const std::map<std::string, TensorInfo> &tensors() const { return byName; }
  const TensorInfo *find(const std::string &name) const;
  /// The shard that holds a tensor which the index does not list, or null.
  const std::string *findUnlisted(const std::string &name) const;
  /// Paths of the files, in the order they were opened.
  const std::vector<std::string> &files() const { return paths; }
  /// `__metadata__` of the (first) file.
  const std::map<std::string, std::string> &metadata() const { return meta; }
  /// What to call the whole in messages: the file, index or folder.
  const std::string &name() const { return source; }

private:
  Status add(const std::string &path);

  std::string source;
  std::vector<std::string> paths;
  std::map<std::string, TensorInfo> byName;
  std::map<std::string, std::string> unlisted;
  std::map<std::string, std::string> meta;
};

} // namespace foresight
#endif
