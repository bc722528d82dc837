//===- Scheduled.cpp - Launches by their tokens, values in buffers --------===//

#include "Runner.h"

#include "llvm/ADT/DenseSet.h"

#include <random>

using namespace mlir;
using namespace foresight;
using namespace foresight::interpreter;

namespace {

/// What memory holds: for each buffer the value that was written last, until a
/// buffer that overlaps it is written.
class Memory {
public:
  struct Content {
    Value value;
    Data data;
  };

  explicit Memory(ModuleOp module) {
    for (auto buffer : module.getOps<BufferOp>())
      buffers[buffer.getSymName()] = buffer;
  }

  bool knows(StringRef buffer) const { return buffers.contains(buffer); }

  void write(StringRef name, Value value, Data data) {
    BufferOp written = buffers.at(name);
    for (auto &[other, buffer] : buffers)
      if (other != name && overlap(written, buffer))
        contents.erase(other);
    contents[name] = {value, std::move(data)};
  }

  /// Null if nothing has been written, or something else over it.
  const Content *read(StringRef name) const {
    auto found = contents.find(name);
    return found == contents.end() ? nullptr : &found->second;
  }

private:
  static bool overlap(BufferOp a, BufferOp b) {
    if (!a.getOffset() || !b.getOffset())
      return false;
    const uint64_t aEnd = *a.getOffset() + a.getRows() * a.getRowBytes();
    const uint64_t bEnd = *b.getOffset() + b.getRows() * b.getRowBytes();
    return *a.getOffset() < bEnd && *b.getOffset() < aEnd;
  }

  std::map<StringRef, BufferOp> buffers;
  std::map<StringRef, Content> contents;
};

/// Who makes a value, for messages.
std::string describe(Value value) {
  if (auto launch = value.getDefiningOp<LaunchOp>())
    return ("the result of '" + launch.getName() + "'").str();
  if (auto argument = dyn_cast<BlockArgument>(value))
    return "argument " + std::to_string(argument.getArgNumber());
  return "a value that no launch makes";
}

class ScheduleRunner {
public:
  ScheduleRunner(func::FuncOp entry, Runner &runner)
      : entry(entry), runner(runner),
        memory(entry->getParentOfType<ModuleOp>()) {}

  LogicalResult start(ArrayRef<Data> arguments) {
    for (auto [argument, data] : llvm::zip(entry.getArguments(), arguments)) {
      auto buffer = entry.getArgAttrOfType<FlatSymbolRefAttr>(
          argument.getArgNumber(), "foresight.buffer");
      if (!buffer || !memory.knows(buffer.getValue()))
        return entry.emitOpError()
               << "argument " << argument.getArgNumber() << " names no buffer";
      bufferOf[argument] = buffer.getValue();
      memory.write(buffer.getValue(), argument, data);
    }
    for (Operation &op : entry.getBody().front().without_terminator()) {
      if (auto launch = dyn_cast<LaunchOp>(op)) {
        if (launch.getOuts().size() != launch.getResults().size())
          return op.emitOpError() << "names no buffers for its results";
        for (auto [result, out] :
             llvm::zip(launch.getResults(), launch.getOuts()))
          bufferOf[result] = cast<FlatSymbolRefAttr>(out).getValue();
        waiting.push_back(launch);
      } else if (!isa<GetWeightOp>(op)) {
        return op.emitOpError() << "is not part of a schedule: an entry holds "
                                   "get_weight and launch";
      }
    }
    return success();
  }

  LogicalResult runAll(uint64_t seed) {
    std::mt19937_64 engine(seed);
    while (!waiting.empty()) {
      SmallVector<size_t> ready;
      for (auto [i, launch] : llvm::enumerate(waiting))
        if (llvm::all_of(launch.getAfter(),
                         [&](Value token) { return done.contains(token); }))
          ready.push_back(i);
      if (ready.empty())
        return waiting.front().emitOpError()
               << "waits for a token that nothing gives";
      const size_t chosen = ready[engine() % ready.size()];
      LaunchOp launch = waiting[chosen];
      waiting.erase(waiting.begin() + chosen);
      if (failed(run(launch)))
        return failure();
    }
    return success();
  }

  FailureOr<Data> read(Operation *reader, Value value) {
    if (auto weight = value.getDefiningOp<GetWeightOp>())
      return runner.weight(weight);
    StringRef buffer = bufferOf.lookup(value);
    const Memory::Content *content = memory.read(buffer);
    if (content && content->value == value)
      return content->data;
    InFlightDiagnostic error = reader->emitOpError();
    if (auto launch = dyn_cast<LaunchOp>(reader))
      error << "'" << launch.getName() << "' ";
    error << "reads " << describe(value) << " from @" << buffer << ", which "
          << (content ? "holds " + describe(content->value)
                      : std::string("holds nothing or was written over"))
          << " in an order that the tokens allow";
    return error;
  }

private:
  LogicalResult run(LaunchOp launch) {
    SmallVector<Data> inputs;
    for (Value input : launch.getInputs()) {
      FailureOr<Data> data = read(launch, input);
      if (failed(data))
        return failure();
      inputs.push_back(std::move(*data));
    }
    FailureOr<SmallVector<Data>> results =
        runner.run(runner.kernelOf(launch).getBody().front(), inputs);
    if (failed(results))
      return failure();
    for (auto [result, data] : llvm::zip(launch.getResults(), *results))
      memory.write(bufferOf.lookup(result), result, data);
    done.insert(launch.getDone());
    return success();
  }

  func::FuncOp entry;
  Runner &runner;
  Memory memory;
  llvm::DenseMap<Value, StringRef> bufferOf;
  SmallVector<LaunchOp> waiting;
  llvm::DenseSet<Value> done;
};

} // namespace

FailureOr<SmallVector<Data>> Interpreter::runScheduled(func::FuncOp entry,
                                                       ArrayRef<Data> arguments,
                                                       uint64_t seed) {
  if (failed(check(entry, arguments)))
    return failure();
  Runner runner(weights, symbols);
  ScheduleRunner schedule(entry, runner);
  if (failed(schedule.start(arguments)) || failed(schedule.runAll(seed)))
    return failure();
  SmallVector<Data> results;
  Operation *terminator = entry.getBody().front().getTerminator();
  for (Value value : terminator->getOperands()) {
    FailureOr<Data> data = schedule.read(terminator, value);
    if (failed(data))
      return failure();
    results.push_back(std::move(*data));
  }
  return results;
}
