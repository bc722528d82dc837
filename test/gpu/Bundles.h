//===- Bundles.h - What test/gpu/prepare compiled ---------------*- C++ -*-===//
#ifndef FORESIGHT_TEST_GPU_BUNDLES_H
#define FORESIGHT_TEST_GPU_BUNDLES_H

#include "Model.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <gtest/gtest.h>

namespace foresight::test {

/// The bundles in the folder that FORESIGHT_GPU_BUNDLES names.
inline std::vector<std::filesystem::path> allBundles() {
  std::vector<std::filesystem::path> found;
  const char *folder = std::getenv("FORESIGHT_GPU_BUNDLES");
  std::error_code error;
  if (folder)
    for (const auto &entry : std::filesystem::directory_iterator(folder, error))
      if (entry.path().extension() == ".fsb")
        found.push_back(entry.path());
  std::sort(found.begin(), found.end());
  return found;
}

inline std::string
nameOf(const testing::TestParamInfo<std::filesystem::path> &info) {
  std::string name = info.param.stem().string();
  for (char &c : name)
    c = std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
  return name;
}

} // namespace foresight::test
#endif
