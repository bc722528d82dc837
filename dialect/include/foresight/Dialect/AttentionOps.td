//===- AttentionOps.td - KV cache and attention -----------------*- tablegen -*-===//
#ifndef FORESIGHT_ATTENTION_OPS_TD
#define FORESIGHT_ATTENTION_OPS_TD

include "foresight/Dialect/DenseOps.td"

def Foresight_KvAppendOp : Foresight_Op<"kv_append", [Pure, AllTypesMatch<["cache", "result"]>, AllTypesMatch<["keys", "values"]>]> {
  let summary = "write tokens' keys and values into a cache";
  let description = [{
    Writes `keys[t, h*headDim + j]` and `values[...]` at `positions[t]` of head `h`, rounded to the cache's element type,
    and returns the cache after that. Every head is written, also those that a later attention leaves out: a later token
    may select them. A position outside the cache is an error of whoever feeds the program.

    A cache of several sequences needs `in(%sequences)`: one number for all rows, or one a row. Rows of one call are
    of different positions or sequences.
    ```mlir
    %kv1 = foresight.kv_append %kv0, %k, %v at %positions
        : !foresight.kv_cache<32 x 64, 2048, f16>, tensor<1x2048xf32>, tensor<1xi32>
    ```
  }];
  let arguments = (ins Foresight_KvCacheType:$cache, Foresight_StoredRows:$keys, Foresight_StoredRows:$values, Foresight_Ids:$positions,
                       Optional<Foresight_Ids>:$sequences);
  let results = (outs Foresight_KvCacheType:$result);
  let assemblyFormat = [{
    $cache `,` $keys `,` $values `at` $positions (`in` `(` $sequences^ `:` type($sequences) `)`)?
    attr-dict `:` qualified(type($cache)) `,` type($keys) `,` type($positions)
  }];
  let builders = [OpBuilder<(ins "::mlir::Value":$cache, "::mlir::Value":$keys, "::mlir::Value":$values, "::mlir::Value":$positions), [{
    build($_builder, $_state, cache.getType(), cache, keys, values, positions, ::mlir::Value());
  }]>];
  let hasVerifier = 1;
}

def Foresight_AttentionOp : Foresight_Op<"attention", [Pure, AttrSizedOperandSegments]> {
  let summary = "causal attention over a KV cache";
  let description = [{
    Per row `t` and head `h`, over the history tokens `s <= positions[t]`:
    `p = softmax_s(scale * q[t, h] . K[h, s])`, `result[t, h] = sum_s p_s V[h, s]`; softmax in f32.

    With `heads(%set)` heads outside the set give 0 and their history is not read. With `tokens(%set)` only history tokens in
    the set are attended to, and the row's own token always is. Both are approximations of dense attention.

    With `in(%sequences)`, as of `kv_append`, the history of a row is that of its sequence.
    ```mlir
    %a = foresight.attention %q, %kv1 at %positions scale = 1.250000e-01
        : tensor<1x2048xf32>, !foresight.kv_cache<32 x 64, 2048, f16>, tensor<1xi32> -> tensor<1x2048xf32>
    ```
  }];
  let arguments = (ins Foresight_StoredRows:$query, Foresight_KvCacheType:$cache, Foresight_Ids:$positions,
                       Optional<Foresight_Ids>:$sequences, Optional<Foresight_IndexSetType>:$heads, Optional<Foresight_IndexSetType>:$tokens, F64Attr:$scale);
  let results = (outs Foresight_StoredRows:$result);
  let assemblyFormat = [{
    $query `,` $cache `at` $positions (`in` `(` $sequences^ `:` type($sequences) `)`)? (`heads` `(` $heads^ `:` qualified(type($heads)) `)`)? (`tokens` `(` $tokens^ `:` qualified(type($tokens)) `)`)?
    `scale` `=` $scale attr-dict `:` type($query) `,` qualified(type($cache)) `,` type($positions) `->` type($result)
  }];
  let builders = [OpBuilder<(ins "::mlir::Type":$type, "::mlir::Value":$query, "::mlir::Value":$cache, "::mlir::Value":$positions, "double":$scale), [{
    build($_builder, $_state, type, query, cache, positions, ::mlir::Value(), ::mlir::Value(), ::mlir::Value(), $_builder.getF64FloatAttr(scale));
  }]>];
  let hasVerifier = 1;
}

#endif
