//===- BufferPlan.h - Buffers of a module and where they lie ----*- C++ -*-===//
#ifndef FORESIGHT_TRANSFORMS_BUFFERPLAN_H
#define FORESIGHT_TRANSFORMS_BUFFERPLAN_H

#include "StageOrder.h"

#include "foresight/Target/TargetInfo.h"

#include "mlir/IR/SymbolTable.h"
#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/StringMap.h"

#include <map>

namespace foresight {

/// The buffers that all entries share. Filled entry by entry, then placed, then
/// emitted.
class BufferPlan {
public:
  struct Buffer {
    std::string name;
    std::string kind;
    mlir::Type type;
    int64_t rows = 0;
    int64_t rowBytes = 0;
    int64_t offset = 0;
    /// Elements of a row that are padding.
    int64_t padding = 0;

    int64_t bytes() const { return rows * rowBytes; }
  };

  explicit BufferPlan(const TargetInfo &target) : target(target) {}

  const Buffer &at(unsigned index) const { return buffers[index]; }

  /// The buffer called `name`, made or widened to hold values of `type` with up
  /// to `maxTokens` rows. A name that stands for something else in another
  /// entry is a diagnostic.
  mlir::FailureOr<unsigned> get(llvm::StringRef name, llvm::StringRef kind,
                                mlir::Type type, int64_t maxTokens,
                                mlir::Location loc);

  /// Notes which work buffers must not overlap in an entry, by the steps of it
  /// that touch each.
  void
  addConflicts(const std::map<unsigned, llvm::SmallVector<unsigned>> &touches,
               const StepOrder &order);

  /// Chooses the offsets of work buffers.
  void placeWork();

  mlir::LogicalResult emit(mlir::OpBuilder &builder, mlir::Location loc,
                           mlir::SymbolTable &symbols) const;

private:
  bool mayOverlap(unsigned a, unsigned b) const;
  bool mayReplace(unsigned a, unsigned b) const;
  int64_t firstFit(unsigned index, llvm::ArrayRef<unsigned> placed) const;

  const TargetInfo &target;
  std::vector<Buffer> buffers;
  llvm::StringMap<unsigned> byName;
  llvm::DenseSet<std::pair<unsigned, unsigned>> conflicts;
};

} // namespace foresight

#endif // FORESIGHT_TRANSFORMS_BUFFERPLAN_H
