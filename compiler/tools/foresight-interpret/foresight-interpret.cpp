//===- foresight-interpret.cpp - Runs a function in f64 -------------------===//
//
// Prints what a foresight function returns for given or random arguments, or
// compares it with what a function of another file (the same module before a
// pass) returns for the same.
//
//===----------------------------------------------------------------------===//

#include "Register.h"

#include "foresight/Interpreter/Interpreter.h"

#include "mlir/IR/MLIRContext.h"
#include "mlir/Parser/Parser.h"
#include "llvm/Support/CommandLine.h"
#include "llvm/Support/Format.h"
#include "llvm/Support/InitLLVM.h"
#include "llvm/Support/SourceMgr.h"

using namespace mlir;
using namespace foresight;
using namespace foresight::interpreter;
namespace cl = llvm::cl;

static cl::OptionCategory category("foresight-interpret options");

static cl::opt<std::string> input(cl::Positional, cl::desc("FILE"),
                                  cl::init("-"), cl::cat(category));
static cl::opt<std::string>
    entry("entry", cl::desc("Function or foresight.entry to run"),
          cl::init("decode"), cl::cat(category));
static cl::opt<std::string>
    other("compare", cl::desc("Module to run too; fail where results differ"),
          cl::value_desc("FILE"), cl::cat(category));
static cl::opt<std::string>
    otherEntry("compare-entry",
               cl::desc("Its function, or another one of FILE"),
               cl::value_desc("NAME"), cl::cat(category));
static cl::opt<double> tolerance("tolerance",
                                 cl::desc("Largest difference that passes"),
                                 cl::init(1e-9), cl::cat(category));
static cl::opt<uint64_t> seed("seed",
                              cl::desc("Seed of arguments that are not given"),
                              cl::init(0), cl::cat(category));
static cl::list<int> ids("ids", cl::CommaSeparated,
                         cl::desc("Values of the first int32 argument"),
                         cl::value_desc("N,N,..."), cl::cat(category));
static cl::list<int> positions("positions", cl::CommaSeparated,
                               cl::desc("Values of the second int32 argument"),
                               cl::value_desc("N,N,..."), cl::cat(category));
static cl::opt<int64_t> tokens("tokens",
                               cl::desc("T of arguments of unknown length"),
                               cl::init(0), cl::cat(category));
static cl::opt<int>
    orders("orders",
           cl::desc("Run a scheduled entry by its buffers, in this many orders "
                    "that its tokens allow"),
           cl::init(0), cl::cat(category));
static cl::opt<bool>
    zeroCaches("zero-caches",
               cl::desc("Start with empty KV caches, not random ones"),
               cl::cat(category));
static cl::opt<unsigned> limit("print",
                               cl::desc("Elements of a row to print, 0: none"),
                               cl::init(8), cl::cat(category));

