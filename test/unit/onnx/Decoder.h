//===- Decoder.h - Runs a raised model token by token -----------*- C++ -*-===//
#ifndef FORESIGHT_TEST_UNIT_ONNX_DECODER_H
#define FORESIGHT_TEST_UNIT_ONNX_DECODER_H

#include "foresight/Interpreter/Interpreter.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/BuiltinOps.h"

#include <cstdint>
#include <gtest/gtest.h>
#include <numeric>
#include <vector>

namespace foresight::test {

/// Runs `@step` token by token, as decoding does.
class Decoder {
public:
  explicit Decoder(mlir::ModuleOp module)
      : step(interpreter::findEntry(module, "step")), run(module, weights) {
    for (mlir::Type type : step.getArgumentTypes().drop_front(2)) {
      auto cacheType = mlir::cast<KvCacheType>(type);
      interpreter::KvCache cache{cacheType.getHeads(),
                                 cacheType.getHeadDim(),
                                 cacheType.getCapacity(),
                                 {},
                                 {}};
      auto size =
          static_cast<size_t>(cache.heads * cache.headDim * cache.capacity);
      cache.keys.resize(size);
      cache.values.resize(size);
      caches.push_back(std::move(cache));
    }
  }

  std::vector<double> next(mlir::ArrayRef<int64_t> tokens) {
    std::vector<int32_t> ids(tokens.begin(), tokens.end()),
        positions(tokens.size());
    std::iota(positions.begin(), positions.end(), position);
    position += static_cast<int32_t>(tokens.size());
    mlir::SmallVector<interpreter::Data> arguments = {
        interpreter::Ids{ids}, interpreter::Ids{positions}};
    arguments.append(caches.begin(), caches.end());
    auto results = run.run(step, arguments);
    EXPECT_TRUE(mlir::succeeded(results));
    if (mlir::failed(results))
      return {};
    caches.assign(results->begin() + 1, results->end());
    return (*results)[0].getIf<interpreter::Matrix>()->data;
  }

private:
  mlir::func::FuncOp step;
  interpreter::Weights weights;
  interpreter::Interpreter run;
  mlir::SmallVector<interpreter::Data> caches;
  int32_t position = 0;
};

} // namespace foresight::test

#endif
