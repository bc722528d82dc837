//===- ManifestBuilder.h - State while a manifest is written ----*- C++ -*-===//
#ifndef FORESIGHT_TARGET_BUNDLE_MANIFESTBUILDER_H
#define FORESIGHT_TARGET_BUNDLE_MANIFESTBUILDER_H

#include "foresight/Target/Bundle/Manifest.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace foresight {

/// A buffer or weight by its index in the manifest; a kernel argument.
struct Argument {
  bool weight = false;
  int64_t index = -1;
};

class ManifestBuilder {
public:
  ManifestBuilder(mlir::ModuleOp module, const ManifestInputs &inputs)
      : module(module), symbols(module), inputs(inputs) {}

  mlir::FailureOr<OrderedJson> build();

private:
  // Manifest.cpp
  mlir::LogicalResult addWeights();
  mlir::LogicalResult addQuantised(WeightOp weight);
  mlir::LogicalResult addBuffers();
  void addKernels();
  OrderedJson model() const;

  // ManifestStages.cpp
  mlir::LogicalResult addEntry(mlir::func::FuncOp entry);
  mlir::LogicalResult addStage(LaunchOp launch, mlir::StringRef entry,
                               OrderedJson &stages);
  mlir::LogicalResult gemm(LaunchOp launch, KernelOp kernel,
                           OrderedJson &stage);
  /// The buffer that the workers of a kernel's launches share.
  int64_t sharedBuffer(mlir::StringRef kernel, int64_t bytes);
  int64_t addCounters(mlir::StringRef entry, mlir::StringRef stage,
                      int64_t units);
  mlir::FailureOr<Argument> argument(LaunchOp launch, mlir::Value value);

  // ManifestSelections.cpp
  mlir::LogicalResult addSelections(mlir::func::FuncOp decode,
                                    mlir::func::FuncOp dense);
  mlir::LogicalResult addSelection(LaunchOp launch, LaunchOp dense,
                                   int64_t layer);
  mlir::FailureOr<int64_t> indexOf(LaunchOp launch, mlir::Value inKernel,
                                   bool weight);

  KernelOp kernelOf(LaunchOp launch) {
    return symbols.lookup<KernelOp>(launch.getKernel());
  }

  mlir::ModuleOp module;
  mlir::SymbolTable symbols;
  const ManifestInputs &inputs;

  OrderedJson weights = OrderedJson::array();
  OrderedJson buffers = OrderedJson::array();
  OrderedJson kernels = OrderedJson::array();
  OrderedJson entries = OrderedJson::object();
  OrderedJson selections = OrderedJson::array();
  int64_t arenaBytes = 0;
  llvm::StringMap<int64_t> weightIndex, bufferIndex, kernelIndex, sharedIndex;
  /// Place of each launch in its entry's list of stages.
  llvm::DenseMap<mlir::Operation *, int64_t> stageIndex;
};

} // namespace foresight
#endif
