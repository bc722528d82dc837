// RUN: foresight-opt %s --split-input-file --verify-diagnostics

// Types.

// expected-error@+1 {{keeps 9 of 8 units: the capacity must be between 1 and the universe}}
func.func private @set_larger_than_its_universe(!foresight.index_set<9 of 8>)

// -----

// expected-error@+1 {{elements must be f16, bf16 or f32, found 'i8'}}
func.func private @cache_of_bytes(!foresight.kv_cache<2 x 4, 16, i8>)

// -----

// expected-error@+1 {{bits must be between 2 and 8, found 1}}
func.func private @one_bit(!foresight.low_bit<8 x 4, 1>)

// -----

// Weights.

// expected-error@+1 {{has 40 elements, which take 160 bytes as 'f32', but its source has 80 bytes}}
foresight.weight @w : tensor<10x4xf16> = #foresight.external<"m", offset = 0, bytes = 80, f32>

// -----

// expected-error@+1 {{starts at byte -4 of its file}}
foresight.weight @w : tensor<10x4xf16> = #foresight.external<"m", offset = -4, bytes = 160, f32>

// -----

// expected-error@+1 {{has rank 1 but only a matrix can be stored transposed}}
foresight.weight @w : tensor<4xf32> = #foresight.external<"m", offset = 0, bytes = 16, f32, transposed = true>

// -----

// expected-error@+1 {{reads elements of type 'i8' but only f16, bf16, f32 and f64 are read}}
foresight.weight @w : tensor<4xf32> = #foresight.external<"m", offset = 0, bytes = 4, i8>

// -----

// expected-error@+1 {{has type '!foresight.low_bit<8 x 4, 4>' but a file holds tensors}}
foresight.weight @w : !foresight.low_bit<8 x 4, 4> = #foresight.external<"m", offset = 0, bytes = 32, f32>

// -----

// expected-error@+1 {{needs a finite mean and a finite deviation of at least 0, found 0.000000e+00 and -1.000000e+00}}
foresight.weight @w : tensor<4xf32> = #foresight.synthetic<seed = 1, mean = 0.0 : f64, deviation = -1.0 : f64>

// -----

// expected-error@+1 {{must be a vector or matrix of known shape that is not empty, found 'tensor<?x4xf32>'}}
foresight.weight @w : tensor<?x4xf32> = #foresight.synthetic<seed = 1, mean = 0.0 : f64, deviation = 1.0 : f64>

// -----

// expected-error@+1 {{elements must be f16, bf16 or f32, found 'i32'}}
foresight.weight @w : tensor<4xi32> = dense<1> : tensor<4xi32>

// -----

// expected-error@+1 {{has type 'tensor<4xf32>' but its elements have type 'tensor<5xf32>'}}
foresight.weight @w : tensor<4xf32> = dense<1.0> : tensor<5xf32>

// -----

// expected-error@+1 {{needs an external, synthetic, derived or dense source, found "model.bin"}}
foresight.weight @w : tensor<4xf32> = "model.bin"

// -----

// expected-error@+1 {{is derived from @v, which is not a foresight.weight of this module}}
foresight.weight @w : tensor<4x8xf32> = #foresight.derived<transpose, [@v]>

// -----

foresight.weight @v : tensor<8x5xf32> = dense<1.0> : tensor<8x5xf32>
// expected-error@+1 {{has type 'tensor<4x8xf32>', for which @v must have shape [8, 4], but it has type 'tensor<8x5xf32>'}}
foresight.weight @w : tensor<4x8xf32> = #foresight.derived<transpose, [@v]>

// -----

foresight.weight @v : tensor<8x4xf32> = dense<1.0> : tensor<8x4xf32>
// expected-error@+1 {{is derived by transpose, which takes one source, from 2}}
foresight.weight @w : tensor<4x8xf32> = #foresight.derived<transpose, [@v, @v]>

// -----

foresight.weight @v : tensor<8x4xf32> = dense<1.0> : tensor<8x4xf32>
// expected-error@+1 {{the weight has 12 rows but what it is derived from has 16 rows}}
foresight.weight @w : tensor<12x4xf32> = #foresight.derived<concat_rows, [@v, @v]>

// -----

