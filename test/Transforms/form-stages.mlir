// RUN: foresight-opt %s --foresight-form-stages --split-input-file --verify-diagnostics | FileCheck %s
// RUN: foresight-opt %s --foresight-form-stages --split-input-file --verify-diagnostics --mlir-print-debuginfo | FileCheck %s --check-prefix=LOC
// RUN: not foresight-opt %s --foresight-form-stages=target=abacus --split-input-file 2>&1 | FileCheck %s --check-prefix=TARGET

// TARGET: error: no stage rules for target 'abacus'; there are: cpu, cuda

// A LayerNorm that only products of one stage read is computed inside it, and
// products of one input are one stage.
// CHECK-LABEL: func.func @norm_of_one_stage
// CHECK: foresight.stage "head" (%[[X:[a-z0-9]+]] = %{{.*}} : tensor<1x16xf32>
// CHECK-NEXT: %[[N:.*]] = foresight.layer_norm %[[X]]
// CHECK-NEXT: foresight.linear %[[N]]
// CHECK-NEXT: foresight.linear %[[N]]
// CHECK-NOT: foresight.stage
func.func @norm_of_one_stage(%x: tensor<1x16xf32>, %a: tensor<8x16xf16>, %b: tensor<8x16xf16>) -> (tensor<1x8xf32>, tensor<1x8xf32>) attributes {foresight.entry = "decode"} {
  %n = foresight.layer_norm %x epsilon = 1.000000e-05 : tensor<1x16xf32> -> tensor<1x16xf32> loc("norm")
  %p = foresight.linear %n, %a : tensor<1x16xf32>, tensor<8x16xf16> -> tensor<1x8xf32> loc("first")
  %q = foresight.linear %n, %b : tensor<1x16xf32>, tensor<8x16xf16> -> tensor<1x8xf32> loc("second")
  return %p, %q : tensor<1x8xf32>, tensor<1x8xf32>
}
// The nodes of the source graph are the stage's location.
// LOC-DAG: loc("norm")
// LOC-DAG: loc("first")
// LOC-DAG: loc("second")
// LOC-DAG: loc(fused[#{{.*}}, #{{.*}}, #{{.*}}])

// -----

// The residual stream reads the LayerNorm too.
// CHECK-LABEL: func.func @norm_of_two_stages
// CHECK: %[[N:.*]], %{{.*}} = foresight.stage "norm"
// CHECK-NEXT: foresight.layer_norm
// CHECK: foresight.stage "linear" (%{{.*}} = %[[N]] : tensor<1x16xf32>
// CHECK-NEXT: foresight.linear
// CHECK-NEXT: foresight.add
func.func @norm_of_two_stages(%x: tensor<1x16xf32>, %a: tensor<16x16xf16>) -> tensor<1x16xf32> attributes {foresight.entry = "decode"} {
  %n = foresight.layer_norm %x epsilon = 1.000000e-05 : tensor<1x16xf32> -> tensor<1x16xf32>
  %p = foresight.linear %n, %a : tensor<1x16xf32>, tensor<16x16xf16> -> tensor<1x16xf32>
  %s = foresight.add %n, %p : tensor<1x16xf32>
  %t = foresight.activate %s <relu> : tensor<1x16xf32>
  return %t : tensor<1x16xf32>
}

// -----

// A prompt's product is the library's, with bias, activation and residual; the
// library has no LayerNorm.
// CHECK-LABEL: func.func @prompt
// CHECK: foresight.stage "norm"
// CHECK: foresight.stage "linear" {{.*}} library "gemm"
// CHECK-NEXT: foresight.linear
// CHECK-NEXT: foresight.add
// CHECK-NEXT: foresight.yield
func.func @prompt(%x: tensor<?x16xf32>, %a: tensor<16x16xf16>, %b: tensor<16xf32>) -> tensor<?x16xf32> attributes {foresight.entry = "prefill"} {
  %n = foresight.layer_norm %x epsilon = 1.000000e-05 : tensor<?x16xf32> -> tensor<?x16xf32>
  %p = foresight.linear %n, %a bias(%b : tensor<16xf32>) : tensor<?x16xf32>, tensor<16x16xf16> -> tensor<?x16xf32>
  %s = foresight.add %x, %p : tensor<?x16xf32>
  %t = foresight.activate %s <relu> : tensor<?x16xf32>
  return %t : tensor<?x16xf32>
}

// -----

// A sum of two products: each product is a stage, the sum is in one of them.
// CHECK-LABEL: func.func @sum_of_two_products
// CHECK: %[[Q:.*]], %{{.*}} = foresight.stage "linear" ({{.*}} {
// CHECK-NEXT: foresight.linear
// CHECK-NEXT: foresight.yield
// CHECK: foresight.stage "linear_1" ({{.*}}%[[Q]] : tensor<1x16xf32>{{.*}} {
// CHECK-NEXT: foresight.linear
// CHECK-NEXT: foresight.add
func.func @sum_of_two_products(%x: tensor<1x16xf32>, %y: tensor<1x16xf32>, %a: tensor<16x16xf16>) -> tensor<1x16xf32> attributes {foresight.entry = "decode"} {
  %p = foresight.linear %x, %a : tensor<1x16xf32>, tensor<16x16xf16> -> tensor<1x16xf32>
  %q = foresight.linear %y, %a : tensor<1x16xf32>, tensor<16x16xf16> -> tensor<1x16xf32>
  %s = foresight.add %p, %q : tensor<1x16xf32>
  %t = foresight.activate %s <relu> : tensor<1x16xf32>
  return %t : tensor<1x16xf32>
}

// -----

func.func @set_of_two_consumers(%x: tensor<1x16xf32>, %s: tensor<1x8xf32>, %a: tensor<8x16xf16>) -> (tensor<1x8xf32>, tensor<1x8xf32>) attributes {foresight.entry = "decode"} {
  // expected-error @+1 {{makes a set that more than one op uses, but a set cannot leave the stage that makes it: select once for each use}}
  %set = foresight.select_threshold %s threshold = 0.0 : tensor<1x8xf32> -> !foresight.index_set<8 of 8>
  %h = foresight.gather_linear %x, %a rows(%set) : tensor<1x16xf32>, tensor<8x16xf16>, !foresight.index_set<8 of 8> -> tensor<1x8xf32>
  %g = foresight.gather_linear %x, %a rows(%set) : tensor<1x16xf32>, tensor<8x16xf16>, !foresight.index_set<8 of 8> -> tensor<1x8xf32>
  return %h, %g : tensor<1x8xf32>, tensor<1x8xf32>
}

// -----

func.func @mlp_is_left(%x: tensor<1x16xf32>, %a: tensor<8x16xf16>) -> tensor<1x16xf32> attributes {foresight.entry = "decode"} {
  // expected-error @+1 {{cannot be part of a stage; expected an op that foresight-expand-mlp leaves}}
  %y = foresight.mlp %x, %a <relu> %a : tensor<1x16xf32>, tensor<8x16xf16>, tensor<8x16xf16> -> tensor<1x16xf32>
  return %y : tensor<1x16xf32>
}
