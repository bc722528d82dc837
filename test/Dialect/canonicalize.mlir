// RUN: foresight-opt %s --canonicalize | FileCheck %s

// CHECK-LABEL: func.func @last_of_one_row_is_it
// CHECK-SAME:    %[[X:[a-z0-9]+]]: tensor<1x4xf32>
func.func @last_of_one_row_is_it(%x: tensor<1x4xf32>) -> tensor<1x4xf32> {
  // CHECK: return %[[X]]
  %l = foresight.last_row %x : tensor<1x4xf32> -> tensor<1x4xf32>
  return %l : tensor<1x4xf32>
}

// CHECK-LABEL: func.func @no_activation_is_nothing
// CHECK-SAME:    %[[X:[a-z0-9]+]]: tensor<1x4xf32>
func.func @no_activation_is_nothing(%x: tensor<1x4xf32>) -> tensor<1x4xf32> {
  // CHECK: return %[[X]]
  %a = foresight.activate %x <none> : tensor<1x4xf32>
  return %a : tensor<1x4xf32>
}

// CHECK-LABEL: func.func @relu_twice_is_relu
func.func @relu_twice_is_relu(%x: tensor<1x4xf32>, %w: tensor<4x4xf16>) -> (tensor<1x4xf32>, tensor<1x4xf32>) {
  // CHECK: %[[A:.*]] = foresight.activate
  // CHECK: %[[H:.*]] = foresight.linear
  // CHECK: return %[[A]], %[[H]]
  %a = foresight.activate %x <relu> : tensor<1x4xf32>
  %b = foresight.activate %a <relu> : tensor<1x4xf32>
  %h = foresight.linear %x, %w {activation = #foresight.activation<relu>} : tensor<1x4xf32>, tensor<4x4xf16> -> tensor<1x4xf32>
  %c = foresight.activate %h <relu> : tensor<1x4xf32>
  return %b, %c : tensor<1x4xf32>, tensor<1x4xf32>
}

// CHECK-LABEL: func.func @gelu_twice_is_not_gelu
func.func @gelu_twice_is_not_gelu(%x: tensor<1x4xf32>) -> tensor<1x4xf32> {
  // CHECK-COUNT-2: foresight.activate
  %a = foresight.activate %x <gelu> : tensor<1x4xf32>
  %b = foresight.activate %a <gelu> : tensor<1x4xf32>
  return %b : tensor<1x4xf32>
}

// CHECK-LABEL: func.func @sparse_mlp_of_all_neurons_is_dense
func.func @sparse_mlp_of_all_neurons_is_dense(%x: tensor<1x4xf32>, %w: tensor<8x4xf16>, %b: tensor<8xf32>) -> tensor<1x4xf32> {
  // CHECK: foresight.mlp %{{.*}}, %{{.*}} bias(%{{.*}} : tensor<8xf32>) <relu>
  %y = foresight.sparse_mlp %x, %w bias(%b : tensor<8xf32>) <relu> %w : tensor<1x4xf32>, tensor<8x4xf16>, tensor<8x4xf16> -> tensor<1x4xf32>
  return %y : tensor<1x4xf32>
}

// CHECK-LABEL: func.func @skipping_zeros_stays_sparse
func.func @skipping_zeros_stays_sparse(%x: tensor<1x4xf32>, %w: tensor<8x4xf16>) -> tensor<1x4xf32> {
  // CHECK: foresight.sparse_mlp
  %y = foresight.sparse_mlp %x, %w <relu> %w {skip_zeros} : tensor<1x4xf32>, tensor<8x4xf16>, tensor<8x4xf16> -> tensor<1x4xf32>
  return %y : tensor<1x4xf32>
}

// CHECK-LABEL: func.func @unused_weights_are_not_read
func.func @unused_weights_are_not_read(%x: tensor<1x4xf32>) -> tensor<1x4xf32> {
  // CHECK-NOT: get_weight
  %w = foresight.get_weight @w : tensor<4xf32>
  return %x : tensor<1x4xf32>
}
foresight.weight @w : tensor<4xf32> = dense<1.0> : tensor<4xf32>
