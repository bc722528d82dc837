//===- GpuRows.cpp - Whole rows, and what follows a product ---------------===//
//
// A row is a block's work: four neighbouring elements a thread. LayerNorm keeps
// its row in registers between the two reductions.
//
//===----------------------------------------------------------------------===//

#include "GpuKernel.h"
#include "GpuWarp.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"

using namespace mlir;
using namespace foresight;

using Values = CodeBuilder::Values;

Value foresight::emitGpuActivation(GpuCode &c, Activation kind, Value x) {
  Type type = x.getType();
  switch (kind) {
  case Activation::None:
    return x;
  case Activation::Relu:
    return c.fmax(c.constant(type, 0), x);
  case Activation::Gelu: {
    Value erf = math::ErfOp::create(
        c.b, c.loc, c.fmul(x, c.constant(type, 0.70710678118654752)));
    Value half = c.fmul(x, c.constant(type, 0.5));
    return c.fma(half, erf, half);
  }
  case Activation::GeluTanh: {
    Value cube = c.fmul(c.fmul(x, x), x);
    Value u = c.fma(cube, c.constant(type, 0.044715), x);
    Value exponential = math::ExpOp::create(
        c.b, c.loc, c.fmul(u, c.constant(type, -2 * 0.79788456080286536)));
    return c.fdiv(x, c.fadd(c.constant(type, 1), exponential));
  }
  }
  llvm_unreachable("every activation has a case");
}

Value GpuFrame::memoryOf(Value value) {
  while (auto append = value.getDefiningOp<KvAppendOp>())
    value = append.getCache();
  return parameters[cast<BlockArgument>(value).getArgNumber()];
}

Value GpuFrame::intOf(Value ints) {
  Value memory = memoryOf(ints);
  if (cast<RankedTensorType>(ints.getType()).getDimSize(0) != 1)
    memory = c.at(memory, c.mul(token, 4));
  return c.toI64(c.load(c.b.getI32Type(), memory));
}

Value GpuFrame::cacheOf(Value cache, Value sequences) {
  Value memory = memoryOf(cache);
  if (!sequences)
    return memory;
  auto type = cast<KvCacheType>(cache.getType());
  int64_t rowBytes =
      (type.getHeadDim() + 15) / 16 * 16 * elementBytes(type.getElementType());
  return c.at(memory,
              c.mul(intOf(sequences),
                    2 * type.getHeads() * type.getCapacity() * rowBytes));
}

Value GpuFrame::tokens() { return c.load(c.b.getI64Type(), parameters.back()); }

Value GpuFrame::rowOf(Value value) {
  int64_t stride = gpuRowBytes(value);
  if (auto last = value.getDefiningOp<LastRowOp>())
    return c.at(memoryOf(last.getX()),
                c.mul(c.sub(tokens(), c.i64(1)), stride));
  return c.at(memoryOf(value), c.mul(token, stride));
}

GpuFrame::UnitRows GpuFrame::rowsOfUnit(Value unit) {
  UnitRows rows;
  for (const GpuProduct &p : llvm::reverse(plan.products)) {
    LinearOp op = p.op;
    UnitRows mine{memoryOf(op.getWeight()),
                  c.mul(c.sub(unit, c.i64(p.firstUnit)), plan.rowsPerUnit),
                  c.i64(gpuColumns(op.getResult()) - 1)};
    if (!rows.weights) {
      rows = mine;
      continue;
    }
    Value isMine = c.lessThan(unit, c.i64(p.firstUnit + p.units));
    rows = {c.select(isMine, mine.weights, rows.weights),
            c.select(isMine, mine.first, rows.first),
            c.select(isMine, mine.last, rows.last)};
  }
  return rows;
}

SmallVector<std::pair<Value, Value>> GpuFrame::resultsOf(Operation *product) {
  SmallVector<std::pair<Value, Value>> results;
  KernelOp kernel = plan.kernel;
  Block &body = kernel.getBody().front();
  for (auto [i, value] : llvm::enumerate(body.getTerminator()->getOperands()))
    if (isa<RankedTensorType>(value.getType()) &&
        plan.productOf.lookup(value) == product)
      results.emplace_back(value, c.at(parameters[body.getNumArguments() + i],
                                       c.mul(token, gpuRowBytes(value))));
  return results;
}

