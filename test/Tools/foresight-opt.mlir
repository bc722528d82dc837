// RUN: foresight-opt %s | foresight-opt | FileCheck %s
// RUN: foresight-opt %s --emit-bytecode | foresight-opt | FileCheck %s

// The dialect is registered; what is printed parses back.

// CHECK-LABEL: func.func @round_trip
// CHECK: foresight.linear {{.*}} {activation = #foresight.activation<relu>}
func.func @round_trip(%x: tensor<1x48xf32>, %w: tensor<100x48xf16>, %b: tensor<100xf32>) -> tensor<1x100xf32> {
  %h = foresight.linear %x, %w bias(%b : tensor<100xf32>) {activation = #foresight.activation<relu>}
      : tensor<1x48xf32>, tensor<100x48xf16> -> tensor<1x100xf32>
  return %h : tensor<1x100xf32>
}
