// RUN: foresight-opt %s --foresight-fold-norm | FileCheck %s

foresight.weight @fc1 : tensor<64x16xf16> = #foresight.synthetic<seed = 1, mean = 0.0 : f64, deviation = 1.0 : f64>
foresight.weight @gamma : tensor<16xf32> = #foresight.synthetic<seed = 2, mean = 1.0 : f64, deviation = 0.1 : f64>
foresight.weight @beta : tensor<16xf32> = #foresight.synthetic<seed = 3, mean = 0.0 : f64, deviation = 0.1 : f64>
// CHECK-DAG: @once : !foresight.low_bit<64 x 16, 4> = #foresight.derived<low_bit, [@fc1, @none, @gamma, @beta, @fc1.balance]>
foresight.weight @once : !foresight.low_bit<64 x 16, 4> = #foresight.derived<low_bit, [@fc1, @none, @none, @none]>
// A copy that others read is kept for them.
// CHECK-DAG: @twice : !foresight.low_bit<64 x 16, 4> = #foresight.derived<low_bit, [@fc1, @none, @none, @none]>
// CHECK-DAG: @twice.folded : !foresight.low_bit<64 x 16, 4> = #foresight.derived<low_bit, [@fc1, @none, @gamma, @none, @fc1.balance]>
// CHECK-DAG: @fc1.balance : tensor<16xf32> = #foresight.derived<balance, [@fc1, @gamma]>
foresight.weight @twice : !foresight.low_bit<64 x 16, 4> = #foresight.derived<low_bit, [@fc1, @none, @none, @none]>

// CHECK-LABEL: func.func @affine_norm
// CHECK-SAME: %[[R:[a-z0-9]+]]: tensor<1x16xf32>
func.func @affine_norm(%r: tensor<1x16xf32>) -> !foresight.index_set<64 of 64> {
  %g = foresight.get_weight @gamma : tensor<16xf32>
  %b = foresight.get_weight @beta : tensor<16xf32>
  %copy = foresight.get_weight @once : !foresight.low_bit<64 x 16, 4>
  // CHECK: %[[C:.*]] = foresight.get_weight @fc1.balance : tensor<16xf32>
  // CHECK: %[[U:.*]] = foresight.layer_norm %[[R]] gamma(%[[C]] : tensor<16xf32>) epsilon = 1.000000e-05
  // CHECK: %[[COPY:.*]] = foresight.get_weight @once
  // CHECK: %[[S:.*]], %{{.*}} = foresight.predict %[[U]], %[[COPY]]
  // CHECK: foresight.select_certified %[[S]], %[[U]], %[[COPY]]
  %n = foresight.layer_norm %r gamma(%g : tensor<16xf32>) beta(%b : tensor<16xf32>) epsilon = 1.000000e-05 : tensor<1x16xf32> -> tensor<1x16xf32>
  %s, %t = foresight.predict %n, %copy : tensor<1x16xf32>, !foresight.low_bit<64 x 16, 4> -> tensor<1x64xf32>
  %set = foresight.select_certified %s, %n, %copy kappa = 1.0 after(%t) : tensor<1x64xf32>, tensor<1x16xf32>, !foresight.low_bit<64 x 16, 4> -> !foresight.index_set<64 of 64>
  return %set : !foresight.index_set<64 of 64>
}

// CHECK-LABEL: func.func @copy_is_shared
func.func @copy_is_shared(%r: tensor<1x16xf32>, %x: tensor<1x16xf32>) -> (tensor<1x64xf32>, tensor<1x64xf32>) {
  %g = foresight.get_weight @gamma : tensor<16xf32>
  %copy = foresight.get_weight @twice : !foresight.low_bit<64 x 16, 4>
  %other = foresight.get_weight @twice : !foresight.low_bit<64 x 16, 4>
  // CHECK-DAG: %[[OTHER:.*]] = foresight.get_weight @twice :
  // CHECK-DAG: %[[FOLDED:.*]] = foresight.get_weight @twice.folded
  // CHECK: foresight.predict %{{.*}}, %[[FOLDED]]
  // CHECK: foresight.predict %{{.*}}, %[[OTHER]]
  %n = foresight.layer_norm %r gamma(%g : tensor<16xf32>) epsilon = 1.000000e-05 : tensor<1x16xf32> -> tensor<1x16xf32>
  %s, %t = foresight.predict %n, %copy : tensor<1x16xf32>, !foresight.low_bit<64 x 16, 4> -> tensor<1x64xf32>
  %s1, %t1 = foresight.predict %x, %other : tensor<1x16xf32>, !foresight.low_bit<64 x 16, 4> -> tensor<1x64xf32>
  return %s, %s1 : tensor<1x64xf32>, tensor<1x64xf32>
}

// gamma could not be folded when the copy is packed.
// CHECK-LABEL: func.func @gamma_is_an_argument
func.func @gamma_is_an_argument(%r: tensor<1x16xf32>, %g: tensor<16xf32>) -> tensor<1x64xf32> {
  %copy = foresight.get_weight @twice : !foresight.low_bit<64 x 16, 4>
  // CHECK: %[[N:.*]] = foresight.layer_norm %{{.*}} gamma(
  // CHECK: foresight.predict %[[N]]
  %n = foresight.layer_norm %r gamma(%g : tensor<16xf32>) epsilon = 1.000000e-05 : tensor<1x16xf32> -> tensor<1x16xf32>
  %s, %t = foresight.predict %n, %copy : tensor<1x16xf32>, !foresight.low_bit<64 x 16, 4> -> tensor<1x64xf32>
  return %s : tensor<1x64xf32>
}
