//===- Options.h - The command line of foresight-compile --------*- C++ -*-===//
#ifndef FORESIGHT_TOOLS_COMPILE_OPTIONS_H
#define FORESIGHT_TOOLS_COMPILE_OPTIONS_H

#include "foresight/Target/Cpu/CpuTarget.h"
#include "foresight/Target/Cuda/CudaTarget.h"
#include "foresight/Target/Packing/DeriveProfile.h"
#include "foresight/support/Result.h"

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace foresight {

/// What is written: each phase can be looked at.
enum class Emit { Onnx, Foresight, Scheduled, Llvm, Object, Bundle, Exe };

struct CompileOptions {
  std::string input;  ///< a file or folder; empty with `shape`
  std::string output; ///< "-" is standard output
  Emit emit = Emit::Bundle;

  std::string shape;
  uint64_t seed = 0;
  double density = 0.075;

  Sparsity sparsity = Sparsity::Exact;
  double margin = 4;
  std::string profile;
  std::string verify;        ///< a reference that the bundle is compared with
  std::string predictors;    ///< a file of low-rank predictors
  int64_t predictorRank = 0; ///< of synthetic ones; 0: none
  std::string dtype = "auto";
  int64_t maxSeq = 0;
  int64_t maxBatch = 1;
  std::string target = "cpu";
  std::vector<CpuVariant> variants; ///< for a CPU
  std::optional<CudaVariant> cuda;  ///< for a GPU
  bool cubin = true;                ///< where ptxas is

  std::string dump;        ///< a folder for every phase
  bool allowLinks = false; ///< weight files may lie anywhere
  bool tieHead = false;    ///< hidden states get the embedding as their head
  bool check = false;      ///< say what the model is, and no more
  bool explain = false;
  bool quiet = false;
  bool help = false;
  bool version = false;

  /// The options by name, as the manifest keeps them.
  std::vector<std::pair<std::string, std::string>> record() const;
  std::string inputName() const { return shape.empty() ? input : shape; }
};

/// An error has the code Usage.
Result<CompileOptions> parseOptions(const std::vector<std::string> &arguments);

std::string usageText();

/// As --sparsity takes it.
std::string nameOf(Sparsity sparsity);

} // namespace foresight
#endif
