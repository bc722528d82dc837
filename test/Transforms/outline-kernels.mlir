// RUN: foresight-opt %s --foresight-outline-kernels | FileCheck %s

// Weights are arguments, so layers share a kernel; another width, activation or
// library does not.

// CHECK: foresight.kernel @decode.fc1(%{{.*}}: tensor<1x8xf32>, %{{.*}}: tensor<16x8xf16>) {
// CHECK-NEXT: foresight.linear
// CHECK: foresight.kernel @decode.fc1_0(%{{.*}}: tensor<1x8xf32>, %{{.*}}: tensor<24x8xf16>) {
// CHECK: foresight.kernel @decode.fc1_1(%{{.*}}: tensor<1x8xf32>, %{{.*}}: tensor<16x8xf16>) {
// CHECK-NEXT: foresight.linear {{.*}} {activation = #foresight.activation<relu>}
// CHECK: foresight.kernel @decode.fc1_2({{.*}}) library "gemm" {
// CHECK-NOT: foresight.kernel

// CHECK-LABEL: func.func @decode
// CHECK: %{{.*}}, %[[T:.*]] = foresight.launch "layers.0.fc1" @decode.fc1 (%{{.*}}, %{{.*}} : tensor<1x8xf32>, tensor<16x8xf16>) outs [] -> (tensor<1x16xf32>) {layer = 0 : i64, role = "fc1"}
// CHECK: foresight.launch "layers.1.fc1" @decode.fc1 after(%[[T]]) (
// CHECK: foresight.launch "layers.2.fc1" @decode.fc1_0 (
// CHECK: foresight.launch "layers.3.fc1" @decode.fc1_1 (
// CHECK: foresight.launch "layers.4.fc1" @decode.fc1_2 (
// CHECK-NOT: foresight.stage
func.func @decode(%x: tensor<1x8xf32>, %a: tensor<16x8xf16>, %b: tensor<16x8xf16>, %c: tensor<24x8xf16>)
    -> (tensor<1x16xf32>, tensor<1x16xf32>, tensor<1x24xf32>, tensor<1x16xf32>, tensor<1x16xf32>) attributes {foresight.entry = "decode"} {
  %0, %t0 = foresight.stage "layers.0.fc1" (%i = %x : tensor<1x8xf32>, %w = %a : tensor<16x8xf16>) -> (tensor<1x16xf32>) attributes {layer = 0 : i64, role = "fc1"} {
    %y = foresight.linear %i, %w : tensor<1x8xf32>, tensor<16x8xf16> -> tensor<1x16xf32>
    foresight.yield %y : tensor<1x16xf32>
  }
  %1, %t1 = foresight.stage "layers.1.fc1" after(%t0) (%i = %x : tensor<1x8xf32>, %w = %b : tensor<16x8xf16>) -> (tensor<1x16xf32>) attributes {layer = 1 : i64, role = "fc1"} {
    %y = foresight.linear %i, %w : tensor<1x8xf32>, tensor<16x8xf16> -> tensor<1x16xf32>
    foresight.yield %y : tensor<1x16xf32>
  }
  %2, %t2 = foresight.stage "layers.2.fc1" (%i = %x : tensor<1x8xf32>, %w = %c : tensor<24x8xf16>) -> (tensor<1x24xf32>) attributes {layer = 2 : i64, role = "fc1"} {
    %y = foresight.linear %i, %w : tensor<1x8xf32>, tensor<24x8xf16> -> tensor<1x24xf32>
    foresight.yield %y : tensor<1x24xf32>
  }
  %3, %t3 = foresight.stage "layers.3.fc1" (%i = %x : tensor<1x8xf32>, %w = %b : tensor<16x8xf16>) -> (tensor<1x16xf32>) attributes {layer = 3 : i64, role = "fc1"} {
    %y = foresight.linear %i, %w {activation = #foresight.activation<relu>} : tensor<1x8xf32>, tensor<16x8xf16> -> tensor<1x16xf32>
    foresight.yield %y : tensor<1x16xf32>
  }
  %4, %t4 = foresight.stage "layers.4.fc1" (%i = %x : tensor<1x8xf32>, %w = %b : tensor<16x8xf16>) -> (tensor<1x16xf32>) library "gemm" attributes {layer = 4 : i64, role = "fc1"} {
    %y = foresight.linear %i, %w : tensor<1x8xf32>, tensor<16x8xf16> -> tensor<1x16xf32>
    foresight.yield %y : tensor<1x16xf32>
  }
  return %0, %1, %2, %3, %4 : tensor<1x16xf32>, tensor<1x16xf32>, tensor<1x24xf32>, tensor<1x16xf32>, tensor<1x16xf32>
}