foresight.weight @v : tensor<8x4xf32> = dense<1.0> : tensor<8x4xf32>
foresight.weight @u : tensor<8x5xf32> = dense<1.0> : tensor<8x5xf32>
// expected-error@+1 {{has type 'tensor<16x4xf32>' but @u, of type 'tensor<8x5xf32>', has other columns}}
foresight.weight @w : tensor<16x4xf32> = #foresight.derived<concat_rows, [@v, @u]>

// -----

foresight.weight @v : tensor<8x4xf32> = dense<1.0> : tensor<8x4xf32>
// expected-error@+1 {{has type 'tensor<4x4xf32>', which are no rows of @v, of type 'tensor<8x4xf32>', from 5 on}}
foresight.weight @w : tensor<4x4xf32> = #foresight.derived<slice_rows, [@v], first = 5>

// -----

foresight.weight @v : tensor<8x4xf32> = dense<1.0> : tensor<8x4xf32>
// expected-error@+1 {{is derived by transpose, which has no first row}}
foresight.weight @w : tensor<4x8xf32> = #foresight.derived<transpose, [@v], first = 5>

// -----

foresight.weight @v : tensor<8x4xf32> = dense<1.0> : tensor<8x4xf32>
// expected-error@+1 {{has type '!foresight.low_bit<8 x 4, 4>' but is derived by transpose}}
foresight.weight @w : !foresight.low_bit<8 x 4, 4> = #foresight.derived<transpose, [@v]>

// -----

foresight.weight @v : tensor<8x4xf32> = dense<1.0> : tensor<8x4xf32>
// expected-error@+1 {{is derived by low_bit, which takes weight, bias, gamma, beta and perhaps balance, from 1}}
foresight.weight @w : !foresight.low_bit<8 x 4, 4> = #foresight.derived<low_bit, [@v]>

// -----

foresight.weight @b : tensor<8xf32> = dense<1.0> : tensor<8xf32>
// expected-error@+1 {{is derived by low_bit but its source 0 is missing}}
foresight.weight @w : !foresight.low_bit<8 x 4, 4> = #foresight.derived<low_bit, [@none, @b, @none, @none]>

// -----

foresight.weight @v : tensor<8x4xf32> = dense<1.0> : tensor<8x4xf32>
foresight.weight @g : tensor<8xf32> = dense<1.0> : tensor<8xf32>
// expected-error@+1 {{has type '!foresight.low_bit<8 x 4, 4>', for which @g must have shape [4], but it has type 'tensor<8xf32>'}}
foresight.weight @w : !foresight.low_bit<8 x 4, 4> = #foresight.derived<low_bit, [@v, @none, @g, @none]>

// -----

foresight.weight @v : tensor<8x4xf32> = dense<1.0> : tensor<8x4xf32>
// expected-error@+1 {{is derived by balance, which takes weight and gamma, from 1}}
foresight.weight @w : tensor<4xf32> = #foresight.derived<balance, [@v]>

// -----

foresight.weight @v : tensor<8x4xf32> = dense<1.0> : tensor<8x4xf32>
// expected-error@+1 {{has type 'tensor<8xf32>', for which @v must have shape [8, 8], but it has type 'tensor<8x4xf32>'}}
foresight.weight @w : tensor<8xf32> = #foresight.derived<balance, [@v, @none]>

// -----

foresight.weight @v : tensor<4xf32> = dense<1.0> : tensor<4xf32>
// expected-error@+1 {{has type 'tensor<4xf32>' and is made from 'tensor<4xf32>', but balance is a vector made from a matrix}}
foresight.weight @w : tensor<4xf32> = #foresight.derived<balance, [@v, @none]>

// -----

foresight.weight @v : tensor<8x4xf32> = dense<1.0> : tensor<8x4xf32>
foresight.weight @c : tensor<8xf32> = dense<1.0> : tensor<8xf32>
// expected-error@+1 {{has type '!foresight.low_bit<8 x 4, 4>', for which @c must have shape [4], but it has type 'tensor<8xf32>'}}
foresight.weight @w : !foresight.low_bit<8 x 4, 4> = #foresight.derived<low_bit, [@v, @none, @none, @none, @c]>

// -----

func.func @unknown_weight() {
  // expected-error@+1 {{names @w, which is not a foresight.weight of this module}}
  %w = foresight.get_weight @w : tensor<4xf32>
  return
}

