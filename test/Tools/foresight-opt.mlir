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

// CHECK: foresight.weight @low : !foresight.low_bit<2 x 3, 4> = #foresight.derived<low_bit, [@w, @none, @none, @none]>
foresight.weight @w : tensor<2x3xf32> = dense<1.0> : tensor<2x3xf32>
foresight.weight @low : !foresight.low_bit<2 x 3, 4> = #foresight.derived<low_bit, [@w, @none, @none, @none]>
