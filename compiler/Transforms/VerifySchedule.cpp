//===- VerifySchedule.cpp - The contract of the scheduled phase -----------===//
//
// Looks at memory only: which bytes each launch reads and writes, and whether
// tokens order those that meet. How the bytes were chosen does not matter here.
//
//===----------------------------------------------------------------------===//

#include "StageOrder.h"
#include "Utils.h"

#include "foresight/Transforms/Passes.h"

namespace foresight {
#define GEN_PASS_DEF_VERIFYSCHEDULEPASS
#include "foresight/Transforms/Passes.h.inc"
} // namespace foresight

using namespace mlir;
using namespace foresight;

namespace {

/// Bytes of a buffer; of the arena, if it is a work buffer.
struct Range {
  Operation *memory; // the buffer, or null for the arena
  int64_t begin, end;

  bool meets(const Range &other) const {
    return memory == other.memory && begin < other.end && other.begin < end;
  }
};

class EntryVerifier {
public:
  EntryVerifier(func::FuncOp entry, SymbolTable &symbols)
      : entry(entry), symbols(symbols) {
    auto tokens = entry->getAttrOfType<IntegerAttr>(kMaxTokensAttr);
    maxTokens = tokens ? tokens.getInt() : 0;
  }
  LogicalResult run();

private:
  LogicalResult bind(Value value, Attribute symbol, Operation *where);
  LogicalResult bindAll();
  LogicalResult checkOwnMemory(LaunchOp launch);
  LogicalResult checkPair(unsigned first, unsigned second);
  LogicalResult checkReads(unsigned step);
  bool writes(LaunchOp launch, const Range &range) const;

  func::FuncOp entry;
  SymbolTable &symbols;
  int64_t maxTokens;
  std::optional<LaunchOrder> order;
  llvm::DenseMap<Value, Range> rangeOf;
};

} // namespace

/// Whether a buffer declared for `declared` holds values of `type`.
static bool holds(Type declared, Type type) {
  if (auto set = dyn_cast<IndexSetType>(type))
    return declared == setWords(set);
  auto have = dyn_cast<RankedTensorType>(declared);
  auto want = dyn_cast<RankedTensorType>(type);
  if (!have || !want)
    return declared == type;
  return have.getElementType() == want.getElementType() &&
         have.getShape().drop_front() == want.getShape().drop_front();
}

LogicalResult EntryVerifier::bind(Value value, Attribute symbol,
                                  Operation *where) {
  auto name = dyn_cast_or_null<FlatSymbolRefAttr>(symbol);
  auto buffer = name ? symbols.lookup<BufferOp>(name.getValue()) : BufferOp();
  if (!buffer)
    return where->emitError()
           << "a value of type " << value.getType() << " has no buffer";
  if (!holds(buffer.getType(), value.getType()))
    return where->emitError()
           << "buffer " << name << " holds " << buffer.getType()
           << " but the value has type " << value.getType();
  int64_t rows = 1;
  if (auto tensor = dyn_cast<RankedTensorType>(value.getType()))
    rows = tensor.isDynamicDim(0) ? maxTokens : tensor.getDimSize(0);
  if (rows > static_cast<int64_t>(buffer.getRows()))
    return where->emitError()
           << "buffer " << name << " has " << buffer.getRows()
           << " rows but the entry uses " << rows;
  bool isWork = buffer.getKind() == "work";
  if (isWork && !buffer.getOffset())
    return buffer.emitError() << "is a work buffer without an offset";
  int64_t begin = isWork ? static_cast<int64_t>(*buffer.getOffset()) : 0;
  int64_t bytes = rows * static_cast<int64_t>(buffer.getRowBytes());
  rangeOf[value] =
      Range{isWork ? nullptr : buffer.getOperation(), begin, begin + bytes};
  return success();
}

LogicalResult EntryVerifier::bindAll() {
  for (BlockArgument arg : entry.getArguments())
    if (failed(bind(arg, entry.getArgAttr(arg.getArgNumber(), kBufferAttr),
                    entry)))
      return failure();
  for (Operation &op : entry.getBody().front()) {
    if (isa<GetWeightOp, func::ReturnOp>(op))
      continue;
    auto launch = dyn_cast<LaunchOp>(op);
    if (!launch)
      return op.emitError() << "is left in a scheduled entry; expected "
                               "get_weight, launch and return only";
    if (launch.getOuts().size() != launch.getResults().size())
      return launch.emitError()
             << "'" << launch.getName() << "' names no buffers for its results";
    for (auto [result, out] : llvm::zip(launch.getResults(), launch.getOuts()))
      if (failed(bind(result, out, launch)))
        return failure();
  }
  return success();
}

bool EntryVerifier::writes(LaunchOp launch, const Range &range) const {
  return llvm::any_of(launch.getResults(), [&](Value result) {
    return rangeOf.lookup(result).meets(range);
  });
}

/// A launch may write what it reads only element by element.
LogicalResult EntryVerifier::checkOwnMemory(LaunchOp launch) {
  auto kernel = symbols.lookup<KernelOp>(launch.getKernel());
  if (!kernel)
    return launch.emitError() << "names an unknown kernel";
  Block &body = kernel.getBody().front();
  for (auto [index, result] : llvm::enumerate(launch.getResults())) {
    Range written = rangeOf.lookup(result);
    for (auto [arg, input] : llvm::enumerate(launch.getInputs())) {
      auto read = rangeOf.find(input);
      if (read == rangeOf.end() || !read->second.meets(written))
        continue;
      bool inPlace = stateArgument(body, index) == arg ||
                     inPlaceArgument(body, index) == arg;
      if (!inPlace || read->second.begin != written.begin)
        return launch.emitError()
               << "'" << launch.getName() << "' writes result " << index
               << " over its input " << arg << " while it still reads it";
    }
    for (Value other : launch.getResults().take_front(index))
      if (rangeOf.lookup(other).meets(written))
        return launch.emitError() << "'" << launch.getName()
                                  << "' has two results in the same memory";
  }
  return success();
}

