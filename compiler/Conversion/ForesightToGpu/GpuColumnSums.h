//===- GpuColumnSums.h - Sums of columns, joined and finished ---*- C++ -*-===//
//
// What products of columns share: a block owns some columns, a group of lanes
// has 16 bytes a lane of a weight row's piece, and the groups' sums are joined
// in a fixed order.
//
//===----------------------------------------------------------------------===//
#ifndef FORESIGHT_LIB_FORESIGHTTOGPU_GPUCOLUMNSUMS_H
#define FORESIGHT_LIB_FORESIGHTTOGPU_GPUCOLUMNSUMS_H

#include "GpuKernel.h"

namespace foresight {

class GpuColumnSums {
public:
  using Values = CodeBuilder::Values;

  explicit GpuColumnSums(GpuFrame &frame);

  mlir::Type element;
  int64_t per; ///< elements of a lane
  int64_t lanesPerRow, groups, rowBytes;
  /// This lane's group, its place there and its piece of weight row 0.
  mlir::Value group, part, base;

  /// Asks for what is added to the sums. Behind the wait, and early: it comes
  /// while the sums are made.
  void readFollowing();
  /// Adds a lane's 16 bytes of a row times `input`.
  void add(Values &sums, mlir::Value loaded, mlir::Value input);
  /// Sums of this lane's columns over its group's rows, to results.
  void finish(llvm::ArrayRef<mlir::Value> sums);

private:
  GpuFrame &frame;
  GpuCode &c;
  ColumnLinearOp op;
  int64_t columns;
  mlir::Value parts, column;
  GpuLoaded following;
};

} // namespace foresight

#endif // FORESIGHT_LIB_FORESIGHTTOGPU_GPUCOLUMNSUMS_H
