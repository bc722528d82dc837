// RUN: foresight-opt %s --split-input-file --foresight-narrow-rows=target=cuda | FileCheck %s
// RUN: foresight-opt %s --split-input-file --foresight-narrow-rows=target=cpu | FileCheck %s --check-prefix=CPU
// RUN: not foresight-opt %s --split-input-file --foresight-narrow-rows=target=tpu 2>&1 | FileCheck %s --check-prefix=NONE
// NONE: there is no target 'tpu'

// CPU-NOT: tensor<?x8xf16>

// A norm that a library product reads, and the product's result that another reads; the residual stream stays as it is.

// CHECK-LABEL: func.func @what_all_readers_round_is_rounded_once
func.func @what_all_readers_round_is_rounded_once(%x: tensor<?x8xf32>, %w: tensor<8x8xf16>) -> tensor<?x8xf32> {
  // CHECK: foresight.stage "norm" {{.*}} -> (tensor<?x8xf16>)
  // CHECK: foresight.layer_norm {{.*}} : tensor<?x8xf32> -> tensor<?x8xf16>
  %n, %d0 = foresight.stage "norm" (%a = %x : tensor<?x8xf32>) -> (tensor<?x8xf32>) {
    %0 = foresight.layer_norm %a epsilon = 1.0e-5 : tensor<?x8xf32> -> tensor<?x8xf32>
    foresight.yield %0 : tensor<?x8xf32>
  }
  // CHECK: foresight.stage "fc1" {{.*}} -> (tensor<?x8xf16>)
  // CHECK: foresight.linear {{.*}} : tensor<?x8xf16>, tensor<8x8xf16> -> tensor<?x8xf16>
  %h, %d1 = foresight.stage "fc1" (%a = %n : tensor<?x8xf32>, %b = %w : tensor<8x8xf16>) -> (tensor<?x8xf32>) library "gemm" {
    %0 = foresight.linear %a, %b {activation = #foresight.activation<relu>} : tensor<?x8xf32>, tensor<8x8xf16> -> tensor<?x8xf32>
    foresight.yield %0 : tensor<?x8xf32>
  }
  // CHECK: foresight.stage "fc2" {{.*}} -> (tensor<?x8xf32>)
  // CHECK: foresight.linear {{.*}} : tensor<?x8xf16>, tensor<8x8xf16> -> tensor<?x8xf32>
  %y, %d2 = foresight.stage "fc2" (%a = %h : tensor<?x8xf32>, %b = %w : tensor<8x8xf16>, %c = %x : tensor<?x8xf32>) -> (tensor<?x8xf32>) library "gemm" {
    %0 = foresight.linear %a, %b : tensor<?x8xf32>, tensor<8x8xf16> -> tensor<?x8xf32>
    %1 = foresight.add %c, %0 : tensor<?x8xf32>
    foresight.yield %1 : tensor<?x8xf32>
  }
  return %y : tensor<?x8xf32>
}

// -----

// Queries, keys and values are read in the type of the cache.

// CHECK-LABEL: func.func @attention_reads_the_type_of_its_cache
func.func @attention_reads_the_type_of_its_cache(%x: tensor<?x8xf32>, %w: tensor<8x8xbf16>, %kv: !foresight.kv_cache<2 x 4, 16, bf16>, %p: tensor<?xi32>) -> tensor<?x8xf32> {
  // CHECK: foresight.stage "q" {{.*}} -> (tensor<?x8xbf16>)
  %q, %d0 = foresight.stage "q" (%a = %x : tensor<?x8xf32>, %b = %w : tensor<8x8xbf16>) -> (tensor<?x8xf32>) library "gemm" {
    %0 = foresight.linear %a, %b : tensor<?x8xf32>, tensor<8x8xbf16> -> tensor<?x8xf32>
    foresight.yield %0 : tensor<?x8xf32>
  }
  // CHECK: foresight.kv_append {{.*}}, tensor<?x8xbf16>, tensor<?xi32>
  %kv1, %d1 = foresight.stage "append" (%c = %kv : !foresight.kv_cache<2 x 4, 16, bf16>, %a = %q : tensor<?x8xf32>, %b = %p : tensor<?xi32>) -> (!foresight.kv_cache<2 x 4, 16, bf16>) {
    %0 = foresight.kv_append %c, %a, %a at %b : !foresight.kv_cache<2 x 4, 16, bf16>, tensor<?x8xf32>, tensor<?xi32>
    foresight.yield %0 : !foresight.kv_cache<2 x 4, 16, bf16>
  }
  // CHECK: foresight.attention {{.*}} : tensor<?x8xbf16>, {{.*}} -> tensor<?x8xf32>
  %y, %d2 = foresight.stage "attention" (%a = %q : tensor<?x8xf32>, %c = %kv1 : !foresight.kv_cache<2 x 4, 16, bf16>, %b = %p : tensor<?xi32>) -> (tensor<?x8xf32>) {
    %0 = foresight.attention %a, %c at %b scale = 0.5 : tensor<?x8xf32>, !foresight.kv_cache<2 x 4, 16, bf16>, tensor<?xi32> -> tensor<?x8xf32>
    foresight.yield %0 : tensor<?x8xf32>
  }
  return %y : tensor<?x8xf32>
}

// -----

// One reader needs f32, or has another type, or the row is one: nothing is rounded.

// CHECK-LABEL: func.func @one_reader_in_f32_keeps_f32
// CHECK-NOT: tensor<?x8xf16>
func.func @one_reader_in_f32_keeps_f32(%x: tensor<?x8xf32>, %w: tensor<8x8xf16>, %v: tensor<8x8xf32>, %o: tensor<1x8xf32>) -> (tensor<?x8xf32>, tensor<?x8xf32>, tensor<1x8xf32>) {
  %n, %d0 = foresight.stage "norm" (%a = %x : tensor<?x8xf32>) -> (tensor<?x8xf32>) {
    %0 = foresight.layer_norm %a epsilon = 1.0e-5 : tensor<?x8xf32> -> tensor<?x8xf32>
    foresight.yield %0 : tensor<?x8xf32>
  }
  %h, %d1 = foresight.stage "a" (%a = %n : tensor<?x8xf32>, %b = %w : tensor<8x8xf16>) -> (tensor<?x8xf32>) library "gemm" {
    %0 = foresight.linear %a, %b : tensor<?x8xf32>, tensor<8x8xf16> -> tensor<?x8xf32>
    foresight.yield %0 : tensor<?x8xf32>
  }
  %y, %d2 = foresight.stage "b" (%a = %n : tensor<?x8xf32>, %b = %v : tensor<8x8xf32>) -> (tensor<?x8xf32>) library "gemm" {
    %0 = foresight.linear %a, %b : tensor<?x8xf32>, tensor<8x8xf32> -> tensor<?x8xf32>
    foresight.yield %0 : tensor<?x8xf32>
  }
  %m, %d3 = foresight.stage "one" (%a = %o : tensor<1x8xf32>) -> (tensor<1x8xf32>) {
    %0 = foresight.layer_norm %a epsilon = 1.0e-5 : tensor<1x8xf32> -> tensor<1x8xf32>
    foresight.yield %0 : tensor<1x8xf32>
  }
  %z, %d4 = foresight.stage "c" (%a = %m : tensor<1x8xf32>, %b = %w : tensor<8x8xf16>) -> (tensor<1x8xf32>) library "gemm" {
    // CHECK: foresight.linear {{.*}} : tensor<1x8xf32>
    %0 = foresight.linear %a, %b : tensor<1x8xf32>, tensor<8x8xf16> -> tensor<1x8xf32>
    foresight.yield %0 : tensor<1x8xf32>
  }
  return %h, %y, %z : tensor<?x8xf32>, tensor<?x8xf32>, tensor<1x8xf32>
}

// -----

// The library lacks GELU: what computes it afterwards reads f32.

// CHECK-LABEL: func.func @gelu_stays_f32
// CHECK-NOT: tensor<?x8xf16>
func.func @gelu_stays_f32(%x: tensor<?x8xf32>, %w: tensor<8x8xf16>) -> tensor<?x8xf32> {
  %h, %d1 = foresight.stage "fc1" (%a = %x : tensor<?x8xf32>, %b = %w : tensor<8x8xf16>) -> (tensor<?x8xf32>) library "gemm" {
    %0 = foresight.linear %a, %b {activation = #foresight.activation<gelu>} : tensor<?x8xf32>, tensor<8x8xf16> -> tensor<?x8xf32>
    foresight.yield %0 : tensor<?x8xf32>
  }
  %y, %d2 = foresight.stage "fc2" (%a = %h : tensor<?x8xf32>, %b = %w : tensor<8x8xf16>) -> (tensor<?x8xf32>) library "gemm" {
    %0 = foresight.linear %a, %b : tensor<?x8xf32>, tensor<8x8xf16> -> tensor<?x8xf32>
    foresight.yield %0 : tensor<?x8xf32>
  }
  return %y : tensor<?x8xf32>
}
