// DEFINE: %{pass} =
// DEFINE: %{run} = foresight-opt %s --split-input-file --verify-diagnostics %{pass}
// REDEFINE: %{pass} = --foresight-sparsify=rule=proof
// RUN: %{run} | FileCheck %s
// REDEFINE: %{pass} = --foresight-sparsify="rule=margin margin=2 bits=3"
// RUN: %{run} | FileCheck %s --check-prefix=MARGIN
// REDEFINE: %{pass} = --foresight-sparsify=rule=skip
// RUN: %{run} | FileCheck %s --check-prefix=SKIP
// REDEFINE: %{pass} = --foresight-sparsify=profile=%fixtures/profile-two-layers.json
// RUN: foresight-opt %s %{pass} --split-input-file 2>&1 | FileCheck %s --check-prefix=PROFILE
// REDEFINE: %{pass} = --foresight-sparsify=rule=proof --remarks-filter=sparsity
// RUN: foresight-opt %s %{pass} --split-input-file 2>&1 | FileCheck %s --check-prefix=REMARK
// RUN: not foresight-opt %s --foresight-sparsify="rule=proof bits=9" --split-input-file 2>&1 | FileCheck %s --check-prefix=BITS
// RUN: not foresight-opt %s --foresight-sparsify="rule=proof lookahead=block" --split-input-file 2>&1 | FileCheck %s --check-prefix=AHEAD
// RUN: not foresight-opt %s --foresight-sparsify=profile=%fixtures/no-such-profile.json --split-input-file 2>&1 | FileCheck %s --check-prefix=MISSING
// RUN: not foresight-opt %s --foresight-sparsify=rule=topk --split-input-file 2>&1 | FileCheck %s --check-prefix=RULE

// BITS: error: layer 0: a low-bit copy has 2 to 8 bits, found 9
// AHEAD: error: layer 0: rule proof proves what the MLP's own input gives and cannot look ahead from block; use rule margin or lookahead here
// MISSING: no-such-profile.json
// RULE: error: rule must be proof, margin, skip or dense, found 'topk'

// CHECK: foresight.model = {sparsity = "exact"}
// MARGIN: foresight.model = {sparsity = "predicted"}
// SKIP: foresight.model = {sparsity = "exact"}
module attributes {foresight.model = {sparsity = "none"}} {
// CHECK: foresight.weight @fc1.low_bit : !foresight.low_bit<64 x 16, 6> = #foresight.derived<low_bit, [@fc1, @b1, @none, @none]>
// MARGIN: foresight.weight @fc1.low_bit : !foresight.low_bit<64 x 16, 3>
// SKIP-NOT: low_bit
foresight.weight @fc1 : tensor<64x16xf16> = #foresight.synthetic<seed = 1, mean = 0.0 : f64, deviation = 1.0 : f64>
foresight.weight @b1 : tensor<64xf32> = #foresight.synthetic<seed = 2, mean = 0.0 : f64, deviation = 1.0 : f64>
foresight.weight @fc2 : tensor<64x16xf16> = #foresight.synthetic<seed = 3, mean = 0.0 : f64, deviation = 1.0 : f64>

// CHECK-LABEL: func.func @decode
// CHECK-SAME: foresight.sparsity = [{bits = 6 : i64, kappa = 1.000000e+00 : f64, layer = 0 : i64, lookahead = "here", neurons = 64 : i64, rule = "proof"}, {layer = 1 : i64, neurons = 64 : i64, reason = "activation gelu is never exactly 0", rule = "dense"}]
func.func @decode(%x: tensor<1x16xf32>) -> tensor<1x16xf32> attributes {foresight.entry = "decode"} {
  %w1 = foresight.get_weight @fc1 : tensor<64x16xf16>
  %b1 = foresight.get_weight @b1 : tensor<64xf32>
  %w2 = foresight.get_weight @fc2 : tensor<64x16xf16>
  // CHECK: %[[COPY:.*]] = foresight.get_weight @fc1.low_bit
  // CHECK: %[[S:.*]], %[[DONE:.*]] = foresight.predict %[[X:.*]], %[[COPY]]
  // CHECK: %[[SET:.*]] = foresight.select_certified %[[S]], %[[X]], %[[COPY]] kappa = 1.000000e+00 after(%[[DONE]])
  // CHECK: %[[Y:.*]] = foresight.sparse_mlp %[[X]], {{.*}} rows(%[[SET]] : !foresight.index_set<64 of 64>) {skip_zeros}
  // MARGIN: foresight.select_certified {{.*}} kappa = 5.000000e-01
  // SKIP-NOT: foresight.predict
  // SKIP: foresight.sparse_mlp %{{.*}} bias(%{{.*}} : tensor<64xf32>) <relu> %{{[a-z0-9]+}} {skip_zeros}
  // PROFILE: foresight.predict
  // PROFILE: kappa = 1.000000e+00
  // REMARK: remark: {{.*}}Category:sparsity {{.*}}layer 0: proof
  %y = foresight.mlp %x, %w1 bias(%b1 : tensor<64xf32>) <relu> %w2 : tensor<1x16xf32>, tensor<64x16xf16>, tensor<64x16xf16> -> tensor<1x16xf32>
  // GELU is not 0 anywhere: nothing to leave out.
  // CHECK: foresight.mlp %[[Y]], {{.*}} <gelu>
  // REMARK: remark: [Missed]{{.*}}activation gelu is never exactly 0{{.*}}layer 1: stays dense
  %z = foresight.mlp %y, %w1 bias(%b1 : tensor<64xf32>) <gelu> %w2 : tensor<1x16xf32>, tensor<64x16xf16>, tensor<64x16xf16> -> tensor<1x16xf32>
  return %z : tensor<1x16xf32>
}

// The dense decode stays as it is.
// CHECK-LABEL: func.func @decode_dense
// CHECK: foresight.mlp
func.func @decode_dense(%x: tensor<1x16xf32>) -> tensor<1x16xf32> attributes {foresight.entry = "decode_dense"} {
  %w1 = foresight.get_weight @fc1 : tensor<64x16xf16>
  %w2 = foresight.get_weight @fc2 : tensor<64x16xf16>
  %y = foresight.mlp %x, %w1 <relu> %w2 : tensor<1x16xf32>, tensor<64x16xf16>, tensor<64x16xf16> -> tensor<1x16xf32>
  return %y : tensor<1x16xf32>
}
}
