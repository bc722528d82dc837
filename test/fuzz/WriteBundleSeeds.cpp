//===- WriteBundleSeeds.cpp - The test bundle and its manifest as seeds ---===//
//
//   write-bundle-seeds FOLDER      writes FOLDER/bundle and FOLDER/manifest
//
//===----------------------------------------------------------------------===//

#include "TestBundle.h"

#include <filesystem>

using namespace foresight;
using namespace foresight::test;

/// A manifest with the members that only other devices and models have: a KV
/// cache, a low-bit copy, weights that the device makes, launches.
static Json withRareMembers(Json manifest) {
  manifest["buffers"].push_back(
      {{"name", "kv.0"},
       {"kind", "state"},
       {"element", "f16"},
       {"columns", 2048},
       {"rows", 2},
       {"row_bytes", 4096},
       {"kv", {{"heads", 1}, {"head_dim", 16}, {"capacity", 32}}}});
  manifest["weights"].push_back(
      {{"name", "copy"},
       {"element", "low_bit"},
       {"bits", 4},
       {"shape", {64, 64}},
       {"offset", 32768},
       {"bytes", 32768},
       {"tensors", {"fc1"}},
       {"synthetic", {{"seed", 1}, {"mean", 0.0}, {"deviation", 1.0}}},
       {"quantised", {{"weight", 2}, {"bias", 3}, {"gamma", 1}, {"beta", 1}}}});
  manifest["kernels"][0]["launch"] = {{"entry", "embed"},  {"blocks", 1},
                                      {"per_token", true}, {"blocks_per_sm", 0},
                                      {"threads", 256},    {"shared_bytes", 0},
                                      {"overlaps", false}};
  return manifest;
}

int main(int argc, char **argv) {
  if (argc != 2)
    return 2;
  const std::filesystem::path folder = argv[1];
  std::filesystem::create_directories(folder / "bundle");
  std::filesystem::create_directories(folder / "manifest");
  TestModel model;
  writeFile(folder / "bundle/test", model.image().bytes());
  // Short: many changes a second.
  for (const char *entry : {"decode", "decode_dense"}) {
    Json &stages = model.manifest["entries"][entry]["stages"];
    stages.erase(stages.begin() + 3, stages.end());
  }
  writeFile(folder / "manifest/short", model.manifest.dump());
  writeFile(folder / "manifest/rare", withRareMembers(model.manifest).dump());
  return 0;
}
