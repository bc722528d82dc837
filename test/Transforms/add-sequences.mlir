// RUN: foresight-opt %s --foresight-add-sequences=max-batch=4 --foresight-specialize-entries | FileCheck %s
// RUN: foresight-opt %s --foresight-add-sequences | FileCheck %s --check-prefix=ONE
// RUN: not foresight-opt %s --foresight-add-sequences=max-batch=0 2>&1 | FileCheck %s --check-prefix=NONE

// ONE-NOT: sequences
// NONE: max-batch must be at least 1, found 0

// CHECK-LABEL: func.func @prefill(
// CHECK-SAME: tensor<?xi32>, %{{.*}}: tensor<?xi32>, %[[IN:.*]]: tensor<1xi32>, %{{.*}}: !foresight.kv_cache<2 x 8, 8, f16, sequences = 4>
// CHECK: foresight.kv_append {{.*}} in(%[[IN]] : tensor<1xi32>)
// CHECK: foresight.attention {{.*}} in(%[[IN]] : tensor<1xi32>)
// CHECK: foresight.last_row
// CHECK-LABEL: func.func @decode(
// CHECK-SAME: tensor<1xi32>, %{{.*}}: tensor<1xi32>, %{{.*}}: tensor<1xi32>
// A row is a sequence, and each has logits.
// CHECK-LABEL: func.func @decode_batch(
// CHECK-SAME: tensor<?xi32>, %{{.*}}: tensor<?xi32>, %[[IN:.*]]: tensor<?xi32>, %{{.*}}: !foresight.kv_cache<2 x 8, 8, f16, sequences = 4>
// CHECK-SAME: -> (tensor<?x9xf32>, !foresight.kv_cache<2 x 8, 8, f16, sequences = 4>)
// CHECK-SAME: foresight.entry = "decode_batch", foresight.max_tokens = 4
// CHECK: foresight.attention {{.*}} in(%[[IN]] : tensor<?xi32>)
// CHECK-NOT: foresight.last_row
// CHECK: foresight.linear {{.*}} -> tensor<?x9xf32>
func.func @step(%ids: tensor<?xi32>, %pos: tensor<?xi32>, %kv: !foresight.kv_cache<2 x 8, 8, f16>, %e: tensor<9x16xf16>)
    -> (tensor<1x9xf32>, !foresight.kv_cache<2 x 8, 8, f16>) attributes {foresight.entry = "step"} {
  %x = foresight.gather_rows %e[%ids] : tensor<9x16xf16>, tensor<?xi32> -> tensor<?x16xf32>
  %kv1 = foresight.kv_append %kv, %x, %x at %pos : !foresight.kv_cache<2 x 8, 8, f16>, tensor<?x16xf32>, tensor<?xi32>
  %a = foresight.attention %x, %kv1 at %pos scale = 0.5 : tensor<?x16xf32>, !foresight.kv_cache<2 x 8, 8, f16>, tensor<?xi32> -> tensor<?x16xf32>
  %r = foresight.last_row %a : tensor<?x16xf32> -> tensor<1x16xf32>
  %l = foresight.linear %r, %e : tensor<1x16xf32>, tensor<9x16xf16> -> tensor<1x9xf32>
  return %l, %kv1 : tensor<1x9xf32>, !foresight.kv_cache<2 x 8, 8, f16>
}
