//===- DenseOps.td - The dense ops of OPT -----------------------*- tablegen -*-===//
#ifndef FORESIGHT_DENSE_OPS_TD
#define FORESIGHT_DENSE_OPS_TD

include "foresight/Dialect/WeightOps.td"

def Foresight_Rows : 2DTensorOf<[F32]>;                  // [tokens, features]
// A result of 16 bits is rounded to them: where all of its readers would
// (--foresight-narrow-rows).
def Foresight_StoredRows : 2DTensorOf<[F16, BF16, F32]>;
def Foresight_Matrix : 2DTensorOf<[F16, BF16, F32]>;
def Foresight_Vector : 1DTensorOf<[F16, BF16, F32]>;
def Foresight_Ids : 1DTensorOf<[I32]>;                   // [tokens]

def Foresight_GatherRowsOp : Foresight_Op<"gather_rows", [Pure]> {
  let summary = "rows of a table, one a token";
  let description = [{
    `result[t, :] = table[ids[t] + offset, :]`. Embeddings have offset 0; OPT's learned positions have
    offset 2. An id outside the table is an error of whoever feeds the program.
    ```mlir
    %e = foresight.gather_rows %table[%ids] : tensor<50272x2048xf16>, tensor<1xi32> -> tensor<1x2048xf32>
    ```
  }];
  let arguments = (ins Foresight_Matrix:$table, Foresight_Ids:$ids, DefaultValuedAttr<I64Attr, "0">:$offset);
  let results = (outs Foresight_Rows:$result);
  let assemblyFormat = "$table `[` $ids `]` attr-dict `:` type($table) `,` type($ids) `->` type($result)";
  let hasVerifier = 1;
}

def Foresight_LayerNormOp : Foresight_Op<"layer_norm", [Pure, AttrSizedOperandSegments]> {
  let summary = "LayerNorm over the features of each row";
  let description = [{
    `result[t, k] = (x[t, k] - mean_t) / sqrt(var_t + epsilon) * gamma[k] + beta[k]`, statistics in f32, the
    biased variance. Missing gamma is 1, missing beta is 0.

    The variance is summed around the mean, in a second pass: without gamma and beta a row is then never longer than `sqrt(features)` (but for
    rounding), on which a certified selection relies.
    ```mlir
    %n = foresight.layer_norm %x gamma(%g : tensor<2048xf32>) beta(%b : tensor<2048xf32>) epsilon = 1.000000e-05
        : tensor<1x2048xf32> -> tensor<1x2048xf32>
    ```
  }];
  let arguments = (ins Foresight_Rows:$x, Optional<Foresight_Vector>:$gamma, Optional<Foresight_Vector>:$beta,
                       F64Attr:$epsilon);
  let results = (outs Foresight_StoredRows:$result);
  let assemblyFormat = [{
    $x (`gamma` `(` $gamma^ `:` type($gamma) `)`)? (`beta` `(` $beta^ `:` type($beta) `)`)?
    `epsilon` `=` $epsilon attr-dict `:` type($x) `->` type($result)
  }];
  let hasVerifier = 1;
}

def Foresight_LinearOp : Foresight_Op<"linear", [Pure]> {
  let summary = "multiply by the transpose of a weight matrix";
  let description = [{
    `result[t, i] = activation(sum_k x[t, k] * weight[i, k] + bias[i])`. `weight` is `[out, in]`, so one output is one
    contiguous row. Accumulates in f32, in any order. `activation` is none if it is not said.
    ```mlir
    %h = foresight.linear %x, %fc1 bias(%b1 : tensor<8192xf32>) {activation = #foresight.activation<relu>}
        : tensor<1x2048xf32>, tensor<8192x2048xf16> -> tensor<1x8192xf32>
    ```
  }];
  let arguments = (ins Foresight_StoredRows:$x, Foresight_Matrix:$weight, Optional<Foresight_Vector>:$bias,
                       DefaultValuedAttr<Foresight_ActivationAttr, "::foresight::Activation::None">:$activation);
  let results = (outs Foresight_StoredRows:$result);
  let assemblyFormat = [{
    $x `,` $weight (`bias` `(` $bias^ `:` type($bias) `)`)? attr-dict `:` type($x) `,` type($weight) `->` type($result)
  }];
  let hasVerifier = 1;
}