namespace {

OwningOpRef<ModuleOp> parse(StringRef path, llvm::SourceMgr &sources,
                            MLIRContext &context) {
  auto file = llvm::MemoryBuffer::getFileOrSTDIN(path);
  if (!file) {
    llvm::errs() << "foresight-interpret: cannot read " << path << ": "
                 << file.getError().message() << "\n";
    return {};
  }
  sources.AddNewSourceBuffer(std::move(*file), SMLoc());
  return parseSourceFile<ModuleOp>(sources, &context);
}

/// Random arguments, those that were given put in their place.
FailureOr<SmallVector<Data>> argumentsOf(func::FuncOp function) {
  int64_t count = tokens;
  if (count == 0)
    count = !ids.empty() ? static_cast<int64_t>(ids.size())
                         : std::max<int64_t>(1, positions.size());
  auto arguments = randomArguments(function, {.seed = seed, .tokens = count});
  if (failed(arguments))
    return failure();
  unsigned integers = 0;
  for (Data &argument : *arguments) {
    if (argument.getIf<Ids>()) {
      const cl::list<int> &given = integers++ == 0 ? ids : positions;
      if (integers <= 2 && !given.empty())
        argument = Ids{{given.begin(), given.end()}};
    } else if (const auto *cache = argument.getIf<KvCache>();
               cache && zeroCaches) {
      KvCache empty = *cache;
      std::fill(empty.keys.begin(), empty.keys.end(), 0);
      std::fill(empty.values.begin(), empty.values.end(), 0);
      argument = std::move(empty);
    }
  }
  return arguments;
}

/// Runs a scheduled entry several times and demands equal results.
FailureOr<SmallVector<Data>> runOrders(Interpreter &interpreter,
                                       func::FuncOp entry,
                                       ArrayRef<Data> arguments) {
  FailureOr<SmallVector<Data>> first =
      interpreter.runScheduled(entry, arguments, 0);
  for (int order = 1; order < orders && succeeded(first); ++order) {
    FailureOr<SmallVector<Data>> next =
        interpreter.runScheduled(entry, arguments, order);
    if (failed(next))
      return failure();
    for (auto [i, pair] : llvm::enumerate(llvm::zip(*first, *next)))
      if (compare(std::get<0>(pair), std::get<1>(pair)).largest > 0)
        return entry.emitOpError() << "result " << i << " depends on the order";
  }
  return first;
}

FailureOr<SmallVector<Data>> runEntry(ModuleOp module, StringRef name,
                                      ArrayRef<Data> given,
                                      SmallVector<Data> *used = nullptr) {
  func::FuncOp function = findEntry(module, name);
  if (!function)
    return module.emitError()
           << "has no function and no foresight.entry named " << name;
  SmallVector<Data> arguments(given);
  if (used) {
    FailureOr<SmallVector<Data>> made = argumentsOf(function);
    if (failed(made))
      return failure();
    arguments = *used = std::move(*made);
  }
  Weights weights;
  Interpreter interpreter(module, weights);
  // The function that is compared with may be of an earlier phase.
  if (used && orders > 0)
    return runOrders(interpreter, function, arguments);
  return interpreter.run(function, arguments);
}

/// Prints each pair's difference; fails if one is above the tolerance.
bool agree(ArrayRef<Data> results, ArrayRef<Data> expected) {
  if (results.size() != expected.size()) {
    llvm::errs() << "foresight-interpret: " << results.size()
                 << " results, but the other function has " << expected.size()
                 << "\n";
    return false;
  }
  bool same = true;
  for (auto [i, pair] : llvm::enumerate(llvm::zip(results, expected))) {
    const Difference difference = compare(std::get<0>(pair), std::get<1>(pair));
    const bool near = difference.largest <= tolerance;
    same &= near;
    llvm::outs() << "result " << i << ": ";
    if (difference.comparable)
      llvm::outs() << "max difference "
                   << llvm::format("%.3g", difference.largest);
    if (!difference.where.empty())
      llvm::outs() << (difference.comparable ? " at " : "") << difference.where;
    llvm::outs() << (near ? "\n" : ": DIFFERENT\n");
  }
  llvm::outs().flush();
  if (!same)
    llvm::errs() << "foresight-interpret: results differ by more than "
                 << llvm::format("%.3g", tolerance.getValue()) << "\n";
  return same;
}

} // namespace

int main(int argc, char **argv) {
  llvm::InitLLVM init(argc, argv);
  cl::HideUnrelatedOptions(category);
  cl::ParseCommandLineOptions(argc, argv, "Runs a foresight function in f64\n");

  DialectRegistry registry;
  registerForesightDialects(registry);
  MLIRContext context(registry);
  llvm::SourceMgr sources, otherSources;
  SourceMgrDiagnosticHandler diagnostics(sources, &context);
  OwningOpRef<ModuleOp> module = parse(input, sources, context);
  if (!module)
    return 1;

  SmallVector<Data> arguments;
  FailureOr<SmallVector<Data>> results =
      runEntry(*module, entry, {}, &arguments);
  if (failed(results))
    return 1;
  if (other.empty() && otherEntry.empty()) {
    for (auto [i, result] : llvm::enumerate(*results))
      if (limit > 0)
        llvm::outs() << "result " << i << ": " << print(result, limit) << "\n";
    return 0;
  }

  SourceMgrDiagnosticHandler otherDiagnostics(otherSources, &context);
  OwningOpRef<ModuleOp> otherModule;
  if (!other.empty()) {
    otherModule = parse(other, otherSources, context);
    if (!otherModule)
      return 1;
  }
  FailureOr<SmallVector<Data>> expected =
      runEntry(otherModule ? *otherModule : *module,
               otherEntry.empty() ? entry : otherEntry, arguments);
  return succeeded(expected) && agree(*results, *expected) ? 0 : 1;
}
