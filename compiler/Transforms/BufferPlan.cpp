//===- BufferPlan.cpp - Buffers of a module and where they lie ------------===//

#include "BufferPlan.h"

#include "Utils.h"

#include "foresight/Dialect/Foresight.h"

#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace foresight;

/// Bytes of a whole cache: sequence by sequence keys, then values, head by
/// head, a token's headDim elements padded to 16.
static int64_t cacheBytes(KvCacheType type) {
  int64_t width = llvm::alignTo(type.getHeadDim(), 16);
  return 2 * type.getSequences() * type.getHeads() * type.getCapacity() *
         width * type.getElementType().getIntOrFloatBitWidth() / 8;
}

/// A buffer for values of `type`, with no name yet.
static BufferPlan::Buffer describe(Type type, int64_t maxTokens,
                                   const TargetInfo &target) {
  BufferPlan::Buffer buffer;
  if (auto cache = dyn_cast<KvCacheType>(type)) {
    buffer.type = type;
    buffer.rows = 1;
    buffer.rowBytes = cacheBytes(cache);
    return buffer;
  }
  if (auto set = dyn_cast<IndexSetType>(type)) {
    int64_t words = setWords(set).getDimSize(1);
    buffer.type = setWords(set);
    buffer.rows = 1;
    buffer.rowBytes = llvm::alignTo(4 * words, target.alignment());
    buffer.padding = buffer.rowBytes / 4 - words;
    return buffer;
  }
  auto tensor = cast<RankedTensorType>(type);
  SmallVector<int64_t> shape(tensor.getShape());
  buffer.rows =
      ShapedType::isDynamic(shape.front()) ? maxTokens : shape.front();
  shape.front() = ShapedType::kDynamic;
  buffer.type = tensor.clone(shape);
  int64_t elementBytes = tensor.getElementTypeBitWidth() / 8;
  if (tensor.getRank() == 1) {
    buffer.rowBytes = elementBytes;
    return buffer;
  }
  int64_t columns = shape.back();
  int64_t padded = llvm::alignTo(columns, target.rowPadElements());
  buffer.padding = padded - columns;
  buffer.rowBytes = padded * elementBytes;
  return buffer;
}

FailureOr<unsigned> BufferPlan::get(StringRef name, StringRef kind, Type type,
                                    int64_t maxTokens, Location loc) {
  Buffer wanted = describe(type, maxTokens, target);
  auto [found, inserted] = byName.try_emplace(name, buffers.size());
  if (inserted) {
    wanted.name = name.str();
    wanted.kind = kind.str();
    buffers.push_back(wanted);
    return found->second;
  }
  Buffer &buffer = buffers[found->second];
  if (buffer.type != wanted.type || buffer.kind != kind)
    return emitError(loc) << "'" << name << "' is a " << kind << " buffer of "
                          << wanted.type << " here but a " << buffer.kind
                          << " buffer of " << buffer.type
                          << " in another entry";
  buffer.rows = std::max(buffer.rows, wanted.rows);
  return found->second;
}

void BufferPlan::addConflicts(
    const std::map<unsigned, SmallVector<unsigned>> &touches,
    const StepOrder &order) {
  auto allBefore = [&](ArrayRef<unsigned> first, ArrayRef<unsigned> second) {
    return llvm::all_of(first, [&](unsigned a) {
      return llvm::all_of(second,
                          [&](unsigned b) { return order.isBefore(a, b); });
    });
  };
  for (auto a = touches.begin(); a != touches.end(); ++a) {
    if (buffers[a->first].kind != "work")
      continue;
    for (auto b = std::next(a); b != touches.end(); ++b)
      if (buffers[b->first].kind == "work" &&
          !allBefore(a->second, b->second) && !allBefore(b->second, a->second))
        conflicts.insert({a->first, b->first});
  }
}

/// Whether `a` and `b` may share bytes wherever they lie. Kernels rely on zeros
/// in the padding of a row: a buffer that has some is no place for other rows.
bool BufferPlan::mayOverlap(unsigned a, unsigned b) const {
  return !conflicts.contains({std::min(a, b), std::max(a, b)}) &&
         !buffers[a].padding && !buffers[b].padding;
}

/// Whether `a` and `b` may lie at the same address: they have the same rows,
/// padding included.
bool BufferPlan::mayReplace(unsigned a, unsigned b) const {
  return !conflicts.contains({std::min(a, b), std::max(a, b)}) &&
         buffers[a].type == buffers[b].type;
}

/// The lowest offset of `index` that none of `placed` is in the way of.
int64_t BufferPlan::firstFit(unsigned index, ArrayRef<unsigned> placed) const {
  const Buffer &buffer = buffers[index];
  SmallVector<unsigned> obstacles;
  llvm::copy_if(placed, std::back_inserter(obstacles),
                [&](unsigned other) { return !mayOverlap(index, other); });
  SmallVector<int64_t> candidates = {0};
  for (unsigned other : obstacles) {
    candidates.push_back(buffers[other].offset);
    candidates.push_back(llvm::alignTo(
        buffers[other].offset + buffers[other].bytes(), target.alignment()));
  }
  llvm::sort(candidates);
  for (int64_t offset : candidates) {
    bool fits = llvm::all_of(obstacles, [&](unsigned other) {
      const Buffer &there = buffers[other];
      bool meets = offset < there.offset + there.bytes() &&
                   there.offset < offset + buffer.bytes();
      return !meets || (there.offset == offset && mayReplace(index, other));
    });
    if (fits)
      return offset;
  }
  // Behind the last obstacle there is always room.
  return candidates.back();
}

/// Largest first, each at the lowest offset that works.
void BufferPlan::placeWork() {
  SmallVector<unsigned> work;
  for (auto [index, buffer] : llvm::enumerate(buffers))
    if (buffer.kind == "work")
      work.push_back(index);
  llvm::sort(work, [&](unsigned a, unsigned b) {
    return std::make_pair(-buffers[a].bytes(), a) <
           std::make_pair(-buffers[b].bytes(), b);
  });
  SmallVector<unsigned> placed;
  for (unsigned index : work) {
    buffers[index].offset = firstFit(index, placed);
    placed.push_back(index);
  }
}

LogicalResult BufferPlan::emit(OpBuilder &builder, Location loc,
                               SymbolTable &symbols) const {
  for (const Buffer &buffer : buffers) {
    if (symbols.lookup(buffer.name))
      return emitError(loc) << "a buffer must be called '" << buffer.name
                            << "', but the module has a symbol of that name";
    auto op = BufferOp::create(builder, loc, buffer.name, buffer.kind,
                               buffer.type, buffer.rows, buffer.rowBytes,
                               buffer.kind == "work"
                                   ? builder.getI64IntegerAttr(buffer.offset)
                                   : IntegerAttr());
    symbols.insert(op);
  }
  return success();
}
