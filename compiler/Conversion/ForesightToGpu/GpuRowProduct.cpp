//===- GpuRowProduct.cpp - Products with rows of a weight matrix ----------===//
//
// A warp takes weight rows in turn. Its next loads are always under way: those
// of the first row before the kernel waits for the one in front of it, those of
// the row behind while this row's sums go through the shuffles. x lies in
// shared memory as planes of 16 bytes, so that neighbouring lanes read
// neighbouring words.
//
//===----------------------------------------------------------------------===//

#include "GpuKernel.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/SCF/IR/SCF.h"

#include <algorithm>

using namespace mlir;
using namespace foresight;

using Values = CodeBuilder::Values;

namespace {

/// 16-byte loads of a lane that are under way at once.
constexpr int64_t kLoads = 8;

class RowProductEmitter {
public:
  explicit RowProductEmitter(GpuFrame &frame)
      : frame(frame), c(frame.c), plan(frame.plan),
        element(gpuElement(product(0).getWeight())),
        vectors(padRow(gpuColumns(product(0).getX())) / elementsOf16(element)),
        planes(elementsOf16(element) / 4),
        rowBytes(gpuRowBytes(product(0).getWeight())),
        loads(std::min(plan.loadsPerRow, kLoads)),
        turns((plan.loadsPerRow + loads - 1) / loads) {}

  void emit();

private:
  LinearOp product(int64_t i) { return plan.products[i].op; }
  int64_t units() {
    return plan.products.back().firstUnit + plan.products.back().units;
  }
  Values loadTurn(Value unit, int64_t turn);
  void stageX();
  Value xAt(int64_t load, int64_t plane);
  void store(Value unit, ArrayRef<Value> sums);

