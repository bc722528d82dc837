//===- ModelFacts.h - The `foresight.model` attribute -----------*- C++ -*-===//
#ifndef FORESIGHT_IMPORT_OPT_MODELFACTS_H
#define FORESIGHT_IMPORT_OPT_MODELFACTS_H

#include "foresight/support/Result.h"

#include "mlir/IR/BuiltinOps.h"

#include <cstdint>
#include <string>
#include <vector>

namespace foresight {

/// The manifest's `model` object; docs/design/bundle.md is its reference. In IR
/// it is the module attribute `foresight.model`: numbers are i64, `ffn_dim` and
/// `eos_token_ids` are array<i64>, the rest strings and booleans.
struct ModelFacts {
  std::string family = "opt", name, source;
  int64_t vocabSize = 0, hiddenSize = 0, layers = 0, heads = 0, headDim = 0;
  std::vector<int64_t> ffnDim;
  int64_t maxSeq = 0;
  std::string dtype;
  std::string sparsity = "none";
  bool synthetic = false;
  int64_t bosTokenId = 2;
  std::vector<int64_t> eosTokenIds = {2};
  int64_t padTokenId = 1;
  int64_t parameters = 0;
};

constexpr const char *kModelAttr = "foresight.model";

void setModelFacts(mlir::ModuleOp module, const ModelFacts &facts);
/// Fails if the module has no facts or a fact has another type.
Result<ModelFacts> getModelFacts(mlir::ModuleOp module);

/// Ids that generation starts and ends with.
struct TokenIds {
  int64_t bos = 2;
  std::vector<int64_t> eos = {2};
  int64_t pad = 1;
};
/// Reads `config.json`, and `generation_config.json` over it, of a folder;
/// what neither says is OPT's default.
Result<TokenIds> readTokenIds(const std::string &folder);

} // namespace foresight
#endif