// -----

foresight.weight @w : tensor<4xf32> = dense<1.0> : tensor<4xf32>
func.func @weight_of_another_type() {
  // expected-error@+1 {{has type 'tensor<4xf16>' but @w has type 'tensor<4xf32>'}}
  %w = foresight.get_weight @w : tensor<4xf16>
  return
}

// -----

// Dense ops.

func.func @ids_and_rows(%t: tensor<10x4xf16>, %ids: tensor<2xi32>) {
  // expected-error@+1 {{ids has 2 tokens but the result has 1 tokens}}
  %e = foresight.gather_rows %t[%ids] : tensor<10x4xf16>, tensor<2xi32> -> tensor<1x4xf32>
  return
}

// -----

func.func @table_width(%t: tensor<10x4xf16>, %ids: tensor<1xi32>) {
  // expected-error@+1 {{table has 4 columns but the result has 5 features}}
  %e = foresight.gather_rows %t[%ids] : tensor<10x4xf16>, tensor<1xi32> -> tensor<1x5xf32>
  return
}

// -----

func.func @offset_outside_the_table(%t: tensor<10x4xf16>, %ids: tensor<1xi32>) {
  // expected-error@+1 {{has offset 10 but table has 10 rows}}
  %e = foresight.gather_rows %t[%ids] {offset = 10 : i64} : tensor<10x4xf16>, tensor<1xi32> -> tensor<1x4xf32>
  return
}

// -----

func.func @gamma_of_another_size(%x: tensor<1x4xf32>, %g: tensor<5xf32>) {
  // expected-error@+1 {{gamma has 5 elements but x has 4 features}}
  %n = foresight.layer_norm %x gamma(%g : tensor<5xf32>) epsilon = 1.0e-05 : tensor<1x4xf32> -> tensor<1x4xf32>
  return
}

// -----

func.func @negative_epsilon(%x: tensor<1x4xf32>) {
  // expected-error@+1 {{epsilon must be finite and not negative, found -1.000000e+00}}
  %n = foresight.layer_norm %x epsilon = -1.0 : tensor<1x4xf32> -> tensor<1x4xf32>
  return
}

// -----

func.func @linear_features(%x: tensor<1x5xf32>, %w: tensor<8x4xf16>) {
  // expected-error@+1 {{x has 5 features but weight has 4 columns}}
  %h = foresight.linear %x, %w : tensor<1x5xf32>, tensor<8x4xf16> -> tensor<1x8xf32>
  return
}

// -----

func.func @linear_rows(%x: tensor<1x4xf32>, %w: tensor<8x4xf16>) {
  // expected-error@+1 {{weight has 8 rows but the result has 9 features}}
  %h = foresight.linear %x, %w : tensor<1x4xf32>, tensor<8x4xf16> -> tensor<1x9xf32>
  return
}

// -----

func.func @linear_tokens(%x: tensor<?x4xf32>, %w: tensor<8x4xf16>) {
  // expected-error@+1 {{x has an unknown number of tokens but the result has 1 tokens}}
  %h = foresight.linear %x, %w : tensor<?x4xf32>, tensor<8x4xf16> -> tensor<1x8xf32>
  return
}

// -----

func.func @linear_bias(%x: tensor<1x4xf32>, %w: tensor<8x4xf16>, %b: tensor<4xf32>) {
  // expected-error@+1 {{bias has 4 elements but weight has 8 rows}}
  %h = foresight.linear %x, %w bias(%b : tensor<4xf32>) : tensor<1x4xf32>, tensor<8x4xf16> -> tensor<1x8xf32>
  return
}

// -----

func.func @column_linear_features(%x: tensor<1x4xf32>, %w: tensor<8x4xf16>) {
  // expected-error@+1 {{x has 4 features but weight has 8 rows}}
  %y = foresight.column_linear %x, %w : tensor<1x4xf32>, tensor<8x4xf16> -> tensor<1x4xf32>
  return
}

// -----

func.func @column_linear_set(%x: tensor<1x8xf32>, %w: tensor<8x4xf16>, %s: !foresight.index_set<4 of 16>) {
  // expected-error@+1 {{the set has 16 candidates but weight has 8 rows}}
  %y = foresight.column_linear %x, %w rows(%s : !foresight.index_set<4 of 16>) : tensor<1x8xf32>, tensor<8x4xf16> -> tensor<1x4xf32>
  return
}

