//===- Bundle.cpp - Fuzzes the frame of a bundle --------------------------===//

#include "BundleFrame.h"

using namespace foresight::fuzz;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  std::string bundle(textOf(data, size));
  makeReady(bundle);
  repairChecksums(bundle);
  makeReady(bundle);
  return 0;
}
