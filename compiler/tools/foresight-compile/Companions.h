//===- Companions.h - Files beside a model ----------------------*- C++ -*-===//
#ifndef FORESIGHT_TOOLS_COMPILE_COMPANIONS_H
#define FORESIGHT_TOOLS_COMPILE_COMPANIONS_H

#include "foresight/support/Result.h"

#include <string>

namespace foresight {

/// The text of a tokenizer.json for the model in `folder`: that file, or one
/// made of vocab.json and merges.txt; empty if there is neither. A tokenizer
/// that the runtime cannot use is an error now, not when the bundle is run.
Result<std::string> readTokenizer(const std::string &folder);

/// The folder that `path` lies in, or `path` itself if it is one.
std::string folderOf(const std::string &path);

} // namespace foresight
#endif