// -----

func.func @mlp_neurons(%x: tensor<1x4xf32>, %a: tensor<8x4xf16>, %b: tensor<4x8xf16>) {
  // expected-error@+1 {{fc1 has 8 rows but fc2 has 4 rows}}
  %y = foresight.mlp %x, %a <relu> %b : tensor<1x4xf32>, tensor<8x4xf16>, tensor<4x8xf16> -> tensor<1x8xf32>
  return
}

// -----

func.func @last_row_is_one(%x: tensor<?x4xf32>) {
  // expected-error@+1 {{the result has 2 tokens but a last row has 1 tokens}}
  %y = foresight.last_row %x : tensor<?x4xf32> -> tensor<2x4xf32>
  return
}

// -----

// Attention.

func.func @keys_and_heads(%kv: !foresight.kv_cache<2 x 3, 16, f16>, %k: tensor<1x8xf32>, %at: tensor<1xi32>) {
  // expected-error@+1 {{keys has 8 features but the cache has 6 elements in all heads}}
  %r = foresight.kv_append %kv, %k, %k at %at : !foresight.kv_cache<2 x 3, 16, f16>, tensor<1x8xf32>, tensor<1xi32>
  return
}

// -----

func.func @keys_and_positions(%kv: !foresight.kv_cache<2 x 3, 16, f16>, %k: tensor<2x6xf32>, %at: tensor<1xi32>) {
  // expected-error@+1 {{keys has 2 tokens but positions has 1 tokens}}
  %r = foresight.kv_append %kv, %k, %k at %at : !foresight.kv_cache<2 x 3, 16, f16>, tensor<2x6xf32>, tensor<1xi32>
  return
}

// -----

func.func @no_sequence(%kv: !foresight.kv_cache<2 x 3, 16, f16, sequences = 4>, %k: tensor<1x6xf32>, %at: tensor<1xi32>) {
  // expected-error@+1 {{does not say which of the cache's 4 sequences its rows belong to}}
  %r = foresight.kv_append %kv, %k, %k at %at : !foresight.kv_cache<2 x 3, 16, f16, sequences = 4>, tensor<1x6xf32>, tensor<1xi32>
  return
}

// -----

func.func @sequences_of_other_rows(%kv: !foresight.kv_cache<2 x 3, 16, f16, sequences = 4>, %q: tensor<3x6xf32>, %at: tensor<3xi32>, %s: tensor<2xi32>) {
  // expected-error@+1 {{sequences has 2 tokens but positions has 3 tokens}}
  %r = foresight.attention %q, %kv at %at in(%s : tensor<2xi32>) scale = 1.0 : tensor<3x6xf32>, !foresight.kv_cache<2 x 3, 16, f16, sequences = 4>, tensor<3xi32> -> tensor<3x6xf32>
  return
}

// -----

// expected-error@+1 {{must hold at least one sequence, found 0}}
func.func private @no_sequences(!foresight.kv_cache<2 x 3, 16, f16, sequences = 0>)

// -----

func.func @heads_of_another_cache(%kv: !foresight.kv_cache<2 x 3, 16, f16>, %q: tensor<1x6xf32>, %at: tensor<1xi32>, %s: !foresight.index_set<1 of 4>) {
  // expected-error@+1 {{the set of heads has 4 candidates but the cache has 2 heads}}
  %r = foresight.attention %q, %kv at %at heads(%s : !foresight.index_set<1 of 4>) scale = 1.0 : tensor<1x6xf32>, !foresight.kv_cache<2 x 3, 16, f16>, tensor<1xi32> -> tensor<1x6xf32>
  return
}

// -----

func.func @tokens_of_another_cache(%kv: !foresight.kv_cache<2 x 3, 16, f16>, %q: tensor<1x6xf32>, %at: tensor<1xi32>, %s: !foresight.index_set<1 of 4>) {
  // expected-error@+1 {{the set of tokens has 4 candidates but the cache has 16 tokens}}
  %r = foresight.attention %q, %kv at %at tokens(%s : !foresight.index_set<1 of 4>) scale = 1.0 : tensor<1x6xf32>, !foresight.kv_cache<2 x 3, 16, f16>, tensor<1xi32> -> tensor<1x6xf32>
  return
}

