// RUN: foresight-opt %s --foresight-expand-mlp | FileCheck %s

// CHECK-LABEL: func.func @dense
func.func @dense(%x: tensor<?x16xf32>, %w1: tensor<64x16xf16>, %b1: tensor<64xf32>, %w2: tensor<64x16xf16>, %b2: tensor<16xf32>) -> tensor<?x16xf32> {
  // CHECK-NEXT: %[[H:.*]] = foresight.linear %{{.*}} bias({{.*}}) {activation = #foresight.activation<relu>} : {{.*}} -> tensor<?x64xf32>
  // CHECK-NEXT: foresight.column_linear %[[H]], %{{.*}} bias(%{{.*}} : tensor<16xf32>) : tensor<?x64xf32>
  %y = foresight.mlp %x, %w1 bias(%b1 : tensor<64xf32>) <relu> %w2 bias(%b2 : tensor<16xf32>) : tensor<?x16xf32>, tensor<64x16xf16>, tensor<64x16xf16> -> tensor<?x16xf32>
  return %y : tensor<?x16xf32>
}

// The second product needs no set: what is not selected is 0.
// CHECK-LABEL: func.func @selected
func.func @selected(%x: tensor<1x16xf32>, %w1: tensor<64x16xf16>, %w2: tensor<64x16xf16>, %set: !foresight.index_set<64 of 64>) -> tensor<1x16xf32> {
  // CHECK-NEXT: %[[H:.*]] = foresight.gather_linear %{{.*}} rows(%{{.*}}) {activation = #foresight.activation<relu>}
  // CHECK-NEXT: foresight.column_linear %[[H]], %{{[a-z0-9]+}} {skip_zeros} :
  %y = foresight.sparse_mlp %x, %w1 <relu> %w2 rows(%set : !foresight.index_set<64 of 64>) : tensor<1x16xf32>, tensor<64x16xf16>, tensor<64x16xf16> -> tensor<1x16xf32>
  return %y : tensor<1x16xf32>
}

// CHECK-LABEL: func.func @only_zeros_are_skipped
func.func @only_zeros_are_skipped(%x: tensor<1x16xf32>, %w1: tensor<64x16xf16>, %w2: tensor<64x16xf16>) -> tensor<1x16xf32> {
  // CHECK-NEXT: foresight.linear
  // CHECK-NEXT: foresight.column_linear %{{.*}}, %{{[a-z0-9]+}} {skip_zeros} :
  %y = foresight.sparse_mlp %x, %w1 <relu> %w2 {skip_zeros} : tensor<1x16xf32>, tensor<64x16xf16>, tensor<64x16xf16> -> tensor<1x16xf32>
  return %y : tensor<1x16xf32>
}

// CHECK-LABEL: func.func @activation_joins_its_linear
func.func @activation_joins_its_linear(%x: tensor<1x16xf32>, %w: tensor<64x16xf16>) -> tensor<1x64xf32> {
  // CHECK-NEXT: %[[H:.*]] = foresight.linear {{.*}} {activation = #foresight.activation<gelu>}
  // CHECK-NEXT: return %[[H]]
  %h = foresight.linear %x, %w : tensor<1x16xf32>, tensor<64x16xf16> -> tensor<1x64xf32>
  %a = foresight.activate %h <gelu> : tensor<1x64xf32>
  return %a : tensor<1x64xf32>
}

// CHECK-LABEL: func.func @linear_has_another_use
func.func @linear_has_another_use(%x: tensor<1x16xf32>, %w: tensor<64x16xf16>) -> (tensor<1x64xf32>, tensor<1x64xf32>) {
  // CHECK-NEXT: foresight.linear {{.*}}, %{{[a-z0-9]+}} :
  // CHECK-NEXT: foresight.activate
  %h = foresight.linear %x, %w : tensor<1x16xf32>, tensor<64x16xf16> -> tensor<1x64xf32>
  %a = foresight.activate %h <gelu> : tensor<1x64xf32>
  return %a, %h : tensor<1x64xf32>, tensor<1x64xf32>
}
