// RUN: foresight-opt %s --foresight-hoist-last-row | FileCheck %s

// CHECK-LABEL: func.func @through_norm_and_linear
// CHECK-SAME: %[[X:[a-z0-9]+]]: tensor<?x16xf32>
func.func @through_norm_and_linear(%x: tensor<?x16xf32>, %w: tensor<8x16xf16>) -> tensor<1x8xf32> {
  // CHECK-NEXT: %[[R:.*]] = foresight.last_row %[[X]] : tensor<?x16xf32> -> tensor<1x16xf32>
  // CHECK-NEXT: %[[N:.*]] = foresight.layer_norm %[[R]] {{.*}} : tensor<1x16xf32> -> tensor<1x16xf32>
  // CHECK-NEXT: %[[L:.*]] = foresight.linear %[[N]], {{.*}} -> tensor<1x8xf32>
  // CHECK-NEXT: return %[[L]]
  %n = foresight.layer_norm %x epsilon = 1.000000e-05 : tensor<?x16xf32> -> tensor<?x16xf32>
  %l = foresight.linear %n, %w : tensor<?x16xf32>, tensor<8x16xf16> -> tensor<?x8xf32>
  %r = foresight.last_row %l : tensor<?x8xf32> -> tensor<1x8xf32>
  return %r : tensor<1x8xf32>
}

// CHECK-LABEL: func.func @norm_is_read_for_all_rows
func.func @norm_is_read_for_all_rows(%x: tensor<?x16xf32>) -> (tensor<1x16xf32>, tensor<?x16xf32>) {
  // CHECK-NEXT: %[[N:.*]] = foresight.layer_norm %{{.*}} : tensor<?x16xf32> -> tensor<?x16xf32>
  // CHECK-NEXT: foresight.last_row %[[N]]
  %n = foresight.layer_norm %x epsilon = 1.000000e-05 : tensor<?x16xf32> -> tensor<?x16xf32>
  %r = foresight.last_row %n : tensor<?x16xf32> -> tensor<1x16xf32>
  return %r, %n : tensor<1x16xf32>, tensor<?x16xf32>
}

// CHECK-LABEL: func.func @stops_at_the_residual_stream
func.func @stops_at_the_residual_stream(%x: tensor<?x16xf32>, %y: tensor<?x16xf32>) -> tensor<1x16xf32> {
  // CHECK-NEXT: %[[S:.*]] = foresight.add
  // CHECK-NEXT: foresight.last_row %[[S]]
  %s = foresight.add %x, %y : tensor<?x16xf32>
  %r = foresight.last_row %s : tensor<?x16xf32> -> tensor<1x16xf32>
  return %r : tensor<1x16xf32>
}