// -----

// Selection.

func.func @predictor_columns(%x: tensor<1x5xf32>, %c: !foresight.low_bit<8 x 4, 4>) {
  // expected-error@+1 {{x has 5 features but the copy has 4 columns}}
  %s, %t = foresight.predict %x, %c : tensor<1x5xf32>, !foresight.low_bit<8 x 4, 4> -> tensor<1x8xf32>
  return
}

// -----

func.func @predictor_type(%x: tensor<1x4xf32>, %c: tensor<8x4xf16>) {
  // expected-error@+1 {{needs a !foresight.low_bit copy when it has one predictor, found 'tensor<8x4xf16>'}}
  %s, %t = foresight.predict %x, %c : tensor<1x4xf32>, tensor<8x4xf16> -> tensor<1x8xf32>
  return
}

// -----

func.func @predictor_rank(%x: tensor<1x4xf32>, %a: tensor<2x4xf16>, %b: tensor<8x3xf16>) {
  // expected-error@+1 {{the first matrix has 2 rows but the second matrix has 3 columns}}
  %s, %t = foresight.predict %x, %a, %b : tensor<1x4xf32>, tensor<2x4xf16>, tensor<8x3xf16> -> tensor<1x8xf32>
  return
}

// -----

func.func @kappa_beyond_the_proof(%s: tensor<1x8xf32>, %x: tensor<1x4xf32>, %c: !foresight.low_bit<8 x 4, 4>) {
  // expected-error@+1 {{kappa must be between 0 and 1 (a proof), found 1.500000e+00}}
  %r = foresight.select_certified %s, %x, %c kappa = 1.5 : tensor<1x8xf32>, tensor<1x4xf32>, !foresight.low_bit<8 x 4, 4> -> !foresight.index_set<8 of 8>
  return
}

// -----

func.func @certified_room(%s: tensor<1x8xf32>, %x: tensor<1x4xf32>, %c: !foresight.low_bit<8 x 4, 4>) {
  // expected-error@+1 {{may keep all of 8 candidates but the set has room for 4}}
  %r = foresight.select_certified %s, %x, %c kappa = 1.0 : tensor<1x8xf32>, tensor<1x4xf32>, !foresight.low_bit<8 x 4, 4> -> !foresight.index_set<4 of 8>
  return
}

// -----

func.func @certified_copy(%s: tensor<1x8xf32>, %x: tensor<1x4xf32>, %c: !foresight.low_bit<16 x 4, 4>) {
  // expected-error@+1 {{scores has 8 features but the copy has 16 rows}}
  %r = foresight.select_certified %s, %x, %c kappa = 1.0 : tensor<1x8xf32>, tensor<1x4xf32>, !foresight.low_bit<16 x 4, 4> -> !foresight.index_set<8 of 8>
  return
}

// -----

func.func @topk_candidates(%s: tensor<1x8xf32>) {
  // expected-error@+1 {{scores has 8 features but the set has 16 candidates}}
  %r = foresight.select_topk %s : tensor<1x8xf32> -> !foresight.index_set<4 of 16>
  return
}

// -----

func.func @gather_linear_set(%x: tensor<1x4xf32>, %w: tensor<8x4xf16>, %s: !foresight.index_set<4 of 16>) {
  // expected-error@+1 {{the set has 16 candidates but weight has 8 rows}}
  %h = foresight.gather_linear %x, %w rows(%s) : tensor<1x4xf32>, tensor<8x4xf16>, !foresight.index_set<4 of 16> -> tensor<1x8xf32>
  return
}

// -----

func.func @sparse_mlp_set(%x: tensor<1x4xf32>, %w: tensor<8x4xf16>, %s: !foresight.index_set<4 of 16>) {
  // expected-error@+1 {{the set has 16 candidates but fc1 has 8 rows}}
  %y = foresight.sparse_mlp %x, %w <relu> %w rows(%s : !foresight.index_set<4 of 16>) : tensor<1x4xf32>, tensor<8x4xf16>, tensor<8x4xf16> -> tensor<1x4xf32>
  return
}

// -----

