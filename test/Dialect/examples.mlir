// RUN: foresight-opt %s | FileCheck %s

// The examples of the dialect's reference, at the size of opt-1.3b.

foresight.weight @layers.0.fc1.weight : tensor<8192x2048xf16> =
    #foresight.external<"model.safetensors", offset = 4096, bytes = 33554432, f16>
foresight.weight @layers.0.fc1.copy : !foresight.low_bit<8192 x 2048, 4> =
    #foresight.derived<low_bit, [@layers.0.fc1.weight, @none, @none, @none]>
foresight.weight @layers.0.fc2.weight : tensor<8192x2048xf16> =
    #foresight.synthetic<seed = 7, mean = 0.0 : f64, deviation = 0.02 : f64>

// CHECK-LABEL: func.func @decode
func.func @decode(%ids: tensor<1xi32>, %positions: tensor<1xi32>, %kv0: !foresight.kv_cache<32 x 64, 2048, f16>,
                  %table: tensor<50272x2048xf16>, %g: tensor<2048xf32>, %b: tensor<2048xf32>, %b1: tensor<8192xf32>,
                  %b2: tensor<2048xf32>) -> (tensor<1x2048xf32>, tensor<1x2048xf32>, tensor<1x2048xf32>) {
  %fc1 = foresight.get_weight @layers.0.fc1.weight : tensor<8192x2048xf16>
  %fc2 = foresight.get_weight @layers.0.fc2.weight : tensor<8192x2048xf16>
  %copy = foresight.get_weight @layers.0.fc1.copy : !foresight.low_bit<8192 x 2048, 4>
  %e = foresight.gather_rows %table[%ids] : tensor<50272x2048xf16>, tensor<1xi32> -> tensor<1x2048xf32>
  %n = foresight.layer_norm %e epsilon = 1.000000e-05 : tensor<1x2048xf32> -> tensor<1x2048xf32>
  %x = func.call @norm(%e, %g, %b) : (tensor<1x2048xf32>, tensor<2048xf32>, tensor<2048xf32>) -> tensor<1x2048xf32>
  %q = foresight.add %x, %x : tensor<1x2048xf32>
  %k = foresight.add %x, %x : tensor<1x2048xf32>
  %v = foresight.add %x, %x : tensor<1x2048xf32>
  // CHECK: foresight.kv_append
  %kv1 = foresight.kv_append %kv0, %k, %v at %positions
      : !foresight.kv_cache<32 x 64, 2048, f16>, tensor<1x2048xf32>, tensor<1xi32>
  // CHECK: foresight.attention
  %a = foresight.attention %q, %kv1 at %positions scale = 1.250000e-01
      : tensor<1x2048xf32>, !foresight.kv_cache<32 x 64, 2048, f16>, tensor<1xi32> -> tensor<1x2048xf32>
  // CHECK: foresight.predict
  %scores, %done = foresight.predict %n, %copy
      : tensor<1x2048xf32>, !foresight.low_bit<8192 x 2048, 4> -> tensor<1x8192xf32>
  // CHECK: foresight.select_certified
  %kept = foresight.select_certified %scores, %n, %copy kappa = 1.000000e+00 after(%done)
      : tensor<1x8192xf32>, tensor<1x2048xf32>, !foresight.low_bit<8192 x 2048, 4> -> !foresight.index_set<8192 of 8192>
  // CHECK: foresight.sparse_mlp
  %y = foresight.sparse_mlp %x, %fc1 bias(%b1 : tensor<8192xf32>) <relu> %fc2 bias(%b2 : tensor<2048xf32>)
      rows(%kept : !foresight.index_set<8192 of 8192>) {skip_zeros}
      : tensor<1x2048xf32>, tensor<8192x2048xf16>, tensor<8192x2048xf16> -> tensor<1x2048xf32>
  %z = func.call @gathered(%x, %fc1, %fc2, %b1, %b2, %kept) : (tensor<1x2048xf32>, tensor<8192x2048xf16>, tensor<8192x2048xf16>,
      tensor<8192xf32>, tensor<2048xf32>, !foresight.index_set<8192 of 8192>) -> tensor<1x2048xf32>
  return %a, %y, %z : tensor<1x2048xf32>, tensor<1x2048xf32>, tensor<1x2048xf32>
}

// CHECK-LABEL: func.func @norm
func.func @norm(%x: tensor<1x2048xf32>, %g: tensor<2048xf32>, %b: tensor<2048xf32>) -> tensor<1x2048xf32> {
  %n = foresight.layer_norm %x gamma(%g : tensor<2048xf32>) beta(%b : tensor<2048xf32>) epsilon = 1.000000e-05
      : tensor<1x2048xf32> -> tensor<1x2048xf32>
  return %n : tensor<1x2048xf32>
}

