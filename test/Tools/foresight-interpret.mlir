// REQUIRES: foresight-interpret
// RUN: foresight-interpret %s --entry=mlp --seed=3 | FileCheck %s --check-prefix=PRINT
// RUN: foresight-interpret %s --entry=mlp --seed=3 --compare-entry=two_products | FileCheck %s --check-prefix=SAME
// RUN: not foresight-interpret %s --entry=mlp --seed=3 --compare-entry=no_bias 2>&1 | FileCheck %s --check-prefix=OTHER
// RUN: foresight-opt %s --canonicalize | foresight-interpret - --entry=mlp --compare=%s
// RUN: foresight-interpret %s --entry=decode --ids=3,1 | FileCheck %s --check-prefix=IDS
// RUN: not foresight-interpret %s --entry=decode --ids=4 2>&1 | FileCheck %s --check-prefix=OUTSIDE
// RUN: not foresight-interpret %s --entry=nothing 2>&1 | FileCheck %s --check-prefix=MISSING

// PRINT: result 0: 1x2 [{{-?[0-9.]+}}, {{-?[0-9.]+}}]
// SAME: result 0: max difference {{0$|.*e-1[0-9]}}
// OTHER: result 0: max difference {{.*}} at [0, {{[01]}}]: DIFFERENT
// OTHER: foresight-interpret: results differ by more than 1e-09

func.func @mlp(%x: tensor<1x2xf32>, %w: tensor<3x2xf16>, %b: tensor<3xf32>) -> tensor<1x2xf32> {
  %y = foresight.mlp %x, %w bias(%b : tensor<3xf32>) <gelu> %w : tensor<1x2xf32>, tensor<3x2xf16>, tensor<3x2xf16> -> tensor<1x2xf32>
  return %y : tensor<1x2xf32>
}

func.func @two_products(%x: tensor<1x2xf32>, %w: tensor<3x2xf16>, %b: tensor<3xf32>) -> tensor<1x2xf32> {
  %h = foresight.linear %x, %w bias(%b : tensor<3xf32>) {activation = #foresight.activation<gelu>} : tensor<1x2xf32>, tensor<3x2xf16> -> tensor<1x3xf32>
  %y = foresight.column_linear %h, %w : tensor<1x3xf32>, tensor<3x2xf16> -> tensor<1x2xf32>
  return %y : tensor<1x2xf32>
}

func.func @no_bias(%x: tensor<1x2xf32>, %w: tensor<3x2xf16>, %b: tensor<3xf32>) -> tensor<1x2xf32> {
  %y = foresight.mlp %x, %w <gelu> %w : tensor<1x2xf32>, tensor<3x2xf16>, tensor<3x2xf16> -> tensor<1x2xf32>
  return %y : tensor<1x2xf32>
}

// IDS: result 0: 2x2
// IDS-NEXT: [6, 7]
// IDS-NEXT: [2, 3]
// OUTSIDE: error: 'foresight.gather_rows' op reads row 4 (id 4, offset 0) of a table with 4 rows
// MISSING: has no function and no foresight.entry named nothing
foresight.weight @table : tensor<4x2xf16> = dense<[[0.0, 1.0], [2.0, 3.0], [4.0, 5.0], [6.0, 7.0]]> : tensor<4x2xf16>
func.func @tokens(%ids: tensor<?xi32>) -> tensor<?x2xf32> attributes {foresight.entry = "decode"} {
  %t = foresight.get_weight @table : tensor<4x2xf16>
  %x = foresight.gather_rows %t[%ids] : tensor<4x2xf16>, tensor<?xi32> -> tensor<?x2xf32>
  return %x : tensor<?x2xf32>
}