/// Launches that nothing orders may run at the same time.
LogicalResult EntryVerifier::checkPair(unsigned first, unsigned second) {
  if (order->order.isBefore(first, second))
    return success();
  LaunchOp a = order->launches[first], b = order->launches[second];
  auto touches = [&](LaunchOp launch, const Range &range) {
    return writes(launch, range) ||
           llvm::any_of(launch.getInputs(), [&](Value input) {
             auto found = rangeOf.find(input);
             return found != rangeOf.end() && found->second.meets(range);
           });
  };
  auto clash = [&](LaunchOp writer, LaunchOp other) {
    return llvm::any_of(writer.getResults(), [&](Value result) {
      return touches(other, rangeOf.lookup(result));
    });
  };
  if (!clash(a, b) && !clash(b, a))
    return success();
  return b.emitError() << "'" << b.getName() << "' and '" << a.getName()
                       << "' use the same memory, one of them to write, but "
                          "no token orders them";
}

/// What a launch reads must be what the operand's producer wrote.
LogicalResult EntryVerifier::checkReads(unsigned step) {
  LaunchOp launch = order->launches[step];
  for (Value input : launch.getInputs()) {
    auto range = rangeOf.find(input);
    if (range == rangeOf.end())
      continue; // a weight
    for (unsigned other = step; other-- > 0;) {
      LaunchOp between = order->launches[other];
      if (between == input.getDefiningOp())
        break;
      if (writes(between, range->second))
        return launch.emitError()
               << "'" << launch.getName() << "' reads a value that '"
               << between.getName() << "' has overwritten";
    }
  }
  return success();
}

LogicalResult EntryVerifier::run() {
  if (maxTokens < 1)
    return entry.emitError() << "needs " << kMaxTokensAttr << " of at least 1";
  if (failed(bindAll()))
    return failure();
  order = LaunchOrder::fromTokens(entry.getBody().front());
  if (!order)
    return entry.emitError() << "has a launch that waits for a later one";
  unsigned size = order->launches.size();
  for (unsigned step = 0; step < size; ++step) {
    if (failed(checkOwnMemory(order->launches[step])) ||
        failed(checkReads(step)))
      return failure();
    for (unsigned other = 0; other < step; ++other)
      if (failed(checkPair(other, step)))
        return failure();
  }
  // Results are read when the entry is done.
  auto ret = entry.getBody().front().getTerminator();
  for (OpOperand &operand : ret->getOpOperands()) {
    auto range = rangeOf.find(operand.get());
    if (range == rangeOf.end())
      return ret->emitError() << "returns a value that no launch makes";
    if (entry.getResultAttr(operand.getOperandNumber(), kBufferAttr) == nullptr)
      return entry.emitError()
             << "result " << operand.getOperandNumber() << " names no buffer";
    for (unsigned other = size; other-- > 0;) {
      if (order->launches[other] == operand.get().getDefiningOp())
        break;
      if (writes(order->launches[other], range->second))
        return ret->emitError()
               << "returns a value that '" << order->launches[other].getName()
               << "' has overwritten";
    }
  }
  return success();
}

/// Padding stays zero: a buffer with padding may share memory only with one
/// whose rows are the same.
static LogicalResult verifyPadding(ModuleOp module) {
  SmallVector<BufferOp> work;
  for (auto buffer : module.getOps<BufferOp>())
    if (buffer.getKind() == "work" && buffer.getOffset())
      work.push_back(buffer);
  auto hasPadding = [](BufferOp buffer) {
    auto tensor = dyn_cast<RankedTensorType>(buffer.getType());
    return !tensor ||
           static_cast<int64_t>(buffer.getRowBytes()) !=
               tensor.getShape().back() * tensor.getElementTypeBitWidth() / 8;
  };
  for (auto [index, a] : llvm::enumerate(work))
    for (BufferOp b : ArrayRef(work).take_front(index)) {
      bool meet =
          *a.getOffset() < *b.getOffset() + b.getRows() * b.getRowBytes() &&
          *b.getOffset() < *a.getOffset() + a.getRows() * a.getRowBytes();
      bool same = a.getOffset() == b.getOffset() && a.getType() == b.getType();
      if (meet && !same && (hasPadding(a) || hasPadding(b)))
        return a.emitError() << "and @" << b.getSymName()
                             << " overlap, but one has rows with padding that "
                                "must stay zero";
    }
  return success();
}

namespace {

struct VerifySchedulePass
    : public foresight::impl::VerifySchedulePassBase<VerifySchedulePass> {
  void runOnOperation() override {
    SymbolTable symbols(getOperation());
    if (failed(verifyPadding(getOperation())))
      return signalPassFailure();
    for (func::FuncOp entry : entriesOf(getOperation()))
      if (failed(EntryVerifier(entry, symbols).run()))
        return signalPassFailure();
    markAllAnalysesPreserved();
  }
};

} // namespace