  GpuFrame &frame;
  GpuCode &c;
  const GpuPlan &plan;
  Type element;
  int64_t vectors, planes, rowBytes, loads, turns;
};

/// The loads of one turn: `loads` of each of the unit's rows.
Values RowProductEmitter::loadTurn(Value unit, int64_t turn) {
  Value base, row, last;
  for (const GpuProduct &p : llvm::reverse(plan.products)) {
    LinearOp op = p.op;
    Value memory = frame.memoryOf(op.getWeight());
    Value first = c.mul(c.sub(unit, c.i64(p.firstUnit)), plan.rowsPerUnit);
    Value end = c.i64(gpuColumns(op.getResult()) - 1);
    if (!base) {
      base = memory, row = first, last = end;
      continue;
    }
    Value isBefore = c.lessThan(unit, c.i64(p.firstUnit + p.units));
    base = c.select(isBefore, memory, base);
    row = c.select(isBefore, first, row);
    last = c.select(isBefore, end, last);
  }
  Values loaded;
  for (int64_t r = 0; r < plan.rowsPerUnit; ++r) {
    Value pointer = c.at(base, c.mul(c.min(c.add(row, r), last), rowBytes));
    for (int64_t j = 0; j < loads; ++j) {
      int64_t load = turn * loads + j;
      Value v = c.add(c.lane, load * kWarp);
      if ((load + 1) * kWarp > vectors)
        v = c.min(v, c.i64(vectors - 1));
      loaded.push_back(c.load16(element, c.at(pointer, c.mul(v, 16))));
    }
  }
  return loaded;
}

void RowProductEmitter::stageX() {
  emitRow(frame, product(0).getX(), [&](Value k, Value x) {
    Value chunk = c.div(k, 4);
    Value v = c.div(chunk, planes), plane = c.rem(chunk, planes);
    Value place = c.add(c.mul(plane, vectors), v);
    c.storeAligned(x, c.at(c.at(frame.shared, plan.rowAt), c.mul(place, 16)),
                   16);
  });
  c.barrier();
}

/// Four elements of x for load `load`; zero for lanes behind the row.
Value RowProductEmitter::xAt(int64_t load, int64_t plane) {
  Value v = c.add(c.lane, load * kWarp);
  bool isWhole = (load + 1) * kWarp <= vectors;
  Value safe = isWhole ? v : c.min(v, c.i64(vectors - 1));
  Value x = c.loadAligned(c.vec(4),
                          c.at(c.at(frame.shared, plan.rowAt),
                               c.mul(c.add(safe, plane * vectors), 16)),
                          16);
  if (isWhole)
    return x;
  return c.select(c.splat(c.lessThan(v, c.i64(vectors)), 4), x,
                  c.constant(c.vec(4), 0));
}

/// Lane r finishes row r of the unit.
void RowProductEmitter::store(Value unit, ArrayRef<Value> sums) {
  Value sum = sums[0];
  for (int64_t r = 1; r < plan.rowsPerUnit; ++r)
    sum = c.select(c.isEqual(c.lane, r), sums[r], sum);
  for (const GpuProduct &p : plan.products) {
    LinearOp op = p.op;
    int64_t columns = gpuColumns(op.getResult());
    Value column =
        c.add(c.mul(c.sub(unit, c.i64(p.firstUnit)), plan.rowsPerUnit), c.lane);
    auto both = [&](Value a, Value b) -> Value {
      return arith::AndIOp::create(c.b, c.loc, a, b);
    };
    Value isMine = both(c.lessThan(c.i64(p.firstUnit - 1), unit),
                        c.lessThan(unit, c.i64(p.firstUnit + p.units)));
    Value isColumn = both(c.lessThan(c.lane, c.i64(plan.rowsPerUnit)),
                          c.lessThan(column, c.i64(columns)));
    auto results = frame.resultsOf([&](Value value) {
      return plan.productOf.lookup(value) == op.getOperation();
    });
    c.ifThen(both(isMine, isColumn), [&] {
      for (auto [value, row] : results)
        c.store(emitGpuEpilogue(frame, value, op, sum, column),
                c.at(row, c.mul(column, 4)));
    });
    // Rows of buffers end in zeros, and buffers share memory.
    if (columns == padRow(columns))
      continue;
    Value isLast = both(isMine, c.isEqual(unit, p.firstUnit + p.units - 1));
    Value behind = c.add(c.lane, columns);
    c.ifThen(both(isLast, c.lessThan(behind, c.i64(padRow(columns)))), [&] {
      for (auto [value, row] : results)
        c.store(c.f32(0), c.at(row, c.mul(behind, 4)));
    });
  }
}

void RowProductEmitter::emit() {
  Value total = c.mul(c.blocks, c.warps());
  Value first = c.add(c.mul(c.block, c.warps()), c.warp);
  Value end = c.i64(units());
  auto loadIfAny = [&](Value unit) {
    Values zeros(plan.rowsPerUnit * loads,
                 c.constant(c.vec(4, c.b.getI32Type()), 0));
    auto op = scf::IfOp::create(
        c.b, c.loc, c.lessThan(unit, end),
        [&](OpBuilder &, Location) {
          scf::YieldOp::create(c.b, c.loc, loadTurn(unit, 0));
        },
        [&](OpBuilder &, Location) {
          scf::YieldOp::create(c.b, c.loc, zeros);
        });
    return Values(op.getResults());
  };
  Values current = loadIfAny(first);
  c.waitForInputs();
  c.letDependentsStart();
  stageX();

  auto loop = scf::WhileOp::create(
      c.b, c.loc,
      [&] {
        SmallVector<Type> types{c.b.getI64Type()};
        for (Value v : current)
          types.push_back(v.getType());
        return types;
      }(),
      [&] {
        Values init{first};
        init.append(current);
        return init;
      }(),
      [&](OpBuilder &, Location, ValueRange args) {
        scf::ConditionOp::create(c.b, c.loc, c.lessThan(args[0], end), args);
      },
      [&](OpBuilder &, Location, ValueRange args) {
        Value unit = args[0];
        Values now(args.drop_front());
        Value next = c.add(unit, total);
        SmallVector<Values> sums(plan.rowsPerUnit, Values(2, c.f32(0)));
        for (int64_t turn = 0; turn < turns; ++turn) {
          Values coming =
              turn + 1 < turns ? loadTurn(unit, turn + 1) : loadIfAny(next);
          for (int64_t j = 0; j < loads; ++j) {
            int64_t load = turn * loads + j;
            if (load >= plan.loadsPerRow)
              break;
            Values x;
            for (int64_t p = 0; p < planes; ++p)
              x.push_back(xAt(load, p));
            for (int64_t r = 0; r < plan.rowsPerUnit; ++r) {
              Value w = c.widen(now[r * loads + j], element);
              Value &sum = sums[r][j % 2];
              for (int64_t e = 0; e < 4 * planes; ++e)
                sum = c.fma(c.extract(w, e), c.extract(x[e / 4], e % 4), sum);
            }
          }
          now = coming;
        }
        Values totals;
        for (Values &sum : sums)
          totals.push_back(c.warpSum(c.fadd(sum[0], sum[1])));
        store(unit, totals);
        Values yielded{next};
        yielded.append(now);
        scf::YieldOp::create(c.b, c.loc, yielded);
      });
  (void)loop;
}

} // namespace

void foresight::emitRowProduct(GpuFrame &frame) {
  RowProductEmitter(frame).emit();
}
