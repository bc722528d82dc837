//===- GpuHistory.h - Groups of lanes over a head's history -----*- C++ -*-===//
//
// What attention by dot products has in common, for one token or a prompt's:
// lanes form groups that hold one cache row at 16 bytes a lane; a group keeps a
// running maximum of its scores, their sum and weighted values, which are
// joined in a fixed order at the end.
//
//===----------------------------------------------------------------------===//
#ifndef FORESIGHT_LIB_FORESIGHTTOGPU_GPUHISTORY_H
#define FORESIGHT_LIB_FORESIGHTTOGPU_GPUHISTORY_H

#include "GpuKernel.h"

namespace foresight {

class HistoryEmitter {
protected:
  using Value = mlir::Value;
  using Values = CodeBuilder::Values;

  explicit HistoryEmitter(GpuFrame &frame);

  /// Below every score; finite, so that differences are numbers.
  static constexpr double kLowest = -1e30;

  /// What a group knows of the history it has seen.
  struct State {
    Value best, sum;
    Values values;
    Values flat() const {
      Values all{best, sum};
      all.append(values);
      return all;
    }
    static State from(mlir::ValueRange all) {
      return {all[0], all[1], Values(all.drop_front(2))};
    }
  };
  State nothing() { return {c.f32(kLowest), c.f32(0), Values(per, c.f32(0))}; }

  void findLanes();
  /// Of the head, in the sequence of the frame's token.
  void findCache();
  /// The elements of a vector of a cache row.
  Values elementsOf(Value words);
  /// This lane's elements of the head in a row of an argument; zero past the
  /// head dimension.
  Values ownElements(Value row);
  Value score(llvm::ArrayRef<Value> key);
  State add(const State &state, llvm::ArrayRef<Value> scores,
            llvm::ArrayRef<Values> rows);
  State join(const State &a, const State &b);
  /// Over the groups of a warp, by shuffles, to the warp's part of those that
  /// lie from `memory` on.
  void leaveWarpPart(State state, Value memory);
  /// A part that lies in memory: its maximum, its sum, and an element of its
  /// values, which lie from byte 16 on.
  struct Part {
    Value best, sum, value;
  };
  /// Element k over `count` parts, in their order, of which `known` are there,
  /// or all.
  Part joinParts(Value memory, int64_t count, Value known, Value k);
  void storeResult(Value k, Value x);

  GpuFrame &frame;
  GpuCode &c;
  AttentionOp op;
  KvCacheType cache;
  mlir::Type element;
  int64_t per, padded, parts, width, groups, rowBytes, partBytes;
  Value head, group, part, safePart, keys, values;
  Values query;
};

} // namespace foresight

#endif // FORESIGHT_LIB_FORESIGHTTOGPU_GPUHISTORY_H
