// DEFINE: %{to} = foresight-opt %fixtures/step-pre-norm.mlir --foresight-prepare-pipeline --foresight-specialize-entries
// DEFINE: %{ahead} = --foresight-fold-norm --foresight-lookahead --foresight-verify-entries
// RUN: %{to} --foresight-sparsify="rule=margin lookahead=half_block" %{ahead} | FileCheck %s --check-prefix=HALF
// RUN: %{to} --foresight-sparsify="rule=margin lookahead=block" %{ahead} | FileCheck %s --check-prefix=BLOCK
// RUN: %{to} --foresight-sparsify="rule=margin lookahead=here" %{ahead} | FileCheck %s --check-prefix=HERE
// RUN: sed 's/synthetic = true/synthetic = false/' %fixtures/step-pre-norm.mlir | foresight-opt --foresight-prepare-pipeline --foresight-specialize-entries --foresight-sparsify="rule=margin lookahead=half_block" %{ahead} | FileCheck %s --check-prefix=BALANCED
// RUN: %{to} --foresight-sparsify="rule=margin lookahead=half_block" %{ahead} --foresight-expand-mlp --foresight-form-stages=target=cuda | FileCheck %s --check-prefix=STAGES
// RUN: foresight-opt %s --foresight-lookahead --split-input-file --verify-diagnostics

// The prediction is made from what the attention of its block reads, before it.
// HALF-LABEL: func.func @decode
// HALF: %[[X0:.*]] = foresight.add %{{.*}}, %{{.*}}
// HALF: %[[U:.*]] = foresight.layer_norm %[[X0]] epsilon
// HALF-NEXT: %[[S:.*]], %[[DONE:.*]] = foresight.predict %[[U]], {{.*}} {lookahead = #foresight.lookahead<half_block>}
// HALF: foresight.attention
// HALF: foresight.select_certified %[[S]], %[[U]], {{.*}} after(%[[DONE]])
// HALF: %[[X1:.*]] = foresight.add
// HALF: foresight.layer_norm %[[X1]] epsilon
// HALF-NEXT: foresight.predict

// On a GPU it rides beside that attention, and stages keep their names.
// STAGES-LABEL: func.func @decode
// STAGES: foresight.stage "layers.0.attention"
// STAGES-NEXT: foresight.layer_norm
// STAGES-NEXT: foresight.predict
// STAGES: foresight.stage "layers.0.out_proj"
// STAGES: foresight.stage "layers.0.fc1"
// STAGES: foresight.gather_linear
// STAGES: foresight.stage "layers.0.fc2"

// What balances the columns of a copy goes along.
// BALANCED-LABEL: func.func @decode
// BALANCED: %[[X0:.*]] = foresight.add %{{.*}}, %{{.*}}
// BALANCED: %[[C:.*]] = foresight.get_weight @layers.0.fc1.weight.balance
// BALANCED: %[[U:.*]] = foresight.layer_norm %[[X0]] gamma(%[[C]] : tensor<64xf32>) epsilon
// BALANCED-NEXT: %[[S:.*]], %[[DONE:.*]] = foresight.predict %[[U]], {{.*}} {lookahead = #foresight.lookahead<half_block>}
// BALANCED: foresight.select_certified %[[S]], %[[U]], {{.*}} after(%[[DONE]])

// The second block predicts from where the MLP of the first reads; the first,
// which has none before it, from the earliest there is.
// BLOCK-LABEL: func.func @decode
// BLOCK: %[[X0:.*]] = foresight.add %{{.*}}, %{{.*}}
// BLOCK: foresight.layer_norm %[[X0]] epsilon
// BLOCK-NEXT: foresight.predict
// BLOCK: foresight.attention
// BLOCK: %[[R0:.*]] = foresight.add
// BLOCK: %[[U:.*]] = foresight.layer_norm %[[R0]] epsilon
// BLOCK-NEXT: foresight.predict %[[U]], {{.*}} {lookahead = #foresight.lookahead<block>}
// BLOCK: foresight.sparse_mlp
// BLOCK-NOT: foresight.predict
// BLOCK: foresight.attention

// HERE-LABEL: func.func @decode
// HERE: foresight.attention
// HERE: %[[R0:.*]] = foresight.add
// HERE: %[[U:.*]] = foresight.layer_norm %[[R0]] epsilon
// HERE: foresight.predict %[[U]]

func.func @proof_cannot_look_ahead(%r: tensor<1x16xf32>, %copy: !foresight.low_bit<64 x 16, 4>) -> !foresight.index_set<64 of 64> attributes {foresight.entry = "decode"} {
  %u = foresight.layer_norm %r epsilon = 1.000000e-05 : tensor<1x16xf32> -> tensor<1x16xf32>
  // expected-error @+1 {{looks ahead from half_block but a selection with kappa 1 is made from its scores, which proves nothing of the consumer's own input; use a margin or lookahead here}}
  %s, %t = foresight.predict %u, %copy {lookahead = #foresight.lookahead<half_block>} : tensor<1x16xf32>, !foresight.low_bit<64 x 16, 4> -> tensor<1x64xf32>
  %set = foresight.select_certified %s, %u, %copy kappa = 1.0 after(%t) : tensor<1x64xf32>, tensor<1x16xf32>, !foresight.low_bit<64 x 16, 4> -> !foresight.index_set<64 of 64>
  return %set : !foresight.index_set<64 of 64>
}

// -----

func.func @norm_is_not_folded(%r: tensor<1x16xf32>, %g: tensor<16xf32>, %copy: !foresight.low_bit<64 x 16, 4>) -> tensor<1x64xf32> attributes {foresight.entry = "decode"} {
  %n = foresight.layer_norm %r gamma(%g : tensor<16xf32>) epsilon = 1.000000e-05 : tensor<1x16xf32> -> tensor<1x16xf32>
  // expected-error @+1 {{looks ahead but does not read a LayerNorm without gamma and beta; run foresight-fold-norm first}}
  %s, %t = foresight.predict %n, %copy {lookahead = #foresight.lookahead<block>} : tensor<1x16xf32>, !foresight.low_bit<64 x 16, 4> -> tensor<1x64xf32>
  return %s : tensor<1x64xf32>
}
