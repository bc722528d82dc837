//===- ExternalData.h - Where a tensor's bytes may lie ----------*- C++ -*-===//
//
// The rules for external data: the file lies in the model's folder, the range
// lies in the file, and two tensors share a range entirely or not at all.
//
//===----------------------------------------------------------------------===//
#ifndef FORESIGHT_IMPORT_ONNX_EXTERNALDATA_H
#define FORESIGHT_IMPORT_ONNX_EXTERNALDATA_H

#include "llvm/ADT/StringMap.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/Support/Error.h"

#include <cstdint>
#include <map>
#include <string>

namespace foresight::onnx {

/// A range of a file that holds a tensor.
struct FileRange {
  std::string file;
  int64_t offset = 0;
  int64_t bytes = 0;
};

/// Resolves the external data of one model.
class ExternalData {
public:
  /// `folder` is where locations are relative to: the folder of the path that
  /// names the model, not of what that path may link to.
  /// `anyLinks`: links may lead out of it.
  explicit ExternalData(llvm::StringRef folder, bool anyLinks = false);

  /// Checks that `bytes` at `offset` of `location` are there and may be read.
  /// `length` is what the file says, or -1 if it says nothing. Remembers the
  /// range, so that a later tensor that overlaps it is refused.
  llvm::Expected<FileRange> resolve(llvm::StringRef tensor,
                                    llvm::StringRef location, int64_t offset,
                                    int64_t length, int64_t bytes);

private:
  /// A data file. Locations that lead to the same one share it.
  struct File {
    std::string path;
    uint64_t size = 0;
    /// Ranges in use by their offset: their end, and the tensor.
    std::map<int64_t, std::pair<int64_t, std::string>> ranges;
  };

  llvm::Expected<File *> open(llvm::StringRef location);
  /// The file that `path` leads to, without links.
  llvm::Expected<std::string> contained(llvm::StringRef location,
                                        llvm::StringRef path);

  std::string folder;
  bool anyLinks;
  llvm::StringMap<File *> byLocation;
  llvm::StringMap<File> files; ///< by real path
};

} // namespace foresight::onnx

#endif // FORESIGHT_IMPORT_ONNX_EXTERNALDATA_H
