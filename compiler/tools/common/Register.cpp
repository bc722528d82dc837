//===- Register.cpp - Everything the MLIR tools know ----------------------===//

#include "Register.h"

#include "foresight/Conversion/ForesightToCpu/ForesightToCpu.h"
#include "foresight/Conversion/ForesightToGpu/ForesightToGpu.h"
#include "foresight/Dialect/Foresight.h"
#include "foresight/Import/Onnx/Onnx.h"
#include "foresight/Pipelines/Pipelines.h"
#include "foresight/Raise/Raise.h"
#include "foresight/Transforms/Passes.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/ControlFlow/IR/ControlFlow.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/DialectRegistry.h"
#include "mlir/Transforms/Passes.h"

void foresight::registerForesightDialects(mlir::DialectRegistry &registry) {
  registry.insert<ForesightDialect, onnx::OnnxDialect>();
  registry.insert<mlir::arith::ArithDialect, mlir::cf::ControlFlowDialect,
                  mlir::func::FuncDialect, mlir::LLVM::LLVMDialect,
                  mlir::math::MathDialect, mlir::memref::MemRefDialect,
                  mlir::NVVM::NVVMDialect, mlir::scf::SCFDialect,
                  mlir::vector::VectorDialect>();
}

void foresight::registerForesightPasses() {
  mlir::registerTransformsPasses();
  registerRaisePass();
  registerForesightTransformsPasses();
  registerForesightPipelines();
  registerForesightToCpuPasses();
  registerForesightToGpuPasses();
}
