//===- SelectionOps.td - Prediction, selection, gathered products -*- tablegen -*-===//
#ifndef FORESIGHT_SELECTION_OPS_TD
#define FORESIGHT_SELECTION_OPS_TD

include "foresight/Dialect/AttentionOps.td"

def Foresight_PredictOp : Foresight_Op<"predict", [Pure]> {
  let summary = "scores that say which neurons or heads will matter";
  let description = [{
    With one `!foresight.low_bit` predictor: `scores[t, i] = q_i . x[t] + b_i`, `x` being the *normalised* row (LayerNorm
    without gamma and beta, which are folded into the copy, times the copy's balance if it has one). `b_i` is the folded bias and the copy's allowance for f32 rounding,
    so that a score errs upwards: it is made for `select_certified`. With two matrices `[r, d]` and `[f, r]`, a low-rank predictor:
    `scores = x first^T second^T`.

    `lookahead` says how far before its consumer's own input `x` was taken. `here` is the consumer's own input; anything earlier
    is an approximation whatever the selection's rule. The token is there when the scores are.
    ```mlir
    %scores, %done = foresight.predict %n, %copy
        : tensor<1x2048xf32>, !foresight.low_bit<8192 x 2048, 4> -> tensor<1x8192xf32>
    ```
  }];
  let arguments = (ins Foresight_Rows:$x, Variadic<AnyType>:$predictor,
                       DefaultValuedAttr<Foresight_LookaheadAttr, "::foresight::Lookahead::Here">:$lookahead);
  let results = (outs Foresight_Rows:$scores, Foresight_TokenType:$done);
  let assemblyFormat = "$x `,` $predictor attr-dict `:` type($x) `,` type($predictor) `->` type($scores)";
  let hasVerifier = 1;
}

def Foresight_SelectCertifiedOp : Foresight_Op<"select_certified", [Pure]> {
  let summary = "all neurons that the error bound of a low-bit copy cannot prove inactive";
  let description = [{
    Keeps `i` unless `scores[t, i] + kappa * ||e_i|| * ||x[t]|| <= 0`, where `e_i` is what rounding row `i` lost. By Cauchy-Schwarz the
    true pre-activation is at most `scores + ||e_i|| ||x||`, so at `kappa = 1` what is left out is provably inactive: ReLU's
    result is 0 and the selection is lossless. Smaller kappa is a margin: `kappa = z / sqrt(d)` is `z` standard errors of
    rounding that behaves as noise, and is an approximation.

    A lowering adds the rounding of its own arithmetic to the bound, so it may keep more than this formula, never fewer. `kappa` is between
    0 and 1; a score that is NaN is kept.
    ```mlir
    %kept = foresight.select_certified %scores, %n, %copy kappa = 1.000000e+00 after(%done)
        : tensor<1x8192xf32>, tensor<1x2048xf32>, !foresight.low_bit<8192 x 2048, 4> -> !foresight.index_set<8192 of 8192>
    ```
  }];
  let arguments = (ins Foresight_Rows:$scores, Foresight_Rows:$x, Foresight_LowBitType:$copy,
                       Variadic<Foresight_TokenType>:$after, F64Attr:$kappa);
  let results = (outs Foresight_IndexSetType:$result);
  let assemblyFormat = [{
    $scores `,` $x `,` $copy `kappa` `=` $kappa (`after` `(` $after^ `)`)? attr-dict
    `:` type($scores) `,` type($x) `,` qualified(type($copy)) `->` qualified(type($result))
  }];
  let hasVerifier = 1;
}

def Foresight_SelectThresholdOp : Foresight_Op<"select_threshold", [Pure]> {
  let summary = "all units that score above a threshold";
  let description = [{ Keeps `i` iff `scores[t, i] > threshold`. An approximation. }];
  let arguments = (ins Foresight_Rows:$scores, Variadic<Foresight_TokenType>:$after, F64Attr:$threshold);
  let results = (outs Foresight_IndexSetType:$result);
  let assemblyFormat = "$scores `threshold` `=` $threshold (`after` `(` $after^ `)`)? attr-dict `:` type($scores) `->` qualified(type($result))";
  let hasVerifier = 1;
}

def Foresight_SelectTopkOp : Foresight_Op<"select_topk", [Pure]> {
  let summary = "the `capacity` units with the highest scores";
  let description = [{
    Ties go to the lower index; NaN scores rank last. The reference for selections without a sort. An approximation.
  }];
  let arguments = (ins Foresight_Rows:$scores, Variadic<Foresight_TokenType>:$after);
  let results = (outs Foresight_IndexSetType:$result);
  let assemblyFormat = "$scores (`after` `(` $after^ `)`)? attr-dict `:` type($scores) `->` qualified(type($result))";
  let hasVerifier = 1;
}

def Foresight_GatherLinearOp : Foresight_Op<"gather_linear", [Pure]> {
  let summary = "multiply by the weight rows named by an index set";
  let description = [{
    `result[t, i] = activation(sum_k x[t, k] * weight[i, k] + bias[i])` for members `i` of row `t`'s set, 0 elsewhere; reads the
    members' rows only. Column `i` of the result belongs to unit `i`; where it is kept in memory is the target's choice.
    A member's value is bit for bit what `foresight.linear` gives.
    ```mlir
    %h = foresight.gather_linear %x, %fc1 bias(%b1 : tensor<8192xf32>) rows(%kept) {activation = #foresight.activation<relu>}
        : tensor<1x2048xf32>, tensor<8192x2048xf16>, !foresight.index_set<8192 of 8192> -> tensor<1x8192xf32>
    ```
  }];
  let arguments = (ins Foresight_Rows:$x, Foresight_Matrix:$weight, Optional<Foresight_Vector>:$bias, Foresight_IndexSetType:$rows,
                       DefaultValuedAttr<Foresight_ActivationAttr, "::foresight::Activation::None">:$activation);
  let results = (outs Foresight_Rows:$result);
  let assemblyFormat = [{
    $x `,` $weight (`bias` `(` $bias^ `:` type($bias) `)`)? `rows` `(` $rows `)` attr-dict
    `:` type($x) `,` type($weight) `,` qualified(type($rows)) `->` type($result)
  }];
  let hasVerifier = 1;
}

def Foresight_SparseMlpOp : Foresight_Op<"sparse_mlp", [Pure, AttrSizedOperandSegments]> {
  let summary = "an MLP of the selected neurons";
  let description = [{
    `result = bias2 + sum_{i in rows} activation(x . fc1_i + bias1_i) * fc2_i`. `fc1` and `fc2` are `[neurons, in]` and `[neurons, out]`.
    With no set, all neurons. With `skip_zeros` the fc2 row of a neuron that came out 0 is not read (exact).
    An approximation of `foresight.mlp` unless the set is certified at kappa 1.
    ```mlir
    %y = foresight.sparse_mlp %x, %fc1 bias(%b1 : tensor<8192xf32>) <relu> %fc2 bias(%b2 : tensor<2048xf32>)
        rows(%kept : !foresight.index_set<8192 of 8192>) {skip_zeros}
        : tensor<1x2048xf32>, tensor<8192x2048xf16>, tensor<8192x2048xf16> -> tensor<1x2048xf32>
    ```
  }];
  let arguments = (ins Foresight_Rows:$x, Foresight_Matrix:$fc1, Optional<Foresight_Vector>:$bias1,
                       Foresight_Matrix:$fc2, Optional<Foresight_Vector>:$bias2, Optional<Foresight_IndexSetType>:$rows,
                       Foresight_ActivationAttr:$activation, UnitAttr:$skip_zeros);
  let results = (outs Foresight_Rows:$result);
  let assemblyFormat = [{
    $x `,` $fc1 (`bias` `(` $bias1^ `:` type($bias1) `)`)? $activation $fc2 (`bias` `(` $bias2^ `:` type($bias2) `)`)?
    (`rows` `(` $rows^ `:` qualified(type($rows)) `)`)? attr-dict `:` type($x) `,` type($fc1) `,` type($fc2) `->` type($result)
  }];
  let hasVerifier = 1;
  let hasCanonicalizer = 1;
}

#endif
