//===- CpuVariants.cpp - Instruction sets that code is generated for ------===//

#include "foresight/Target/Cpu/CpuTarget.h"

#include "llvm/ADT/StringMap.h"
#include "llvm/TargetParser/Host.h"

using namespace mlir;
using namespace foresight;

static const std::vector<CpuVariant> &allVariants() {
  // Best last. Features are those that the emitters use, not all of the level.
  static const std::vector<CpuVariant> variants = {
      {"x86-64-v3", "x86-64-v3", {"avx2", "fma", "f16c", "bmi", "bmi2"}, 8},
      {"x86-64-v4",
       "x86-64-v4",
       {"avx2", "fma", "f16c", "bmi", "bmi2", "avx512f", "avx512bw", "avx512dq",
        "avx512vl"},
       16},
  };
  return variants;
}

const CpuVariant *foresight::findCpuVariant(StringRef name) {
  for (const CpuVariant &variant : allVariants())
    if (variant.name == name)
      return &variant;
  return nullptr;
}

FailureOr<std::vector<CpuVariant>> foresight::cpuVariants(StringRef target,
                                                          std::string &error) {
  if (target == "cpu")
    return allVariants();
  StringRef name = target;
  if (!name.consume_front("cpu:")) {
    error = "target '" + target.str() +
            "' is not a CPU: use cpu, "
            "cpu:x86-64-v3, cpu:x86-64-v4 or cpu:native";
    return failure();
  }
  if (name == "native") {
    llvm::StringMap<bool> host = llvm::sys::getHostCPUFeatures();
    for (const CpuVariant &variant : llvm::reverse(allVariants()))
      if (llvm::all_of(variant.features, [&](const std::string &feature) {
            return host.lookup(feature);
          }))
        return std::vector<CpuVariant>{variant};
    error = "this machine runs none of the CPU variants: it lacks AVX2, FMA or "
            "F16C";
    return failure();
  }
  if (const CpuVariant *variant = findCpuVariant(name))
    return std::vector<CpuVariant>{*variant};
  error = "there is no CPU variant '" + name.str() +
          "': use x86-64-v3, x86-64-v4 or native";
  return failure();
}
