// RUN: foresight-opt %s --foresight-specialize-entries --split-input-file --verify-diagnostics | FileCheck %s
// RUN: foresight-opt %s --foresight-specialize-entries="dense-decode=true max-tokens=4" --split-input-file --verify-diagnostics | FileCheck %s --check-prefix=DENSE

// CHECK-NOT: @step
// A prompt is no longer than a cache.
// CHECK-LABEL: func.func @prefill(
// CHECK-SAME: tensor<?xi32>
// CHECK-SAME: attributes {foresight.entry = "prefill", foresight.max_tokens = 8 : i64}
// CHECK: foresight.kv_append {{.*}} tensor<?x16xf32>
// CHECK: foresight.last_row
// CHECK-LABEL: func.func @decode(
// CHECK-SAME: tensor<1xi32>
// CHECK-SAME: attributes {foresight.entry = "decode", foresight.max_tokens = 1 : i64}
// CHECK: foresight.kv_append {{.*}} tensor<1x16xf32>
// CHECK: %[[S:.*]] = foresight.add {{.*}} : tensor<1x16xf32>
// CHECK-NOT: foresight.last_row
// CHECK: return %[[S]],
// CHECK-NOT: @decode_dense

// DENSE: func.func @prefill({{.*}} foresight.max_tokens = 4
// DENSE: func.func @decode(
// DENSE: func.func @decode_dense({{.*}}foresight.entry = "decode_dense", foresight.max_tokens = 1
func.func @step(%ids: tensor<?xi32>, %pos: tensor<?xi32>, %kv: !foresight.kv_cache<2 x 8, 8, f16>, %e: tensor<9x16xf16>)
    -> (tensor<1x16xf32>, !foresight.kv_cache<2 x 8, 8, f16>) attributes {foresight.entry = "step"} {
  %x = foresight.gather_rows %e[%ids] : tensor<9x16xf16>, tensor<?xi32> -> tensor<?x16xf32>
  %kv1 = foresight.kv_append %kv, %x, %x at %pos : !foresight.kv_cache<2 x 8, 8, f16>, tensor<?x16xf32>, tensor<?xi32>
  %s = foresight.add %x, %x : tensor<?x16xf32>
  %r = foresight.last_row %s : tensor<?x16xf32> -> tensor<1x16xf32>
  return %r, %kv1 : tensor<1x16xf32>, !foresight.kv_cache<2 x 8, 8, f16>
}

// -----

// expected-error @+1 {{has no function with foresight.entry = "step" to specialise}}
module {
}

// -----

// expected-error @+1 {{argument 0 has type 'tensor<?x?xf32>', but only the first dimension, the number of tokens, may be unknown}}
func.func @step(%x: tensor<?x?xf32>) -> tensor<?x?xf32> attributes {foresight.entry = "step"} {
  return %x : tensor<?x?xf32>
}