void GpuFrame::zeroBehind(Operation *product, Value isMine) {
  int64_t columns = gpuColumns(product->getResult(0));
  if (columns == padRow(columns))
    return;
  Value behind = c.add(c.thread, columns);
  Value isPadding = c.both(isMine, c.lessThan(behind, c.i64(padRow(columns))));
  c.ifThen(isPadding, [&] {
    for (auto [value, row] : resultsOf(product)) {
      Type stored = gpuElement(value);
      c.storeNarrow(stored, c.f32(0),
                    c.at(row, c.mul(behind, elementBytes(stored))));
    }
  });
}

Value foresight::emitElements(GpuFrame &frame, Value value, Value k) {
  GpuCode &c = frame.c;
  Operation *op = value.getDefiningOp();
  auto widened = [&](Value pointer, Type element) {
    Value stored =
        c.loadAligned(c.vec(4, element), pointer, 4 * elementBytes(element));
    return element.isF32()
               ? stored
               : Value(arith::ExtFOp::create(c.b, c.loc, c.vec(4), stored));
  };
  if (!op || isa<LastRowOp>(op)) {
    Type element = gpuElement(value);
    return widened(c.at(frame.rowOf(value), c.mul(k, elementBytes(element))),
                   element);
  }
  if (auto add = dyn_cast<AddOp>(op))
    return c.fadd(emitElements(frame, add.getLhs(), k),
                  emitElements(frame, add.getRhs(), k));
  if (auto activation = dyn_cast<ActivationOp>(op))
    return emitGpuActivation(c, activation.getActivation(),
                             emitElements(frame, activation.getX(), k));
  auto gather = cast<GatherRowsOp>(op);
  Type element = gpuElement(gather.getTable());
  int64_t bytes = elementBytes(element);
  Value id =
      c.toI64(c.load(c.b.getI32Type(), c.at(frame.memoryOf(gather.getIds()),
                                            c.mul(frame.token, 4))));
  Value row = c.at(
      frame.memoryOf(gather.getTable()),
      c.mul(c.add(id, gather.getOffset()), gpuRowBytes(gather.getTable())));
  return widened(c.at(row, c.mul(k, bytes)), element);
}

SmallVector<Value> foresight::loadNormVectors(GpuFrame &frame, Value row) {
  // Eight registers a turn, beside the row's four.
  constexpr int64_t kMostTurns = 7;
  GpuCode &c = frame.c;
  int64_t chunks = padRow(gpuColumns(row)) / 4;
  int64_t turns = ceilDiv(chunks, c.threads);
  if (turns > kMostTurns)
    return {};
  SmallVector<Value> loaded;
  for (int64_t i = 0; i < turns; ++i) {
    Value chunk = c.min(c.add(c.thread, i * c.threads), c.i64(chunks - 1));
    for (Value vector : normVectors(row))
      if (vector) {
        Value words = c.load16(c.f32Type(),
                               c.at(frame.memoryOf(vector), c.mul(chunk, 16)));
        loaded.push_back(c.widen(words, c.f32Type()));
      }
  }
  return loaded;
}