def Foresight_ColumnLinearOp : Foresight_Op<"column_linear", [Pure, AttrSizedOperandSegments]> {
  let summary = "add up the weight rows of the inputs, one row an input";
  let description = [{
    `result[t, c] = bias[c] + sum_i x[t, i] * weight[i, c]`. `weight` is `[in, out]`: all that input `i` contributes is one
    contiguous row, so an input that is not there costs nothing to leave out. fc2 is stored this way, neuron-major.
    Sums are in f32, one fused multiply-add a term, in an order that the shapes alone decide: ascending `i` in each of some
    equal segments of the rows, then the segments; the bias comes last.

    With `rows(%set)` only members of the set are added. With `skip_zeros` a term whose `x[t, i]` is zero is not read; the
    result is the same for finite weights, bit for bit.
    ```mlir
    %y = foresight.column_linear %h, %fc2 bias(%b2 : tensor<2048xf32>) {skip_zeros}
        : tensor<1x8192xf32>, tensor<8192x2048xf16> -> tensor<1x2048xf32>
    ```
  }];
  let arguments = (ins Foresight_Rows:$x, Foresight_Matrix:$weight, Optional<Foresight_Vector>:$bias,
                       Optional<Foresight_IndexSetType>:$rows, UnitAttr:$skip_zeros);
  let results = (outs Foresight_Rows:$result);
  let assemblyFormat = [{
    $x `,` $weight (`bias` `(` $bias^ `:` type($bias) `)`)? (`rows` `(` $rows^ `:` qualified(type($rows)) `)`)?
    attr-dict `:` type($x) `,` type($weight) `->` type($result)
  }];
  let hasVerifier = 1;
}

def Foresight_MlpOp : Foresight_Op<"mlp", [Pure, AttrSizedOperandSegments]> {
  let summary = "a dense two-layer MLP";
  let description = [{
    `h = activation(x fc1^T + b1)`, `result = b2 + h fc2`. `fc1` is `[neurons, in]`; `fc2` is `[neurons, out]`, neuron-major:
    the transpose of the matrix in a checkpoint.
    ```mlir
    %y = foresight.mlp %x, %fc1 bias(%b1 : tensor<8192xf32>) <relu> %fc2 bias(%b2 : tensor<2048xf32>)
        : tensor<1x2048xf32>, tensor<8192x2048xf16>, tensor<8192x2048xf16> -> tensor<1x2048xf32>
    ```
  }];
  let arguments = (ins Foresight_Rows:$x, Foresight_Matrix:$fc1, Optional<Foresight_Vector>:$bias1,
                       Foresight_Matrix:$fc2, Optional<Foresight_Vector>:$bias2, Foresight_ActivationAttr:$activation);
  let results = (outs Foresight_Rows:$result);
  let assemblyFormat = [{
    $x `,` $fc1 (`bias` `(` $bias1^ `:` type($bias1) `)`)? $activation $fc2 (`bias` `(` $bias2^ `:` type($bias2) `)`)?
    attr-dict `:` type($x) `,` type($fc1) `,` type($fc2) `->` type($result)
  }];
  let hasVerifier = 1;
}

def Foresight_ActivationOp : Foresight_Op<"activate", [Pure, SameOperandsAndResultType]> {
  let summary = "an activation function, element by element";
  let description = [{
    `relu` is `max(x, 0)` and keeps a NaN; `gelu` is `x/2 (1 + erf(x / sqrt 2))`; `gelu_tanh` its usual approximation by tanh; `none` folds away.
    Ops that multiply have an `activation` of their own; this one is for what could not be joined.
  }];
  let arguments = (ins Foresight_Rows:$x, Foresight_ActivationAttr:$activation);
  let results = (outs Foresight_Rows:$result);
  let assemblyFormat = "$x $activation attr-dict `:` type($x)";
  let hasFolder = 1;
}

def Foresight_AddOp : Foresight_Op<"add", [Pure, Commutative, SameOperandsAndResultType]> {
  let summary = "element by element sum: the residual stream";
  let description = [{ `result[t, k] = lhs[t, k] + rhs[t, k]`. }];
  let arguments = (ins Foresight_Rows:$lhs, Foresight_Rows:$rhs);
  let results = (outs Foresight_Rows:$result);
  let assemblyFormat = "$lhs `,` $rhs attr-dict `:` type($result)";
}

def Foresight_LastRowOp : Foresight_Op<"last_row", [Pure]> {
  let summary = "the last token's row";
  let description = [{ `result[0, :] = x[T - 1, :]`: only the last token of a prompt needs logits. }];
  let arguments = (ins Foresight_Rows:$x);
  let results = (outs Foresight_Rows:$result);
  let assemblyFormat = "$x attr-dict `:` type($x) `->` type($result)";
  let hasVerifier = 1;
  let hasFolder = 1;
}

#endif
