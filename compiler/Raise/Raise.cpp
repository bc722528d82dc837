//===- Raise.cpp - onnx-level IR to @step ---------------------------------===//

#include "foresight/Raise/Raise.h"

#include "EmitStep.h"
#include "OptBlocks.h"
#include "Recogniser.h"

#include "foresight/Import/Onnx/ExpandFused.h"
#include "foresight/Import/Onnx/FoldQuantized.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/Verifier.h"
#include "mlir/Pass/PassRegistry.h"

using namespace mlir;
using namespace foresight;
using namespace foresight::raising;

/// Whether two programs are the same from the logits on. Names have been given
/// to the parts of both.
static bool sameModel(const Program &a, const Program &b) {
  llvm::StringMap<const Part *> named;
  std::vector<bool> liveA = a.live(), liveB = b.live();
  for (auto [i, part] : llvm::enumerate(a.parts))
    if (liveA[i])
      named[part.name] = &part;
  size_t matched = 0;
  for (auto [i, part] : llvm::enumerate(b.parts)) {
    if (!liveB[i])
      continue;
    const Part *other = named.lookup(part.name);
    if (!other || other->kind != part.kind || !(other->matrix == part.matrix) ||
        other->gamma != part.gamma || other->beta != part.beta ||
        !(other->rows == part.rows) || !(other->bias == part.bias) ||
        other->number != part.number || other->offset != part.offset ||
        other->activation != part.activation)
      return false;
    ++matched;
  }
  return matched == named.size();
}

LogicalResult foresight::raise(ModuleOp module, const RaiseOptions &options) {
  module.getContext()->loadDialect<ForesightDialect, func::FuncDialect>();
  auto graphs = module.getOps<onnx::GraphOp>();
  if (graphs.empty())
    return emitError(module.getLoc()) << "there is no onnx.graph to raise";
  if (!llvm::hasSingleElement(graphs))
    return emitError(module.getLoc())
           << "there is more than one onnx.graph to raise";
  onnx::GraphOp graph = *graphs.begin();
  if (failed(onnx::foldQuantized(graph)))
    return failure();
  onnx::expandFused(graph);

  RecogniserOptions recogniserOptions;
  recogniserOptions.explain = options.explain;
  Recogniser recogniser(graph, recogniserOptions);
  FailureOr<Program> program = recogniser.run();
  if (failed(program))
    return failure();
  FailureOr<OptModel> model =
      findOptBlocks(*program, graph.getLoc(), options.tieHead);
  if (failed(model))
    return failure();
  if (recogniser.isMerged()) {
    // The branch without a cache is what is compiled; the other one must be
    // the same model.
    recogniserOptions.usePast = true;
    recogniserOptions.explain = false;
    recogniserOptions.quiet = true;
    FailureOr<Program> cached = Recogniser(graph, recogniserOptions).run();
    if (failed(cached) ||
        failed(findOptBlocks(*cached, graph.getLoc(), options.tieHead,
                             /*quiet=*/true)))
      return failure();
    if (!sameModel(*program, *cached))
      return emitError(graph.getLoc())
             << "the branches with and without a cache are "
                "not the same model";
  }

  OpBuilder builder(module.getContext());
  OwningOpRef<ModuleOp> raised(ModuleOp::create(module.getLoc()));
  (*raised)->setAttrs(module->getAttrs());
  if (failed(emitStep(*raised, *program, *model, options)))
    return failure();
  if (failed(verify(*raised)))
    return failure();

  (*raised)->removeAttr("onnx.source");
  (*raised)->removeAttr("onnx.producer");
  graph.erase();
  module->setAttrs((*raised)->getAttrs());
  Block *body = module.getBody();
  body->getOperations().splice(body->end(),
                               (*raised).getBody()->getOperations());
  return success();
}

//===----------------------------------------------------------------------===//
// Pass
//===----------------------------------------------------------------------===//

namespace {

struct RaisePass : PassWrapper<RaisePass, OperationPass<ModuleOp>> {
  MLIR_DEFINE_EXPLICIT_INTERNAL_INLINE_TYPE_ID(RaisePass)

  RaisePass() = default;
  explicit RaisePass(const RaiseOptions &options) : dtype(options.dtype) {
    maxSeq = options.maxSeq;
    explain = options.explain;
    tieHead = options.tieHead;
  }
  RaisePass(const RaisePass &other) : PassWrapper(other), dtype(other.dtype) {}

  StringRef getArgument() const final { return "foresight-raise"; }
  StringRef getDescription() const final {
    return "Raise an onnx.graph to @step by what its nodes compute";
  }
  void getDependentDialects(DialectRegistry &registry) const final {
    registry.insert<ForesightDialect, func::FuncDialect>();
  }
  void runOnOperation() final {
    RaiseOptions options;
    options.maxSeq = maxSeq;
    options.explain = explain;
    options.tieHead = tieHead;
    options.dtype = dtype;
    if (failed(raise(getOperation(), options)))
      signalPassFailure();
  }

  std::optional<ElementType> dtype;
  Option<int64_t> maxSeq{*this, "max-seq",
                         llvm::cl::desc("Tokens that a KV cache has room for"),
                         llvm::cl::init(0)};
  Option<bool> explain{*this, "explain",
                       llvm::cl::desc("Say what each part is recognised as"),
                       llvm::cl::init(false)};
  Option<bool> tieHead{
      *this, "tie-head",
      llvm::cl::desc("Give hidden states the embedding as their head"),
      llvm::cl::init(false)};
};

} // namespace

std::unique_ptr<Pass> foresight::createRaisePass(const RaiseOptions &options) {
  return std::make_unique<RaisePass>(options);
}

void foresight::registerRaisePass() { PassRegistration<RaisePass>(); }
