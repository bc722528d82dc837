//===- CudaVariants.cpp - GPUs that code is generated for -----------------===//

#include "foresight/Target/Cuda/CudaTarget.h"

using namespace mlir;
using namespace foresight;

FailureOr<CudaVariant> foresight::cudaVariant(StringRef target,
                                              std::string &error) {
  // PTX of an older chip runs on every newer one; the version is the oldest
  // that knows the chip and the cache hints of loads, so that old drivers take
  // it.
  static const std::vector<CudaVariant> variants = {
      {"sm_80", 80, "ptx74"},   {"sm_86", 86, "ptx74"},
      {"sm_89", 89, "ptx78"},   {"sm_90", 90, "ptx78"},
      {"sm_100", 100, "ptx86"}, {"sm_103", 103, "ptx88"},
      {"sm_120", 120, "ptx87"}, {"sm_121", 121, "ptx88"}};
  StringRef name = target == "cuda" ? "sm_90" : target;
  name.consume_front("cuda:");
  for (const CudaVariant &variant : variants)
    if (variant.name == name)
      return variant;
  error = "there is no CUDA target '" + target.str() +
          "': use cuda or cuda:NAME"
          ", NAME one of";
  for (const CudaVariant &variant : variants)
    error += " " + variant.name;
  return failure();
}