void foresight::emitRow(GpuFrame &frame, Value value,
                        llvm::function_ref<void(Value, Value)> use,
                        ArrayRef<Value> loaded,
                        llvm::function_ref<void()> whileLoading) {
  GpuCode &c = frame.c;
  auto norm = value.getDefiningOp<LayerNormOp>();
  Value source = norm ? norm.getX() : value;
  int64_t columns = gpuColumns(value), chunks = padRow(columns) / 4;
  int64_t turns = ceilDiv(chunks, c.threads);
  Value zero = c.constant(c.vec(4), 0);
  auto inRow = [&](Value k) -> Value {
    if (columns % 4 == 0)
      return c.splat(c.lessThan(k, c.i64(columns)), 4);
    return c.lanesBelow(k, columns, 4);
  };

  Values places, valid, x;
  for (int64_t i = 0; i < turns; ++i) {
    Value chunk = c.add(c.thread, i * c.threads);
    Value k = c.mul(c.min(chunk, c.i64(chunks - 1)), 4);
    places.push_back(chunk);
    Value isIn = inRow(c.mul(chunk, 4));
    valid.push_back(isIn);
    x.push_back(c.select(isIn, emitElements(frame, source, k), zero));
  }
  if (whileLoading)
    whileLoading();
  if (norm) {
    auto total = [&](ArrayRef<Value> parts) {
      Value sum = zero;
      for (Value part : parts)
        sum = c.fadd(sum, part);
      return c.blockSum(c.sumLanes(sum), frame.shared);
    };
    Value count = c.f32(static_cast<double>(columns));
    Value mean = c.splat(c.fdiv(total(x), count), 4);
    Values squares;
    for (int64_t i = 0; i < turns; ++i) {
      x[i] = c.select(valid[i], c.fsub(x[i], mean), zero);
      squares.push_back(c.fmul(x[i], x[i]));
    }
    Value epsilon = c.f32(norm.getEpsilon().convertToDouble());
    Value deviation = math::SqrtOp::create(
        c.b, c.loc, c.fadd(c.fdiv(total(squares), count), epsilon));
    Value scale = c.splat(c.fdiv(c.f32(1), deviation), 4);
    for (int64_t i = 0; i < turns; ++i) {
      Value bytes = c.mul(c.min(places[i], c.i64(chunks - 1)), 16);
      auto vectorAt = [&](Value vector) -> Value {
        if (loaded.empty())
          return c.loadAligned(c.vec(4), c.at(frame.memoryOf(vector), bytes),
                               16, /*invariant=*/true);
        Value first = loaded.front();
        loaded = loaded.drop_front();
        return first;
      };
      x[i] = c.fmul(x[i], scale);
      if (norm.getGamma())
        x[i] = c.fmul(x[i], vectorAt(norm.getGamma()));
      if (norm.getBeta())
        x[i] = c.fadd(x[i], vectorAt(norm.getBeta()));
      x[i] = c.select(valid[i], x[i], zero);
    }
  }
  for (int64_t i = 0; i < turns; ++i) {
    if ((i + 1) * c.threads <= chunks)
      use(c.mul(places[i], 4), x[i]);
    else
      c.ifThen(c.lessThan(places[i], c.i64(chunks)),
               [&] { use(c.mul(places[i], 4), x[i]); });
  }
}

/// The token's keys and values to their places in the cache.
static void emitAppendRow(GpuFrame &frame, KvAppendOp op) {
  GpuCode &c = frame.c;
  auto cache = cast<KvCacheType>(op.getCache().getType());
  Type element = cache.getElementType();
  int64_t headDim = cache.getHeadDim(), padded = (headDim + 15) / 16 * 16;
  int64_t rowBytes = padded * elementBytes(element);
  Value memory = frame.cacheOf(op.getCache(), op.getSequences());
  Value position = frame.intOf(op.getPositions());
  Value rows[] = {op.getKeys(), op.getValues()};
  for (auto [i, value] : llvm::enumerate(rows))
    emitRow(frame, value, [&](Value k, Value x) {
      c.ifThen(c.lessThan(k, c.i64(cache.getHeads() * headDim)), [&] {
        Value head = c.add(c.div(k, headDim), i * cache.getHeads());
        Value row = c.add(c.mul(head, cache.getCapacity()), position);
        Value place = c.add(c.mul(row, rowBytes),
                            c.mul(c.rem(k, headDim), elementBytes(element)));
        c.storeNarrow(element, x, c.at(memory, place));
      });
    });
}

