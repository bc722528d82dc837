//===- ForesightTypes.td - Types of the dialect -----------------*- tablegen -*-===//
#ifndef FORESIGHT_TYPES_TD
#define FORESIGHT_TYPES_TD

include "foresight/Dialect/ForesightBase.td"

def Foresight_TokenType : Foresight_Type<"Token", "token"> {
  let summary = "that something has happened";
  let description = [{
    Yielded by work that may run early; its consumer waits on it. A token carries no data.
  }];
}

def Foresight_IndexSetType : Foresight_Type<"IndexSet", "index_set"> {
  let summary = "at most `capacity` units kept out of `universe` candidates, one set a token row";
  let description = [{
    Names MLP neurons, attention heads or history tokens. Members are distinct and ascending, so
    a consumer may stream weights in memory order; how many there are is known only when the op
    that selects has run. Example: `!foresight.index_set<1024 of 8192>`. A selection by threshold
    or certificate has `capacity = universe`.
  }];
  let parameters = (ins "int64_t":$capacity, "int64_t":$universe);
  let assemblyFormat = "`<` $capacity `of` $universe `>`";
  let genVerifyDecl = 1;
}

def Foresight_KvCacheType : Foresight_Type<"KvCache", "kv_cache"> {
  let summary = "keys and values of one layer's attention";
  let description = [{
    Room for `capacity` tokens of `heads` heads with `headDim` elements each, stored head-major so
    that a head's history is one stream. Example: `!foresight.kv_cache<32 x 64, 2048, f16>`.
    With `sequences` it holds so many, one behind the other: `!foresight.kv_cache<32 x 64, 2048, f16, sequences = 8>`.
    A value of this type is the cache after some appends; an append takes a cache and returns
    the next one until buffers are planned, when both become the same memory.
  }];
  let parameters = (ins "int64_t":$heads, "int64_t":$headDim, "int64_t":$capacity, "::mlir::Type":$elementType,
                        DefaultValuedParameter<"int64_t", "1">:$sequences);
  let assemblyFormat = "`<` $heads `x` $headDim `,` $capacity `,` $elementType (`,` `sequences` `=` $sequences^)? `>`";
  let genVerifyDecl = 1;
}

def Foresight_LowBitType : Foresight_Type<"LowBit", "low_bit"> {
  let summary = "a low-bit copy of a weight matrix with its error bound";
  let description = [{
    `rows` rows of `columns` codes of `bits` bits (2 to 8) with one scale a row, and per row: the
    bias with LayerNorm's shift folded in, `||e||` (norm of what rounding the row lost) and `||q||`
    (norm of the low-bit row). Example: `!foresight.low_bit<8192 x 2048, 4>`.
    The quantiser, the bound and its derivation are in `kernels/lowbit`.
  }];
  let parameters = (ins "int64_t":$rows, "int64_t":$columns, "int64_t":$bits);
  let assemblyFormat = "`<` $rows `x` $columns `,` $bits `>`";
  let genVerifyDecl = 1;
}

#endif
