// RUN: foresight-opt %s --foresight-schedule --split-input-file --verify-diagnostics | FileCheck %s

// The last stage reads what the first made, but waits for the second only: that
// one has waited for the first.
// CHECK-LABEL: func.func @implied_tokens_are_left_out
// CHECK: %[[A:.*]], %[[TA:.*]] = foresight.stage "a" (
// CHECK: %[[B:.*]], %[[TB:.*]] = foresight.stage "b" after(%[[TA]]) (
// CHECK: foresight.stage "c" after(%[[TB]]) (
func.func @implied_tokens_are_left_out(%x: tensor<1x8xf32>) -> tensor<1x8xf32> attributes {foresight.entry = "decode"} {
  %a, %ta = foresight.stage "a" (%i = %x : tensor<1x8xf32>) -> (tensor<1x8xf32>) {
    %0 = foresight.activate %i <relu> : tensor<1x8xf32>
    foresight.yield %0 : tensor<1x8xf32>
  }
  %b, %tb = foresight.stage "b" (%i = %a : tensor<1x8xf32>) -> (tensor<1x8xf32>) {
    %0 = foresight.activate %i <relu> : tensor<1x8xf32>
    foresight.yield %0 : tensor<1x8xf32>
  }
  %c, %tc = foresight.stage "c" (%i = %a : tensor<1x8xf32>, %j = %b : tensor<1x8xf32>) -> (tensor<1x8xf32>) {
    %0 = foresight.add %i, %j : tensor<1x8xf32>
    foresight.yield %0 : tensor<1x8xf32>
  }
  return %c : tensor<1x8xf32>
}

// -----

// Both read the cache as it was; the append overwrites it and comes last.
// CHECK-LABEL: func.func @append_after_readers
// CHECK: %{{.*}}, %[[R:.*]] = foresight.stage "reader" (
// CHECK: foresight.stage "append" after(%[[R]]) (
func.func @append_after_readers(%q: tensor<1x16xf32>, %p: tensor<1xi32>, %kv: !foresight.kv_cache<2 x 8, 8, f16>)
    -> (tensor<1x16xf32>, !foresight.kv_cache<2 x 8, 8, f16>) attributes {foresight.entry = "decode"} {
  %next, %t0 = foresight.stage "append" (%c = %kv : !foresight.kv_cache<2 x 8, 8, f16>, %k = %q : tensor<1x16xf32>, %at = %p : tensor<1xi32>) -> (!foresight.kv_cache<2 x 8, 8, f16>) {
    %0 = foresight.kv_append %c, %k, %k at %at : !foresight.kv_cache<2 x 8, 8, f16>, tensor<1x16xf32>, tensor<1xi32>
    foresight.yield %0 : !foresight.kv_cache<2 x 8, 8, f16>
  }
  %a, %t1 = foresight.stage "reader" (%c = %kv : !foresight.kv_cache<2 x 8, 8, f16>, %k = %q : tensor<1x16xf32>, %at = %p : tensor<1xi32>) -> (tensor<1x16xf32>) {
    %0 = foresight.attention %k, %c at %at scale = 1.000000e+00 : tensor<1x16xf32>, !foresight.kv_cache<2 x 8, 8, f16>, tensor<1xi32> -> tensor<1x16xf32>
    foresight.yield %0 : tensor<1x16xf32>
  }
  return %a, %next : tensor<1x16xf32>, !foresight.kv_cache<2 x 8, 8, f16>
}

// -----

func.func @two_appends_to_one_version(%q: tensor<1x16xf32>, %p: tensor<1xi32>, %kv: !foresight.kv_cache<2 x 8, 8, f16>)
    -> (!foresight.kv_cache<2 x 8, 8, f16>, !foresight.kv_cache<2 x 8, 8, f16>) attributes {foresight.entry = "decode"} {
  // expected-error @+1 {{'first' and 'second' both append to the same version of a cache}}
  %a, %t0 = foresight.stage "first" (%c = %kv : !foresight.kv_cache<2 x 8, 8, f16>, %k = %q : tensor<1x16xf32>, %at = %p : tensor<1xi32>) -> (!foresight.kv_cache<2 x 8, 8, f16>) {
    %0 = foresight.kv_append %c, %k, %k at %at : !foresight.kv_cache<2 x 8, 8, f16>, tensor<1x16xf32>, tensor<1xi32>
    foresight.yield %0 : !foresight.kv_cache<2 x 8, 8, f16>
  }
  %b, %t1 = foresight.stage "second" (%c = %kv : !foresight.kv_cache<2 x 8, 8, f16>, %k = %q : tensor<1x16xf32>, %at = %p : tensor<1xi32>) -> (!foresight.kv_cache<2 x 8, 8, f16>) {
    %0 = foresight.kv_append %c, %k, %k at %at : !foresight.kv_cache<2 x 8, 8, f16>, tensor<1x16xf32>, tensor<1xi32>
    foresight.yield %0 : !foresight.kv_cache<2 x 8, 8, f16>
  }
  return %a, %b : !foresight.kv_cache<2 x 8, 8, f16>, !foresight.kv_cache<2 x 8, 8, f16>
}

// -----

// Attention over the old cache needs a query from attention over the new one.
func.func @no_order(%q: tensor<1x16xf32>, %p: tensor<1xi32>, %kv: !foresight.kv_cache<2 x 8, 8, f16>)
    -> (tensor<1x16xf32>, !foresight.kv_cache<2 x 8, 8, f16>) attributes {foresight.entry = "decode"} {
  // expected-error @+1 {{'append' waits, by way of others, for itself: a stage reads a cache as it was before an append that it needs}}
  %next:2, %t0 = foresight.stage "append" (%c = %kv : !foresight.kv_cache<2 x 8, 8, f16>, %k = %q : tensor<1x16xf32>, %at = %p : tensor<1xi32>) -> (!foresight.kv_cache<2 x 8, 8, f16>, tensor<1x16xf32>) {
    %0 = foresight.kv_append %c, %k, %k at %at : !foresight.kv_cache<2 x 8, 8, f16>, tensor<1x16xf32>, tensor<1xi32>
    %1 = foresight.attention %k, %0 at %at scale = 1.000000e+00 : tensor<1x16xf32>, !foresight.kv_cache<2 x 8, 8, f16>, tensor<1xi32> -> tensor<1x16xf32>
    foresight.yield %0, %1 : !foresight.kv_cache<2 x 8, 8, f16>, tensor<1x16xf32>
  }
  %a, %t1 = foresight.stage "reader" (%c = %kv : !foresight.kv_cache<2 x 8, 8, f16>, %k = %next#1 : tensor<1x16xf32>, %at = %p : tensor<1xi32>) -> (tensor<1x16xf32>) {
    %0 = foresight.attention %k, %c at %at scale = 1.000000e+00 : tensor<1x16xf32>, !foresight.kv_cache<2 x 8, 8, f16>, tensor<1xi32> -> tensor<1x16xf32>
    foresight.yield %0 : tensor<1x16xf32>
  }
  return %a, %next#0 : tensor<1x16xf32>, !foresight.kv_cache<2 x 8, 8, f16>
}

// -----

func.func @op_outside_a_stage(%x: tensor<1x8xf32>) -> tensor<1x8xf32> attributes {foresight.entry = "decode"} {
  // expected-error @+1 {{is not in a stage; run foresight-form-stages first}}
  %a = foresight.activate %x <relu> : tensor<1x8xf32>
  return %a : tensor<1x8xf32>
}
