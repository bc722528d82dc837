// RUN: foresight-opt %s --foresight-annotate-kernels | FileCheck %s

// A product of rows: 48 + 48 rows are 3 + 3 units of 16; LayerNorm is prepared.
// Bytes: two matrices of 48 rows of 64 f16, gamma and one bias of 64 f32.
// CHECK-LABEL: foresight.kernel @rows
// CHECK-SAME: foresight.info = {grain = 1 : i64, prepare, scratch_bytes = 576 : i64, units = 6 : i64, weight_bytes = 12800 : i64}
foresight.kernel @rows(%x: tensor<1x48xf32>, %g: tensor<48xf32>, %q: tensor<48x48xf16>, %k: tensor<48x48xf16>, %b: tensor<48xf32>) {
  %n = foresight.layer_norm %x gamma(%g : tensor<48xf32>) epsilon = 1.0e-5 : tensor<1x48xf32> -> tensor<1x48xf32>
  %0 = foresight.linear %n, %q bias(%b : tensor<48xf32>) : tensor<1x48xf32>, tensor<48x48xf16> -> tensor<1x48xf32>
  %1 = foresight.linear %n, %k : tensor<1x48xf32>, tensor<48x48xf16> -> tensor<1x48xf32>
  foresight.yield %0, %1 : tensor<1x48xf32>, tensor<1x48xf32>
}

// What a product reads directly is not copied: no prepare. A claim is 256 KB of
// weights: four units of 16 rows of 4 KB, whose sums go to scratch.
// CHECK-LABEL: foresight.kernel @direct
// CHECK-SAME: foresight.info = {grain = 4 : i64, scratch_bytes = 256 : i64, units = 512 : i64, weight_bytes = 33554432 : i64}
foresight.kernel @direct(%x: tensor<1x2048xf32>, %w: tensor<8192x2048xf16>) {
  %0 = foresight.linear %x, %w : tensor<1x2048xf32>, tensor<8192x2048xf16> -> tensor<1x8192xf32>
  foresight.yield %0 : tensor<1x8192xf32>
}

// Of few weights it is less: a stage has twelve claims at least.
// CHECK-LABEL: foresight.kernel @direct_small
// CHECK-SAME: foresight.info = {grain = 10 : i64, scratch_bytes = 640 : i64, units = 128 : i64, weight_bytes = 2097152 : i64}
foresight.kernel @direct_small(%x: tensor<1x512xf32>, %w: tensor<2048x512xf16>) {
  %0 = foresight.linear %x, %w : tensor<1x512xf32>, tensor<2048x512xf16> -> tensor<1x2048xf32>
  foresight.yield %0 : tensor<1x2048xf32>
}

// Rows of a prompt: a unit a token, weight bytes of one token.
// CHECK-LABEL: foresight.kernel @embed
// CHECK-SAME: foresight.info = {grain = 1 : i64, per_token, scratch_bytes = 0 : i64, units = 1 : i64, weight_bytes = 128 : i64}
foresight.kernel @embed(%t: tensor<100x48xf16>, %ids: tensor<?xi32>) {
  %0 = foresight.gather_rows %t[%ids] : tensor<100x48xf16>, tensor<?xi32> -> tensor<?x48xf32>
  foresight.yield %0 : tensor<?x48xf32>
}

// A sum of rows: segments share memory, a row of sums each; with skip_zeros each
// counts its rows, and a claim is several.
// CHECK-LABEL: foresight.kernel @column
// CHECK-SAME: foresight.info = {grain = 1 : i64, scratch_bytes = 0 : i64, shared_bytes = 4160 : i64, units = 16 : i64, weight_bytes = 262144 : i64}
foresight.kernel @column(%x: tensor<1x2048xf32>, %w: tensor<2048x64xf16>) {
  %0 = foresight.column_linear %x, %w : tensor<1x2048xf32>, tensor<2048x64xf16> -> tensor<1x64xf32>
  foresight.yield %0 : tensor<1x64xf32>
}

// CHECK-LABEL: foresight.kernel @column_skip
// CHECK-SAME: foresight.info = {count_bytes = 128 : i64, grain = 4 : i64, prepare{{.*}}shared_bytes = 4160 : i64, units = 16 : i64, weight_bytes = 0 : i64}
foresight.kernel @column_skip(%x: tensor<1x2048xf32>, %w: tensor<2048x64xf16>) {
  %0 = foresight.column_linear %x, %w {skip_zeros} : tensor<1x2048xf32>, tensor<2048x64xf16> -> tensor<1x64xf32>
  foresight.yield %0 : tensor<1x64xf32>
}

// Attention: heads, or heads of each token.
// CHECK-LABEL: foresight.kernel @heads
// CHECK-SAME: units = 4 : i64
foresight.kernel @heads(%kv: !foresight.kv_cache<4 x 12, 64, f16>, %q: tensor<1x48xf32>, %pos: tensor<1xi32>) {
  %0 = foresight.attention %q, %kv at %pos scale = 2.5e-1 : tensor<1x48xf32>, !foresight.kv_cache<4 x 12, 64, f16>, tensor<1xi32> -> tensor<1x48xf32>
  foresight.yield %0 : tensor<1x48xf32>
}

// CHECK-LABEL: foresight.kernel @heads_of_tokens
// CHECK-SAME: per_token, {{.*}}units = 4 : i64
foresight.kernel @heads_of_tokens(%kv: !foresight.kv_cache<4 x 12, 64, f16>, %q: tensor<?x48xf32>, %pos: tensor<?xi32>) {
  %0 = foresight.attention %q, %kv at %pos scale = 2.5e-1 : tensor<?x48xf32>, !foresight.kv_cache<4 x 12, 64, f16>, tensor<?xi32> -> tensor<?x48xf32>
  foresight.yield %0 : tensor<?x48xf32>
}

// A library kernel has no code: only what it reads is known.
// CHECK-LABEL: foresight.kernel @library
// CHECK-SAME: foresight.info = {weight_bytes = 6144 : i64}
foresight.kernel @library(%x: tensor<?x48xf32>, %w: tensor<48x48xf16>) library "gemm" {
  %0 = foresight.linear %x, %w : tensor<?x48xf32>, tensor<48x48xf16> -> tensor<?x48xf32>
  foresight.yield %0 : tensor<?x48xf32>
}
