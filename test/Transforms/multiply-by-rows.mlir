// RUN: foresight-opt %s --split-input-file --foresight-multiply-by-rows=target=cuda | FileCheck %s
// RUN: foresight-opt %s --split-input-file --foresight-multiply-by-rows=target=cpu | FileCheck %s --check-prefix=CPU
// RUN: not foresight-opt %s --split-input-file --foresight-multiply-by-rows=target=tpu 2>&1 | FileCheck %s --check-prefix=NONE
// NONE: there is no target 'tpu'

foresight.weight @fc2 : tensor<8x32xf16> = #foresight.synthetic<seed = 1, mean = 0.0 : f64, deviation = 1.0 : f64>
foresight.weight @fc2.neuron_major : tensor<32x8xf16> = #foresight.derived<transpose, [@fc2]>

// CHECK-LABEL: func.func @a_dense_product_takes_the_weight_as_it_was
// CPU-LABEL: func.func @a_dense_product_takes_the_weight_as_it_was
func.func @a_dense_product_takes_the_weight_as_it_was(%h: tensor<1x32xf32>) -> tensor<1x8xf32> {
  // CHECK: %[[W:.*]] = foresight.get_weight @fc2 : tensor<8x32xf16>
  // CHECK: foresight.stage "fc2" (%{{.*}}, %[[V:.*]] = %[[W]] : tensor<8x32xf16>)
  // CHECK: foresight.linear %{{.*}}, %[[V]]
  // CPU: foresight.column_linear
  %w = foresight.get_weight @fc2.neuron_major : tensor<32x8xf16>
  %y, %done = foresight.stage "fc2" (%a = %h : tensor<1x32xf32>, %b = %w : tensor<32x8xf16>) -> (tensor<1x8xf32>) {
    %0 = foresight.column_linear %a, %b : tensor<1x32xf32>, tensor<32x8xf16> -> tensor<1x8xf32>
    foresight.yield %0 : tensor<1x8xf32>
  }
  return %y : tensor<1x8xf32>
}

// -----

foresight.weight @fc2 : tensor<8x32xf16> = #foresight.synthetic<seed = 1, mean = 0.0 : f64, deviation = 1.0 : f64>
foresight.weight @fc2.neuron_major : tensor<32x8xf16> = #foresight.derived<transpose, [@fc2]>

// Another entry skips rows: the weight stays neuron-major for both.

// CHECK-LABEL: func.func @a_weight_is_stored_once
func.func @a_weight_is_stored_once(%h: tensor<1x32xf32>) -> (tensor<1x8xf32>, tensor<1x8xf32>) {
  // CHECK-NOT: foresight.linear
  %w = foresight.get_weight @fc2.neuron_major : tensor<32x8xf16>
  %y, %d0 = foresight.stage "dense" (%a = %h : tensor<1x32xf32>, %b = %w : tensor<32x8xf16>) -> (tensor<1x8xf32>) {
    %0 = foresight.column_linear %a, %b : tensor<1x32xf32>, tensor<32x8xf16> -> tensor<1x8xf32>
    foresight.yield %0 : tensor<1x8xf32>
  }
  %z, %d1 = foresight.stage "sparse" (%a = %h : tensor<1x32xf32>, %b = %w : tensor<32x8xf16>) -> (tensor<1x8xf32>) {
    %0 = foresight.column_linear %a, %b {skip_zeros} : tensor<1x32xf32>, tensor<32x8xf16> -> tensor<1x8xf32>
    foresight.yield %0 : tensor<1x8xf32>
  }
  return %y, %z : tensor<1x8xf32>, tensor<1x8xf32>
}
