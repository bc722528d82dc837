// RUN: foresight-opt %s --foresight-sparsify=profile=%fixtures/profile-low-rank.json | FileCheck %s
// RUN: foresight-opt %s --foresight-sparsify=profile=%fixtures/profile-low-rank.json --foresight-expand-mlp --foresight-form-stages=target=cuda --foresight-schedule --foresight-outline-kernels --foresight-plan-buffers=target=cuda --foresight-verify-schedule | FileCheck %s --check-prefix=CUDA
// RUN: foresight-opt %s --foresight-sparsify=profile=%fixtures/profile-low-rank.json --foresight-expand-mlp --foresight-form-stages=target=cpu | FileCheck %s --check-prefix=CPU

// A low-rank predictor reads what the query reads, before attention has run.

module attributes {foresight.model = {sparsity = "none"}} {
foresight.weight @square : tensor<16x16xf16> = #foresight.synthetic<seed = 1, mean = 0.0 : f64, deviation = 1.0 : f64>
foresight.weight @fc1 : tensor<64x16xf16> = #foresight.synthetic<seed = 2, mean = 0.0 : f64, deviation = 1.0 : f64>
foresight.weight @fc2 : tensor<64x16xf16> = #foresight.synthetic<seed = 3, mean = 0.0 : f64, deviation = 1.0 : f64>
foresight.weight @layers.0.predictor.first.weight : tensor<4x16xf16> = #foresight.synthetic<seed = 4, mean = 0.0 : f64, deviation = 1.0 : f64>
foresight.weight @layers.0.predictor.second.weight : tensor<64x4xf16> = #foresight.synthetic<seed = 5, mean = 0.0 : f64, deviation = 1.0 : f64>
foresight.weight @layers.0.predictor.second.bias : tensor<64xf32> = #foresight.synthetic<seed = 6, mean = -1.0 : f64, deviation = 0.0 : f64>

// CHECK: foresight.weight @layers.0.predictor.second.weight.low_bit : !foresight.low_bit<64 x 4, 8> = #foresight.derived<low_bit, [@layers.0.predictor.second.weight, @layers.0.predictor.second.bias, @none, @none]>
// CHECK-LABEL: func.func @decode
// CHECK-SAME: rule = "low_rank"
// CHECK: %[[N:.*]] = foresight.layer_norm
// CHECK: %[[R:.*]] = foresight.linear %[[N]], %{{.*}} -> tensor<1x4xf32>
// CHECK: %[[S:.*]], %[[T:.*]] = foresight.predict %[[R]], %[[COPY:.*]] : tensor<1x4xf32>
// CHECK: %[[SET:.*]] = foresight.select_certified %[[S]], %[[R]], %[[COPY]] kappa = 0.000000e+00 after(%[[T]])
// CHECK: foresight.sparse_mlp {{.*}} rows(%[[SET]]

// CUDA: foresight.kernel @decode.qkv
// CUDA-COUNT-4: foresight.linear
// CUDA: foresight.kernel @decode.attention
// CUDA: foresight.attention
// CUDA: foresight.predict
// CUDA: %[[SET:.*]] = foresight.select_certified
// CUDA: foresight.yield {{.*}}%[[SET]]
// CUDA: foresight.kernel @decode.fc1({{.*}}%[[ARG:.*]]: !foresight.index_set<64 of 64>
// CUDA: foresight.gather_linear {{.*}} rows(%[[ARG]])
// CUDA: foresight.column_linear {{.*}} rows(
// CUDA-NOT: skip_zeros
// CUDA: foresight.launch "layers.0.attention"
// CUDA: foresight.launch "layers.0.fc1"
// CUDA: foresight.launch "head"

// CPU: foresight.stage "layers.0.fc1"
// CPU: foresight.predict
// CPU: foresight.select_certified
// CPU: foresight.gather_linear
// CPU: foresight.stage "head"
// CPU: skip_zeros
func.func @decode(%x: tensor<1x16xf32>, %p: tensor<1xi32>, %kv: !foresight.kv_cache<2 x 8, 32, f16>) -> (tensor<1x16xf32>, !foresight.kv_cache<2 x 8, 32, f16>) attributes {foresight.entry = "decode", foresight.max_tokens = 1 : i64} {
  %w = foresight.get_weight @square : tensor<16x16xf16>
  %w1 = foresight.get_weight @fc1 : tensor<64x16xf16>
  %w2 = foresight.get_weight @fc2 : tensor<64x16xf16>
  %n = foresight.layer_norm %x epsilon = 1.0e-5 : tensor<1x16xf32> -> tensor<1x16xf32>
  %q = foresight.linear %n, %w : tensor<1x16xf32>, tensor<16x16xf16> -> tensor<1x16xf32>
  %k = foresight.linear %n, %w : tensor<1x16xf32>, tensor<16x16xf16> -> tensor<1x16xf32>
  %v = foresight.linear %n, %w : tensor<1x16xf32>, tensor<16x16xf16> -> tensor<1x16xf32>
  %kv1 = foresight.kv_append %kv, %k, %v at %p : !foresight.kv_cache<2 x 8, 32, f16>, tensor<1x16xf32>, tensor<1xi32>
  %a = foresight.attention %q, %kv1 at %p scale = 0.125 : tensor<1x16xf32>, !foresight.kv_cache<2 x 8, 32, f16>, tensor<1xi32> -> tensor<1x16xf32>
  %o = foresight.linear %a, %w : tensor<1x16xf32>, tensor<16x16xf16> -> tensor<1x16xf32>
  %x1 = foresight.add %x, %o : tensor<1x16xf32>
  %m = foresight.layer_norm %x1 epsilon = 1.0e-5 : tensor<1x16xf32> -> tensor<1x16xf32>
  %y = foresight.mlp %m, %w1 <relu> %w2 : tensor<1x16xf32>, tensor<64x16xf16>, tensor<64x16xf16> -> tensor<1x16xf32>
  %x2 = foresight.add %x1, %y : tensor<1x16xf32>
  return %x2, %kv1 : tensor<1x16xf32>, !foresight.kv_cache<2 x 8, 32, f16>
}
}
