// RUN: foresight-opt %s --foresight-fold-norm | FileCheck %s
// Columns of made-up weights are alike: nothing is balanced.

// CHECK-NOT: balance
module attributes {foresight.model = {synthetic = true}} {
  foresight.weight @fc1 : tensor<64x16xf16> = #foresight.synthetic<seed = 1, mean = 0.0 : f64, deviation = 1.0 : f64>
  foresight.weight @gamma : tensor<16xf32> = #foresight.synthetic<seed = 2, mean = 1.0 : f64, deviation = 0.1 : f64>
  // CHECK: @copy : !foresight.low_bit<64 x 16, 4> = #foresight.derived<low_bit, [@fc1, @none, @gamma, @none]>
  foresight.weight @copy : !foresight.low_bit<64 x 16, 4> = #foresight.derived<low_bit, [@fc1, @none, @none, @none]>
  // CHECK-LABEL: func.func @affine_norm
  func.func @affine_norm(%r: tensor<1x16xf32>) -> tensor<1x64xf32> {
    %g = foresight.get_weight @gamma : tensor<16xf32>
    %copy = foresight.get_weight @copy : !foresight.low_bit<64 x 16, 4>
    // CHECK: %[[U:.*]] = foresight.layer_norm %{{[a-z0-9]+}} epsilon
    // CHECK: foresight.predict %[[U]]
    %n = foresight.layer_norm %r gamma(%g : tensor<16xf32>) epsilon = 1.000000e-05 : tensor<1x16xf32> -> tensor<1x16xf32>
    %s, %t = foresight.predict %n, %copy : tensor<1x16xf32>, !foresight.low_bit<64 x 16, 4> -> tensor<1x64xf32>
    return %s : tensor<1x64xf32>
  }
}