// Stages, kernels, buffers.

func.func @stage_results(%x: tensor<1x4xf32>) {
  // expected-error@+1 {{yields ('tensor<1x4xf32>') but its results have types ('tensor<1x8xf32>')}}
  %r, %t = foresight.stage "s" (%a = %x : tensor<1x4xf32>) -> (tensor<1x8xf32>) {
    foresight.yield %a : tensor<1x4xf32>
  }
  return
}

// -----

func.func @stage_library(%x: tensor<1x4xf32>) {
  // expected-error@+1 {{is computed by library "blas", but only "gemm" is known}}
  %r, %t = foresight.stage "s" (%a = %x : tensor<1x4xf32>) -> (tensor<1x4xf32>) library "blas" {
    foresight.yield %a : tensor<1x4xf32>
  }
  return
}

// -----

// expected-error@+1 {{yields nothing: a kernel must have a result}}
foresight.kernel @k(%a: tensor<1x4xf32>) {
}

// -----

// expected-error@+1 {{kind must be "input", "output", "state" or "work", found "scratch"}}
foresight.buffer @b "scratch" : tensor<?x4xf32> rows = 1 row_bytes = 128

// -----

// expected-error@+1 {{must have rows and bytes, found 0 rows of 128 bytes}}
foresight.buffer @b "work" : tensor<?x4xf32> rows = 0 row_bytes = 128

// -----

// expected-error@+1 {{must lie at a multiple of 64 bytes, found 32}}
foresight.buffer @b "work" : tensor<?x4xf32> rows = 1 row_bytes = 128 offset = 32

// -----

// expected-error@+1 {{has an offset in the arena, where only work buffers lie, but is of kind "state"}}
foresight.buffer @b "state" : tensor<?x4xf32> rows = 1 row_bytes = 128 offset = 64

// -----

foresight.buffer @b "work" : tensor<?x4xf32> rows = 1 row_bytes = 128
foresight.kernel @k(%a: tensor<1x4xf32>) {
  foresight.yield %a : tensor<1x4xf32>
}
func.func @launch_inputs(%x: tensor<1x8xf32>) {
  // expected-error@+1 {{has inputs of types ('tensor<1x8xf32>') but @k takes ('tensor<1x4xf32>')}}
  %r, %t = foresight.launch "s" @k (%x : tensor<1x8xf32>) outs [@b] -> (tensor<1x4xf32>)
  return
}

// -----

foresight.buffer @b "work" : tensor<?x4xf32> rows = 1 row_bytes = 128
foresight.kernel @k(%a: tensor<1x4xf32>) {
  foresight.yield %a : tensor<1x4xf32>
}
func.func @launch_results(%x: tensor<1x4xf32>) {
  // expected-error@+1 {{has results of types ('tensor<1x8xf32>') but @k yields ('tensor<1x4xf32>')}}
  %r, %t = foresight.launch "s" @k (%x : tensor<1x4xf32>) outs [@b] -> (tensor<1x8xf32>)
  return
}

// -----

func.func @launch_unknown_kernel(%x: tensor<1x4xf32>) {
  // expected-error@+1 {{names @k, which is not a foresight.kernel of this module}}
  %t = foresight.launch "s" @k (%x : tensor<1x4xf32>) outs []
  return
}

// -----

foresight.buffer @b "work" : tensor<?x4xf32> rows = 1 row_bytes = 128
foresight.kernel @k(%a: tensor<1x4xf32>) {
  foresight.yield %a : tensor<1x4xf32>
}
func.func @launch_outs(%x: tensor<1x4xf32>) {
  // expected-error@+1 {{has 1 results but names 2 buffers}}
  %r, %t = foresight.launch "s" @k (%x : tensor<1x4xf32>) outs [@b, @b] -> (tensor<1x4xf32>)
  return
}

// -----

foresight.kernel @k(%a: tensor<1x4xf32>) {
  foresight.yield %a : tensor<1x4xf32>
}
func.func @launch_unknown_buffer(%x: tensor<1x4xf32>) {
  // expected-error@+1 {{names @b, which is not a foresight.buffer of this module}}
  %r, %t = foresight.launch "s" @k (%x : tensor<1x4xf32>) outs [@b] -> (tensor<1x4xf32>)
  return
}
