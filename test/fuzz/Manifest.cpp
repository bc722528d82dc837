//===- Manifest.cpp - Fuzzes the manifest of a bundle ---------------------===//
//
// The input replaces the manifest of the runtime tests' bundle, whose checksums
// are made to fit.
//
//===----------------------------------------------------------------------===//

#include "BundleFrame.h"

using namespace foresight::fuzz;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  makeReady(withManifest(textOf(data, size)));
  return 0;
}
