// DEFINE: %{sparse} = foresight-opt --foresight-specialize-entries=dense-decode=true --foresight-sparsify=rule=proof --foresight-fold-norm --foresight-lookahead --foresight-verify-entries --foresight-schedule-pipeline

// RUN: foresight-opt %fixtures/step-pre-norm.mlir --foresight-prepare-pipeline | %{sparse} | FileCheck %s
// RUN: foresight-opt %fixtures/step-post-norm.mlir --foresight-prepare-pipeline | %{sparse} | FileCheck %s --check-prefix=POST

// The whole way from @step to a scheduled module with proofs.

// CHECK: sparsity = "exact"
// CHECK: foresight.weight @layers.0.fc1.weight.low_bit : !foresight.low_bit<256 x 64, 6> = #foresight.derived<low_bit, [@layers.0.fc1.weight, @layers.0.fc1.bias, @layers.0.final_layer_norm.weight, @layers.0.final_layer_norm.bias]>

// Predict, select and compute: one stage, whose set never leaves it.
// CHECK: foresight.kernel @decode.fc1(
// CHECK-NEXT: %[[X:.*]] = foresight.layer_norm %[[R:.*]] gamma(
// CHECK-NEXT: %[[U:.*]] = foresight.layer_norm %[[R]] epsilon
// CHECK-NEXT: %[[S:.*]], %[[DONE:.*]] = foresight.predict %[[U]], %[[COPY:.*]] :
// CHECK-NEXT: %[[SET:.*]] = foresight.select_certified %[[S]], %[[U]], %[[COPY]] kappa = 1.000000e+00 after(%[[DONE]])
// CHECK-NEXT: %[[H:.*]] = foresight.gather_linear %[[X]], {{.*}} rows(%[[SET]]) {activation = #foresight.activation<relu>}
// CHECK-NEXT: foresight.yield %[[H]]
// CHECK: foresight.kernel @decode.fc2(
// CHECK-NEXT: foresight.column_linear {{.*}} {skip_zeros}
// CHECK-NEXT: foresight.add

// The dense decode shares every kernel that is the same, and the buffers.
// CHECK-NOT: foresight.kernel @decode_dense.qkv
// CHECK-LABEL: func.func @decode(
// CHECK-SAME: foresight.sparsity = [{bits = 6 : i64, kappa = 1.000000e+00 : f64, layer = 0 : i64, lookahead = "here", neurons = 256 : i64, rule = "proof"}, {
// CHECK: foresight.launch "layers.1.fc1" @decode.fc1 {{.*}} outs [@layers.1.fc1.out]
// CHECK-LABEL: func.func @decode_dense(
// CHECK: foresight.launch "layers.1.qkv" @decode.qkv
// CHECK: foresight.launch "layers.1.fc1" @decode_dense.fc1 {{.*}} outs [@layers.1.fc1.out]

// LayerNorm after the block has a stage of its own for the residual stream; the
// stage that predicts normalises the stream again.
// POST: foresight.kernel @decode.fc1(
// POST-NEXT: foresight.layer_norm %[[R:.*]] epsilon
// POST-NEXT: foresight.predict
// POST-NEXT: foresight.select_certified
// POST-NEXT: foresight.layer_norm %[[R]] gamma(
// POST-NEXT: foresight.gather_linear
// POST: foresight.launch "layers.0.mlp_norm"
// POST: foresight.launch "layers.0.fc1" @decode.fc1
