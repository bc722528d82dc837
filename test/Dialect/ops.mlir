// RUN: foresight-opt %s | FileCheck %s
// RUN: foresight-opt %s --mlir-print-op-generic | foresight-opt | FileCheck %s

// CHECK: foresight.weight @table : tensor<10x4xf16> = #foresight.external<"model.bin", offset = 64, bytes = 160, f32>
foresight.weight @table : tensor<10x4xf16> = #foresight.external<"model.bin", offset = 64, bytes = 160, f32>
// CHECK: foresight.weight @flipped : tensor<4x10xf32> = #foresight.external<"model.bin", offset = 0, bytes = 160, f32, transposed = true>
foresight.weight @flipped : tensor<4x10xf32> = #foresight.external<"model.bin", offset = 0, bytes = 160, f32, transposed = true>
// CHECK: foresight.weight @fc1 : tensor<8x4xf16> = #foresight.synthetic<seed = 7, mean = 0.000000e+00 : f64, deviation = 2.000000e-02 : f64>
foresight.weight @fc1 : tensor<8x4xf16> = #foresight.synthetic<seed = 7, mean = 0.0 : f64, deviation = 0.02 : f64>
// CHECK: foresight.weight @bias : tensor<8xf32> = dense<-1.000000e+00> : tensor<8xf32>
foresight.weight @bias : tensor<8xf32> = dense<-1.0> : tensor<8xf32>
// CHECK: foresight.weight @fc1_t : tensor<4x8xf16> = #foresight.derived<transpose, [@fc1]>
foresight.weight @fc1_t : tensor<4x8xf16> = #foresight.derived<transpose, [@fc1]>
// CHECK: foresight.weight @both : tensor<16x4xf16> = #foresight.derived<concat_rows, [@fc1, @fc1]>
foresight.weight @both : tensor<16x4xf16> = #foresight.derived<concat_rows, [@fc1, @fc1]>
// CHECK: foresight.weight @half : tensor<4x4xf16> = #foresight.derived<slice_rows, [@fc1], first = 4>
foresight.weight @half : tensor<4x4xf16> = #foresight.derived<slice_rows, [@fc1], first = 4>
// CHECK: foresight.weight @some : tensor<3xf32> = #foresight.derived<slice_rows, [@bias]>
foresight.weight @some : tensor<3xf32> = #foresight.derived<slice_rows, [@bias]>
// CHECK: foresight.weight @copy : !foresight.low_bit<8 x 4, 4> = #foresight.derived<low_bit, [@fc1, @bias, @none, @none]>
foresight.weight @copy : !foresight.low_bit<8 x 4, 4> = #foresight.derived<low_bit, [@fc1, @bias, @none, @none]>
// CHECK: foresight.weight @even : tensor<4xf32> = #foresight.derived<balance, [@fc1, @none]>
foresight.weight @even : tensor<4xf32> = #foresight.derived<balance, [@fc1, @none]>
// CHECK: foresight.weight @even_copy : !foresight.low_bit<8 x 4, 4> = #foresight.derived<low_bit, [@fc1, @bias, @none, @none, @even]>
foresight.weight @even_copy : !foresight.low_bit<8 x 4, 4> = #foresight.derived<low_bit, [@fc1, @bias, @none, @none, @even]>

// CHECK-LABEL: func.func @weights
func.func @weights() -> (tensor<8x4xf16>, !foresight.low_bit<8 x 4, 4>) {
  // CHECK: foresight.get_weight @fc1 : tensor<8x4xf16>
  %w = foresight.get_weight @fc1 : tensor<8x4xf16>
  // CHECK: foresight.get_weight @copy : !foresight.low_bit<8 x 4, 4>
  %c = foresight.get_weight @copy : !foresight.low_bit<8 x 4, 4>
  return %w, %c : tensor<8x4xf16>, !foresight.low_bit<8 x 4, 4>
}

// CHECK-LABEL: func.func @embedding
func.func @embedding(%table: tensor<10x4xf16>, %ids: tensor<?xi32>, %positions: tensor<?xi32>) -> tensor<?x4xf32> {
  // CHECK: foresight.gather_rows %{{.*}}[%{{.*}}] : tensor<10x4xf16>, tensor<?xi32> -> tensor<?x4xf32>
  %e = foresight.gather_rows %table[%ids] : tensor<10x4xf16>, tensor<?xi32> -> tensor<?x4xf32>
  // CHECK: foresight.gather_rows %{{.*}}[%{{.*}}] {offset = 2 : i64} : tensor<10x4xf16>, tensor<?xi32> -> tensor<?x4xf32>
  %p = foresight.gather_rows %table[%positions] {offset = 2 : i64} : tensor<10x4xf16>, tensor<?xi32> -> tensor<?x4xf32>
  // CHECK: foresight.add %{{.*}}, %{{.*}} : tensor<?x4xf32>
  %x = foresight.add %e, %p : tensor<?x4xf32>
  return %x : tensor<?x4xf32>
}