void foresight::emitRows(GpuFrame &frame) {
  GpuCode &c = frame.c;
  frame.token = c.block;
  // A product behind it fills shared memory with weights, where few rows of a
  // batch leave room.
  if (frame.plan.batchRows > 0)
    c.letDependentsStart();
  c.waitForInputs();
  if (frame.plan.batchRows == 0)
    c.letDependentsStart();
  for (auto [value, row] : frame.resultsOf(nullptr)) {
    Value pointer = row;
    Type element = gpuElement(value);
    emitRow(frame, value, [&](Value k, Value x) {
      c.storeNarrow(element, x, c.at(pointer, c.mul(k, elementBytes(element))));
    });
  }
  KvAppendOp append = frame.plan.append;
  if (!append)
    return;
  Value sequences = append.getSequences();
  if (!sequences ||
      cast<RankedTensorType>(sequences.getType()).getDimSize(0) == 1)
    return emitAppendRow(frame, append);
  // A graph has a block for each row of the largest batch.
  c.ifThen(c.lessThan(frame.token, frame.tokens()),
           [&] { emitAppendRow(frame, append); });
}

static Value biasOf(Operation *product) {
  if (auto linear = dyn_cast<LinearOp>(product))
    return linear.getBias();
  return cast<ColumnLinearOp>(product).getBias();
}

static Value loadElement(GpuFrame &frame, Value source, Value column) {
  bool isVector = cast<RankedTensorType>(source.getType()).getRank() == 1;
  Value memory = isVector ? frame.memoryOf(source) : frame.rowOf(source);
  GpuCode &c = frame.c;
  return c.load(c.f32Type(), c.at(memory, c.mul(column, 4)));
}

GpuLoaded foresight::loadEpilogue(GpuFrame &frame, Operation *product,
                                  Value column, Value condition) {
  GpuLoaded loaded;
  GpuCode &c = frame.c;
  auto load = [&](Value source) {
    if (source && !loaded.contains(source))
      loaded[source] = c.ifElse(
          condition, [&] { return loadElement(frame, source, column); },
          c.f32(0));
  };
  load(biasOf(product));
  for (Operation &op : product->getBlock()->without_terminator())
    if (isa<AddOp>(op) &&
        frame.plan.productOf.lookup(op.getResult(0)) == product)
      for (Value operand : op.getOperands())
        if (!frame.plan.productOf.contains(operand))
          load(operand);
  return loaded;
}

Value foresight::emitGpuEpilogue(GpuFrame &frame, Value value,
                                 Operation *product, Value sum, Value column,
                                 const GpuLoaded &loaded) {
  GpuCode &c = frame.c;
  auto element = [&](Value source) {
    Value known = loaded.lookup(source);
    return known ? known : loadElement(frame, source, column);
  };
  Operation *op = value.getDefiningOp();
  if (op == product) {
    if (Value bias = biasOf(product))
      sum = c.fadd(sum, element(bias));
    auto linear = dyn_cast<LinearOp>(op);
    return emitGpuActivation(
        c, linear ? linear.getActivation() : Activation::None, sum);
  }
  if (!frame.plan.productOf.contains(value))
    return element(value);
  auto follow = [&](Value operand) {
    return emitGpuEpilogue(frame, operand, product, sum, column, loaded);
  };
  if (auto add = dyn_cast<AddOp>(op)) {
    Value lhs = follow(add.getLhs());
    return c.fadd(lhs, follow(add.getRhs()));
  }
  auto activation = cast<ActivationOp>(op);
  return emitGpuActivation(c, activation.getActivation(),
                           follow(activation.getX()));
}

void foresight::prefetchVectors(GpuFrame &frame, ArrayRef<Value> vectors) {
  constexpr int64_t kLine = 128;
  GpuCode &c = frame.c;
  Value index = c.add(c.mul(c.block, c.threads), c.thread);
  for (Value vector : vectors) {
    if (!vector)
      continue;
    int64_t elements = cast<RankedTensorType>(vector.getType()).getDimSize(0);
    int64_t lines = ceilDiv(4 * padRow(elements), kLine);
    c.ifThen(c.lessThan(index, c.i64(lines)), [&] {
      prefetchLine(c, c.at(frame.memoryOf(vector), c.mul(index, kLine)));
    });
  }
}

SmallVector<Value, 2> foresight::normVectors(Value row) {
  auto norm = row.getDefiningOp<LayerNormOp>();
  if (!norm)
    return {};
  return {norm.getGamma(), norm.getBeta()};
}
