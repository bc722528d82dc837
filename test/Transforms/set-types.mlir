// RUN: foresight-opt %s --foresight-set-types --split-input-file | FileCheck %s
// RUN: foresight-opt %s --foresight-set-types="dtype=f32 max-seq=16" --split-input-file | FileCheck %s --check-prefix=F32
// RUN: not foresight-opt %s --foresight-set-types=max-seq=33 --split-input-file 2>&1 | FileCheck %s --check-prefix=LONG
// RUN: not foresight-opt %s --foresight-set-types=dtype=int8 --split-input-file 2>&1 | FileCheck %s --check-prefix=INT8

// LONG: error: max-seq is 33, but the model has only 32 positions: use at most that many
// INT8: error: dtype must be auto, f32, f16 or bf16, found 'int8'

// CHECK: foresight.model = {dtype = "f16", max_seq = 32 : i64}
// F32: foresight.model = {dtype = "f32", max_seq = 16 : i64}
module attributes {foresight.model = {dtype = "f32", max_seq = 32 : i64}} {
// CHECK: foresight.weight @matrix : tensor<16x16xf16> = #foresight.external<"m.safetensors", offset = 0, bytes = 1024, f32>
// F32: foresight.weight @matrix : tensor<16x16xf32> = #foresight.external
foresight.weight @matrix : tensor<16x16xf32> = #foresight.external<"m.safetensors", offset = 0, bytes = 1024, f32>
// CHECK: foresight.weight @vector : tensor<16xf32>
foresight.weight @vector : tensor<16xf16> = #foresight.external<"m.safetensors", offset = 1024, bytes = 32, f16>
// CHECK: foresight.weight @constant : tensor<1x2xf16> = dense<{{\[\[}}1.000000e+00, 9.997550e-02]]> : tensor<1x2xf16>
foresight.weight @constant : tensor<1x2xf32> = dense<[[1.0, 0.1]]> : tensor<1x2xf32>

// CHECK-LABEL: func.func @step
// CHECK-SAME: !foresight.kv_cache<2 x 8, 32, f16>) -> !foresight.kv_cache<2 x 8, 32, f16>
// F32: func.func @step({{.*}} !foresight.kv_cache<2 x 8, 16, f32>) -> !foresight.kv_cache<2 x 8, 16, f32>
func.func @step(%x: tensor<?x16xf32>, %pos: tensor<?xi32>, %kv: !foresight.kv_cache<2 x 8, 32, f32>) -> !foresight.kv_cache<2 x 8, 32, f32>
    attributes {foresight.entry = "step"} {
  // CHECK: foresight.get_weight @matrix : tensor<16x16xf16>
  // CHECK: foresight.get_weight @vector : tensor<16xf32>
  %w = foresight.get_weight @matrix : tensor<16x16xf32>
  %b = foresight.get_weight @vector : tensor<16xf16>
  %k = foresight.linear %x, %w bias(%b : tensor<16xf16>) : tensor<?x16xf32>, tensor<16x16xf32> -> tensor<?x16xf32>
  %kv1 = foresight.kv_append %kv, %k, %k at %pos : !foresight.kv_cache<2 x 8, 32, f32>, tensor<?x16xf32>, tensor<?xi32>
  return %kv1 : !foresight.kv_cache<2 x 8, 32, f32>
}
}

// -----

// A model that was trained in bf16 may hold what f16 does not.
// CHECK: foresight.weight @range : tensor<16x16xbf16>
// F32: foresight.weight @range : tensor<16x16xf32>
foresight.weight @range : tensor<16x16xf32> = #foresight.external<"m.safetensors", offset = 0, bytes = 512, bf16>
