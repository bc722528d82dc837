// RUN: foresight-opt %s --foresight-form-mlp --split-input-file | FileCheck %s

foresight.weight @fc1 : tensor<64x16xf16> = #foresight.synthetic<seed = 1, mean = 0.0 : f64, deviation = 1.0 : f64>
foresight.weight @fc2 : tensor<16x64xf16> = #foresight.synthetic<seed = 2, mean = 0.0 : f64, deviation = 1.0 : f64>

// CHECK: foresight.weight @fc2.neuron_major : tensor<64x16xf16> = #foresight.derived<transpose, [@fc2]>
// CHECK-LABEL: func.func @separate_activation
func.func @separate_activation(%x: tensor<?x16xf32>, %b1: tensor<64xf32>) -> tensor<?x16xf32> {
  %w1 = foresight.get_weight @fc1 : tensor<64x16xf16>
  %w2 = foresight.get_weight @fc2 : tensor<16x64xf16>
  // CHECK: %[[W1:.*]] = foresight.get_weight @fc1
  // CHECK: %[[W2:.*]] = foresight.get_weight @fc2.neuron_major : tensor<64x16xf16>
  // CHECK: foresight.mlp %{{.*}}, %[[W1]] bias(%{{.*}} : tensor<64xf32>) <relu> %[[W2]] :
  // CHECK-NOT: foresight.linear
  %h = foresight.linear %x, %w1 bias(%b1 : tensor<64xf32>) : tensor<?x16xf32>, tensor<64x16xf16> -> tensor<?x64xf32>
  %a = foresight.activate %h <relu> : tensor<?x64xf32>
  %y = foresight.linear %a, %w2 : tensor<?x64xf32>, tensor<16x64xf16> -> tensor<?x16xf32>
  return %y : tensor<?x16xf32>
}

// The weight is laid out once for both.
// CHECK-LABEL: func.func @activation_of_the_linear
func.func @activation_of_the_linear(%x: tensor<?x16xf32>) -> tensor<?x16xf32> {
  %w1 = foresight.get_weight @fc1 : tensor<64x16xf16>
  %w2 = foresight.get_weight @fc2 : tensor<16x64xf16>
  // CHECK: foresight.get_weight @fc2.neuron_major
  // CHECK: foresight.mlp {{.*}} <gelu>
  %h = foresight.linear %x, %w1 {activation = #foresight.activation<gelu>} : tensor<?x16xf32>, tensor<64x16xf16> -> tensor<?x64xf32>
  %y = foresight.linear %h, %w2 : tensor<?x64xf32>, tensor<16x64xf16> -> tensor<?x16xf32>
  return %y : tensor<?x16xf32>
}

// -----

foresight.weight @fc1 : tensor<64x16xf16> = #foresight.synthetic<seed = 1, mean = 0.0 : f64, deviation = 1.0 : f64>
foresight.weight @fc2 : tensor<16x64xf16> = #foresight.synthetic<seed = 2, mean = 0.0 : f64, deviation = 1.0 : f64>

// CHECK-NOT: neuron_major
// CHECK-LABEL: func.func @hidden_values_are_read_elsewhere
func.func @hidden_values_are_read_elsewhere(%x: tensor<?x16xf32>) -> (tensor<?x16xf32>, tensor<?x64xf32>) {
  %w1 = foresight.get_weight @fc1 : tensor<64x16xf16>
  %w2 = foresight.get_weight @fc2 : tensor<16x64xf16>
  // CHECK-NOT: foresight.mlp
  %h = foresight.linear %x, %w1 {activation = #foresight.activation<relu>} : tensor<?x16xf32>, tensor<64x16xf16> -> tensor<?x64xf32>
  %y = foresight.linear %h, %w2 : tensor<?x64xf32>, tensor<16x64xf16> -> tensor<?x16xf32>
  return %y, %h : tensor<?x16xf32>, tensor<?x64xf32>
}

// CHECK-LABEL: func.func @no_activation_between
func.func @no_activation_between(%x: tensor<?x16xf32>) -> tensor<?x16xf32> {
  %w1 = foresight.get_weight @fc1 : tensor<64x16xf16>
  %w2 = foresight.get_weight @fc2 : tensor<16x64xf16>
  // CHECK-NOT: foresight.mlp
  %h = foresight.linear %x, %w1 : tensor<?x16xf32>, tensor<64x16xf16> -> tensor<?x64xf32>
  %y = foresight.linear %h, %w2 : tensor<?x64xf32>, tensor<16x64xf16> -> tensor<?x16xf32>
  return %y : tensor<?x16xf32>
}

// CHECK-LABEL: func.func @second_layer_has_an_activation
func.func @second_layer_has_an_activation(%x: tensor<?x16xf32>) -> tensor<?x16xf32> {
  %w1 = foresight.get_weight @fc1 : tensor<64x16xf16>
  %w2 = foresight.get_weight @fc2 : tensor<16x64xf16>
  // CHECK-NOT: foresight.mlp
  %h = foresight.linear %x, %w1 {activation = #foresight.activation<relu>} : tensor<?x16xf32>, tensor<64x16xf16> -> tensor<?x64xf32>
  %y = foresight.linear %h, %w2 {activation = #foresight.activation<relu>} : tensor<?x64xf32>, tensor<16x64xf16> -> tensor<?x16xf32>
  return %y : tensor<?x16xf32>
}

// Data that are not a weight of the module cannot be transposed when packed.
// CHECK-LABEL: func.func @second_matrix_is_an_argument
func.func @second_matrix_is_an_argument(%x: tensor<?x16xf32>, %w2: tensor<16x64xf16>) -> tensor<?x16xf32> {
  %w1 = foresight.get_weight @fc1 : tensor<64x16xf16>
  // CHECK-NOT: foresight.mlp
  %h = foresight.linear %x, %w1 {activation = #foresight.activation<relu>} : tensor<?x16xf32>, tensor<64x16xf16> -> tensor<?x64xf32>
  %y = foresight.linear %h, %w2 : tensor<?x64xf32>, tensor<16x64xf16> -> tensor<?x16xf32>
  return %y : tensor<?x16xf32>
}
