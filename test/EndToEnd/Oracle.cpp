//===- Oracle.cpp - A scheduled module, executed in f64 -------------------===//

#include "Oracle.h"

#include "foresight/Interpreter/Interpreter.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/MLIRContext.h"
#include "mlir/Parser/Parser.h"

#include <stdexcept>

using namespace foresight;
using namespace foresight::test;
using interpreter::Data;

struct Oracle::Impl {
  mlir::MLIRContext context{mlir::MLIRContext::Threading::DISABLED};
  mlir::OwningOpRef<mlir::ModuleOp> module;
  interpreter::Weights weights;
  std::vector<Data> caches;
  int32_t position = 0;
};

/// A cache of zeros: every position that is read is written before.
static interpreter::KvCache emptyCache(KvCacheType type) {
  interpreter::KvCache cache;
  cache.heads = type.getHeads();
  cache.headDim = type.getHeadDim();
  cache.capacity = type.getCapacity();
  cache.keys.resize(cache.heads * cache.headDim * cache.capacity);
  cache.values = cache.keys;
  return cache;
}

Oracle::Oracle(const std::string &scheduled) : impl(new Impl) {
  impl->context.loadDialect<ForesightDialect, mlir::func::FuncDialect>();
  impl->module =
      mlir::parseSourceString<mlir::ModuleOp>(scheduled, &impl->context);
  if (!impl->module)
    throw std::runtime_error("the scheduled module does not parse");
  auto decode = interpreter::findEntry(*impl->module, "decode");
  for (mlir::Type type : decode.getArgumentTypes())
    if (auto cache = mlir::dyn_cast<KvCacheType>(type))
      impl->caches.push_back(emptyCache(cache));
}

Oracle::~Oracle() = default;

std::vector<double> Oracle::run(const std::string &entry,
                                std::vector<int32_t> ids) {
  interpreter::Ids positions;
  for (size_t i = 0; i < ids.size(); ++i)
    positions.values.push_back(impl->position++);
  std::vector<Data> arguments = {interpreter::Ids{std::move(ids)}, positions};
  arguments.insert(arguments.end(), impl->caches.begin(), impl->caches.end());
  interpreter::Interpreter interpreter(*impl->module, impl->weights);
  auto results =
      interpreter.run(interpreter::findEntry(*impl->module, entry), arguments);
  if (mlir::failed(results))
    throw std::runtime_error("the interpreter refuses @" + entry);
  impl->caches.assign(results->begin() + 1, results->end());
  return results->front().getIf<interpreter::Matrix>()->data;
}
