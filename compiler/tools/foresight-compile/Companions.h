//===- Companions.h - Files beside a model ----------------------*- C++ -*-===//
#ifndef FORESIGHT_TOOLS_COMPILE_COMPANIONS_H
#define FORESIGHT_TOOLS_COMPILE_COMPANIONS_H

#include "foresight/support/Result.h"

#include <cstdint>
#include <string>

namespace foresight {

/// What the files beside a model say of its tokenizer.
struct Companion {
  std::string json;     ///< a tokenizer.json, if there is one that can be used
  std::string unusable; ///< otherwise why not; empty if there is none
  int64_t ids = 0;      ///< one more than the largest id
};

/// Reads tokenizer.json, or vocab.json and merges.txt, of `folder`. A damaged
/// file is an error now, not when the bundle is run; a tokenizer of a kind that
/// the runtime does not have is none.
Result<Companion> readTokenizer(const std::string &folder);

/// The folder that `path` lies in, or `path` itself if it is one.
std::string folderOf(const std::string &path);

} // namespace foresight
#endif