// CHECK-LABEL: func.func @norms
func.func @norms(%x: tensor<1x4xf32>, %g: tensor<4xf32>, %b: tensor<4xf16>) -> (tensor<1x4xf32>, tensor<1x4xf32>) {
  // CHECK: foresight.layer_norm %{{.*}} gamma(%{{.*}} : tensor<4xf32>) beta(%{{.*}} : tensor<4xf16>) epsilon = 1.000000e-05 : tensor<1x4xf32> -> tensor<1x4xf32>
  %n = foresight.layer_norm %x gamma(%g : tensor<4xf32>) beta(%b : tensor<4xf16>) epsilon = 1.0e-05 : tensor<1x4xf32> -> tensor<1x4xf32>
  // CHECK: foresight.layer_norm %{{[a-z0-9]+}} epsilon = 1.000000e-05 : tensor<1x4xf32> -> tensor<1x4xf32>
  %m = foresight.layer_norm %x epsilon = 1.0e-05 : tensor<1x4xf32> -> tensor<1x4xf32>
  return %n, %m : tensor<1x4xf32>, tensor<1x4xf32>
}

// CHECK-LABEL: func.func @products
func.func @products(%x: tensor<?x4xf32>, %w: tensor<8x4xf16>, %b: tensor<8xf32>) -> tensor<1x4xf32> {
  // CHECK: foresight.linear %{{.*}}, %{{.*}} bias(%{{.*}} : tensor<8xf32>) {activation = #foresight.activation<relu>} : tensor<?x4xf32>, tensor<8x4xf16> -> tensor<?x8xf32>
  %h = foresight.linear %x, %w bias(%b : tensor<8xf32>) {activation = #foresight.activation<relu>} : tensor<?x4xf32>, tensor<8x4xf16> -> tensor<?x8xf32>
  // CHECK: foresight.column_linear %{{.*}}, %{{.*}} {skip_zeros} : tensor<?x8xf32>, tensor<8x4xf16> -> tensor<?x4xf32>
  %y = foresight.column_linear %h, %w {skip_zeros} : tensor<?x8xf32>, tensor<8x4xf16> -> tensor<?x4xf32>
  // CHECK: foresight.activate %{{.*}} <gelu_tanh> : tensor<?x4xf32>
  %a = foresight.activate %y <gelu_tanh> : tensor<?x4xf32>
  // CHECK: foresight.mlp %{{.*}}, %{{.*}} bias(%{{.*}} : tensor<8xf32>) <relu> %{{.*}} : tensor<?x4xf32>, tensor<8x4xf16>, tensor<8x4xf16> -> tensor<?x4xf32>
  %m = foresight.mlp %a, %w bias(%b : tensor<8xf32>) <relu> %w : tensor<?x4xf32>, tensor<8x4xf16>, tensor<8x4xf16> -> tensor<?x4xf32>
  // CHECK: foresight.last_row %{{.*}} : tensor<?x4xf32> -> tensor<1x4xf32>
  %l = foresight.last_row %m : tensor<?x4xf32> -> tensor<1x4xf32>
  return %l : tensor<1x4xf32>
}

// CHECK-LABEL: func.func @sequences
func.func @sequences(%q: tensor<?x6xf32>, %kv0: !foresight.kv_cache<2 x 3, 16, f16, sequences = 4>, %at: tensor<?xi32>,
                     %one: tensor<1xi32>, %each: tensor<?xi32>) -> (tensor<?x6xf32>, !foresight.kv_cache<2 x 3, 16, f16, sequences = 4>) {
  // CHECK: foresight.kv_append {{.*}} at %{{.*}} in(%{{.*}} : tensor<1xi32>) : !foresight.kv_cache<2 x 3, 16, f16, sequences = 4>, tensor<?x6xf32>, tensor<?xi32>
  %kv1 = foresight.kv_append %kv0, %q, %q at %at in(%one : tensor<1xi32>) : !foresight.kv_cache<2 x 3, 16, f16, sequences = 4>, tensor<?x6xf32>, tensor<?xi32>
  // CHECK: foresight.attention {{.*}} at %{{.*}} in(%{{.*}} : tensor<?xi32>) scale = 5.000000e-01
  %a = foresight.attention %q, %kv1 at %at in(%each : tensor<?xi32>) scale = 0.5 : tensor<?x6xf32>, !foresight.kv_cache<2 x 3, 16, f16, sequences = 4>, tensor<?xi32> -> tensor<?x6xf32>
  return %a, %kv1 : tensor<?x6xf32>, !foresight.kv_cache<2 x 3, 16, f16, sequences = 4>
}

// CHECK-LABEL: func.func @attention
func.func @attention(%q: tensor<1x6xf32>, %kv0: !foresight.kv_cache<2 x 3, 16, f16>, %at: tensor<1xi32>,
                     %heads: !foresight.index_set<1 of 2>, %history: !foresight.index_set<16 of 16>)
    -> (tensor<1x6xf32>, tensor<1x6xf32>, !foresight.kv_cache<2 x 3, 16, f16>) {
  // CHECK: foresight.kv_append %{{.*}}, %{{.*}}, %{{.*}} at %{{.*}} : !foresight.kv_cache<2 x 3, 16, f16>, tensor<1x6xf32>, tensor<1xi32>
  %kv1 = foresight.kv_append %kv0, %q, %q at %at : !foresight.kv_cache<2 x 3, 16, f16>, tensor<1x6xf32>, tensor<1xi32>
  // CHECK: foresight.attention %{{.*}}, %{{.*}} at %{{[a-z0-9]+}} scale = 5.000000e-01 : tensor<1x6xf32>, !foresight.kv_cache<2 x 3, 16, f16>, tensor<1xi32> -> tensor<1x6xf32>
  %a = foresight.attention %q, %kv1 at %at scale = 0.5 : tensor<1x6xf32>, !foresight.kv_cache<2 x 3, 16, f16>, tensor<1xi32> -> tensor<1x6xf32>
  // CHECK: foresight.attention {{.*}} heads(%{{.*}} : !foresight.index_set<1 of 2>) tokens(%{{.*}} : !foresight.index_set<16 of 16>) scale = 5.000000e-01
  %s = foresight.attention %q, %kv1 at %at heads(%heads : !foresight.index_set<1 of 2>) tokens(%history : !foresight.index_set<16 of 16>) scale = 0.5
      : tensor<1x6xf32>, !foresight.kv_cache<2 x 3, 16, f16>, tensor<1xi32> -> tensor<1x6xf32>
  return %a, %s, %kv1 : tensor<1x6xf32>, tensor<1x6xf32>, !foresight.kv_cache<2 x 3, 16, f16>
}

// CHECK-LABEL: func.func @selections
func.func @selections(%x: tensor<1x4xf32>, %copy: !foresight.low_bit<8 x 4, 4>, %a: tensor<2x4xf16>, %b: tensor<8x2xf16>,
                      %fc1: tensor<8x4xf16>, %fc2: tensor<8x4xf16>) -> (tensor<1x4xf32>, tensor<1x4xf32>) {
  // CHECK: %[[SCORES:.*]], %[[DONE:.*]] = foresight.predict %{{.*}}, %{{.*}} : tensor<1x4xf32>, !foresight.low_bit<8 x 4, 4> -> tensor<1x8xf32>
  %scores, %done = foresight.predict %x, %copy : tensor<1x4xf32>, !foresight.low_bit<8 x 4, 4> -> tensor<1x8xf32>
  // CHECK: foresight.predict %{{.*}}, %{{.*}}, %{{.*}} {lookahead = #foresight.lookahead<half_block>}
  %low_rank, %early = foresight.predict %x, %a, %b {lookahead = #foresight.lookahead<half_block>} : tensor<1x4xf32>, tensor<2x4xf16>, tensor<8x2xf16> -> tensor<1x8xf32>
  // CHECK: foresight.select_certified %[[SCORES]], %{{.*}}, %{{.*}} kappa = 1.000000e+00 after(%[[DONE]]) : tensor<1x8xf32>, tensor<1x4xf32>, !foresight.low_bit<8 x 4, 4> -> !foresight.index_set<8 of 8>
  %kept = foresight.select_certified %scores, %x, %copy kappa = 1.0 after(%done) : tensor<1x8xf32>, tensor<1x4xf32>, !foresight.low_bit<8 x 4, 4> -> !foresight.index_set<8 of 8>
  // CHECK: foresight.select_threshold %{{.*}} threshold = 5.000000e-01 : tensor<1x8xf32> -> !foresight.index_set<8 of 8>
  %above = foresight.select_threshold %low_rank threshold = 0.5 : tensor<1x8xf32> -> !foresight.index_set<8 of 8>
  // CHECK: foresight.select_topk %{{.*}} after(%{{.*}}) : tensor<1x8xf32> -> !foresight.index_set<3 of 8>
  %best = foresight.select_topk %low_rank after(%early) : tensor<1x8xf32> -> !foresight.index_set<3 of 8>
  // CHECK: foresight.gather_linear %{{.*}}, %{{.*}} rows(%{{.*}}) {activation = #foresight.activation<relu>} : tensor<1x4xf32>, tensor<8x4xf16>, !foresight.index_set<8 of 8> -> tensor<1x8xf32>
  %h = foresight.gather_linear %x, %fc1 rows(%kept) {activation = #foresight.activation<relu>} : tensor<1x4xf32>, tensor<8x4xf16>, !foresight.index_set<8 of 8> -> tensor<1x8xf32>
  // CHECK: foresight.column_linear %{{.*}}, %{{.*}} rows(%{{.*}} : !foresight.index_set<8 of 8>)
  %y = foresight.column_linear %h, %fc2 rows(%above : !foresight.index_set<8 of 8>) : tensor<1x8xf32>, tensor<8x4xf16> -> tensor<1x4xf32>
  // CHECK: foresight.sparse_mlp %{{.*}}, %{{.*}} <relu> %{{.*}} rows(%{{.*}} : !foresight.index_set<3 of 8>) {skip_zeros}
  %z = foresight.sparse_mlp %x, %fc1 <relu> %fc2 rows(%best : !foresight.index_set<3 of 8>) {skip_zeros} : tensor<1x4xf32>, tensor<8x4xf16>, tensor<8x4xf16> -> tensor<1x4xf32>
  return %y, %z : tensor<1x4xf32>, tensor<1x4xf32>
}

// CHECK-LABEL: func.func @staged
func.func @staged(%x: tensor<1x4xf32>, %w: tensor<8x4xf16>) -> tensor<1x8xf32> {
  // CHECK: %[[N:.*]], %[[T:.*]] = foresight.stage "layers.0.norm" (%{{.*}} = %{{.*}} : tensor<1x4xf32>) -> (tensor<1x4xf32>) {
  %n, %t = foresight.stage "layers.0.norm" (%a = %x : tensor<1x4xf32>) -> (tensor<1x4xf32>) {
    %r = foresight.layer_norm %a epsilon = 1.0e-05 : tensor<1x4xf32> -> tensor<1x4xf32>
    foresight.yield %r : tensor<1x4xf32>
  }
  // CHECK: foresight.stage "layers.0.fc1" after(%[[T]]) (%{{.*}} = %[[N]] : tensor<1x4xf32>, %{{.*}} = %{{.*}} : tensor<8x4xf16>) -> (tensor<1x8xf32>) library "gemm" {
  %h, %u = foresight.stage "layers.0.fc1" after(%t) (%a = %n : tensor<1x4xf32>, %b = %w : tensor<8x4xf16>) -> (tensor<1x8xf32>) library "gemm" {
    %r = foresight.linear %a, %b : tensor<1x4xf32>, tensor<8x4xf16> -> tensor<1x8xf32>
    foresight.yield %r : tensor<1x8xf32>
  }
  return %h : tensor<1x8xf32>
}

// CHECK: foresight.buffer @x "input" : tensor<?x4xf32> rows = 1 row_bytes = 128
foresight.buffer @x "input" : tensor<?x4xf32> rows = 1 row_bytes = 128
// CHECK: foresight.buffer @h "work" : tensor<?x8xf32> rows = 1 row_bytes = 128 offset = 64
foresight.buffer @h "work" : tensor<?x8xf32> rows = 1 row_bytes = 128 offset = 64
// CHECK: foresight.kernel @fc1_rows(%{{.*}}: tensor<1x4xf32>, %{{.*}}: tensor<8x4xf16>) {
foresight.kernel @fc1_rows(%a: tensor<1x4xf32>, %b: tensor<8x4xf16>) {
  %r = foresight.linear %a, %b : tensor<1x4xf32>, tensor<8x4xf16> -> tensor<1x8xf32>
  foresight.yield %r : tensor<1x8xf32>
}

// CHECK-LABEL: func.func @scheduled
func.func @scheduled(%x: tensor<1x4xf32>, %w: tensor<8x4xf16>) -> tensor<1x8xf32> {
  // CHECK: %[[H:.*]], %[[T:.*]] = foresight.launch "layers.0.fc1" @fc1_rows (%{{.*}}, %{{.*}} : tensor<1x4xf32>, tensor<8x4xf16>) outs [@h] -> (tensor<1x8xf32>){{$}}
  %h, %t = foresight.launch "layers.0.fc1" @fc1_rows (%x, %w : tensor<1x4xf32>, tensor<8x4xf16>) outs [@h] -> (tensor<1x8xf32>)
  // CHECK: foresight.launch "layers.1.fc1" @fc1_rows after(%[[T]])
  // CHECK-SAME: {layer = 1 : i64, role = "fc1"}
  %g, %u = foresight.launch "layers.1.fc1" @fc1_rows after(%t) (%x, %w : tensor<1x4xf32>, tensor<8x4xf16>) outs [@h] -> (tensor<1x8xf32>) {layer = 1 : i64, role = "fc1"}
  return %g : tensor<1x8xf32>
}