// CHECK-LABEL: func.func @dense
func.func @dense(%x: tensor<1x2048xf32>, %fc1: tensor<8192x2048xf16>, %fc2: tensor<8192x2048xf16>, %b1: tensor<8192xf32>,
                 %b2: tensor<2048xf32>) -> tensor<1x2048xf32> {
  // CHECK: foresight.mlp
  %y = foresight.mlp %x, %fc1 bias(%b1 : tensor<8192xf32>) <relu> %fc2 bias(%b2 : tensor<2048xf32>)
      : tensor<1x2048xf32>, tensor<8192x2048xf16>, tensor<8192x2048xf16> -> tensor<1x2048xf32>
  return %y : tensor<1x2048xf32>
}

// CHECK-LABEL: func.func @products
func.func @products(%x: tensor<1x2048xf32>, %fc1: tensor<8192x2048xf16>, %fc2: tensor<8192x2048xf16>, %b1: tensor<8192xf32>,
                    %b2: tensor<2048xf32>) -> tensor<1x2048xf32> {
  %h = foresight.linear %x, %fc1 bias(%b1 : tensor<8192xf32>) {activation = #foresight.activation<relu>}
      : tensor<1x2048xf32>, tensor<8192x2048xf16> -> tensor<1x8192xf32>
  // CHECK: foresight.column_linear
  %y = foresight.column_linear %h, %fc2 bias(%b2 : tensor<2048xf32>) {skip_zeros}
      : tensor<1x8192xf32>, tensor<8192x2048xf16> -> tensor<1x2048xf32>
  return %y : tensor<1x2048xf32>
}

// CHECK-LABEL: func.func @gathered
func.func @gathered(%x: tensor<1x2048xf32>, %fc1: tensor<8192x2048xf16>, %fc2: tensor<8192x2048xf16>, %b1: tensor<8192xf32>,
                    %b2: tensor<2048xf32>, %kept: !foresight.index_set<8192 of 8192>) -> tensor<1x2048xf32> {
  // CHECK: foresight.gather_linear
  %h = foresight.gather_linear %x, %fc1 bias(%b1 : tensor<8192xf32>) rows(%kept) {activation = #foresight.activation<relu>}
      : tensor<1x2048xf32>, tensor<8192x2048xf16>, !foresight.index_set<8192 of 8192> -> tensor<1x8192xf32>
  %y = foresight.column_linear %h, %fc2 bias(%b2 : tensor<2048xf32>) {skip_zeros}
      : tensor<1x8192xf32>, tensor<8192x2048xf16> -> tensor<1x2048xf32>
  return %y : tensor<1x2048xf32>
}

// CHECK-LABEL: func.func @staged
func.func @staged(%x: tensor<1x2048xf32>, %fc1: tensor<8192x2048xf16>, %normed: !foresight.token) -> tensor<1x8192xf32> {
  // CHECK: foresight.stage "layers.0.fc1"
  %h, %done = foresight.stage "layers.0.fc1" after(%normed) (%a = %x : tensor<1x2048xf32>, %w = %fc1 : tensor<8192x2048xf16>)
      -> (tensor<1x8192xf32>) attributes {layer = 0 : i64, role = "fc1"} {
    %r = foresight.linear %a, %w : tensor<1x2048xf32>, tensor<8192x2048xf16> -> tensor<1x8192xf32>
    foresight.yield %r : tensor<1x8192xf32>
  }
  return %h : tensor<1x8192xf32>
}

foresight.buffer @layers.0.fc1.out "work" : tensor<?x8192xf32> rows = 512 row_bytes = 32768 offset = 0
foresight.kernel @decode.fc1(%x: tensor<1x2048xf32>, %w: tensor<8192x2048xf16>) {
  %r = foresight.linear %x, %w : tensor<1x2048xf32>, tensor<8192x2048xf16> -> tensor<1x8192xf32>
  foresight.yield %r : tensor<1x8192xf32>
}

// CHECK-LABEL: func.func @scheduled
func.func @scheduled(%x: tensor<1x2048xf32>, %normed: !foresight.token) -> tensor<1x8192xf32> {
  %fc1 = foresight.get_weight @layers.0.fc1.weight : tensor<8192x2048xf16>
  // CHECK: foresight.launch "layers.0.fc1" @decode.fc1
  %h, %done = foresight.launch "layers.0.fc1" @decode.fc1 after(%normed) (%x, %fc1 : tensor<1x2048xf32>, tensor<8192x2048xf16>)
      outs [@layers.0.fc1.out] -> (tensor<1x8192xf32>) {layer = 0 : i64, role = "fc1"}
  return %h : tensor<1x8192xf32>
}
