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
    ```mlir
    %kv1 = foresight.kv_append %kv0, %k, %v at %positions
        : !foresight.kv_cache<32 x 64, 2048, f16>, tensor<1x2048xf32>, tensor<1xi32>
    ```
  }];
  let arguments = (ins Foresight_KvCacheType:$cache, Foresight_StoredRows:$keys, Foresight_StoredRows:$values, Foresight_Ids:$positions);
  let results = (outs Foresight_KvCacheType:$result);
  let assemblyFormat = "$cache `,` $keys `,` $values `at` $positions attr-dict `:` qualified(type($cache)) `,` type($keys) `,` type($positions)";
  let hasVerifier = 1;
}

def Foresight_AttentionOp : Foresight_Op<"attention", [Pure, AttrSizedOperandSegments]> {
  let summary = "causal attention over a KV cache";
  let description = [{
    Per row `t` and head `h`, over the history tokens `s <= positions[t]`:
    `p = softmax_s(scale * q[t, h] . K[h, s])`, `result[t, h] = sum_s p_s V[h, s]`; softmax in f32.

    With `heads(%set)` heads outside the set give 0 and their history is not read. With `tokens(%set)` only history tokens in
    the set are attended to, and the row's own token always is. Both are approximations of dense attention.
    ```mlir
    %a = foresight.attention %q, %kv1 at %positions scale = 1.250000e-01
        : tensor<1x2048xf32>, !foresight.kv_cache<32 x 64, 2048, f16>, tensor<1xi32> -> tensor<1x2048xf32>
    ```
  }];
  let arguments = (ins Foresight_StoredRows:$query, Foresight_KvCacheType:$cache, Foresight_Ids:$positions,
                       Optional<Foresight_IndexSetType>:$heads, Optional<Foresight_IndexSetType>:$tokens, F64Attr:$scale);
  let results = (outs Foresight_StoredRows:$result);
  let assemblyFormat = [{
    $query `,` $cache `at` $positions (`heads` `(` $heads^ `:` qualified(type($heads)) `)`)? (`tokens` `(` $tokens^ `:` qualified(type($tokens)) `)`)?
    `scale` `=` $scale attr-dict `:` type($query) `,` qualified(type($cache)) `,` type($positions) `->` type($result)
  }];
  let hasVerifier = 1;
}

#endif
