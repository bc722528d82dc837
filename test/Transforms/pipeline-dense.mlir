// RUN: foresight-opt %fixtures/step-pre-norm.mlir --foresight-compile-pipeline | FileCheck %s
// RUN: foresight-opt %fixtures/step-pre-norm.mlir --foresight-compile-pipeline | foresight-opt --foresight-verify-schedule
// RUN: foresight-opt %fixtures/step-post-norm.mlir --foresight-compile-pipeline | FileCheck %s --check-prefix=POST
// RUN: foresight-opt %fixtures/step-odd.mlir --foresight-compile-pipeline | FileCheck %s --check-prefix=ODD
// RUN: foresight-opt %fixtures/step-gelu.mlir --foresight-compile-pipeline=dtype=bf16 | FileCheck %s --check-prefix=GELU

// The whole way from @step to a scheduled module. To see all of it, run the
// first line without FileCheck.

// Matrices are f16, vectors f32; fc2 is neuron-major.
// CHECK-DAG: foresight.weight @layers.0.fc1.weight : tensor<256x64xf16>
// CHECK-DAG: foresight.weight @layers.0.fc1.bias : tensor<256xf32>
// CHECK-DAG: foresight.weight @layers.0.fc2.weight.neuron_major : tensor<256x64xf16> = #foresight.derived<transpose, [@layers.0.fc2.weight]>

// CHECK-DAG: foresight.buffer @ids "input" : tensor<?xi32> rows = 64 row_bytes = 4
// CHECK-DAG: foresight.buffer @positions "input" : tensor<?xi32> rows = 64 row_bytes = 4
// CHECK-DAG: foresight.buffer @kv.1 "state" : !foresight.kv_cache<4 x 16, 64, f16> rows = 1 row_bytes = 16384
// CHECK-DAG: foresight.buffer @logits "output" : tensor<?x100xf32> rows = 1 row_bytes = 512

// Products of a prompt are the library's, one kernel for q, k and v of all layers.
// CHECK: foresight.kernel @prefill.q({{.*}}) library "gemm"
// CHECK-NOT: foresight.kernel @prefill.k(
// CHECK: foresight.kernel @prefill.out_proj({{.*}}) library "gemm"
// CHECK-NEXT: foresight.linear
// CHECK-NEXT: foresight.add

// CHECK: foresight.kernel @decode.qkv
// CHECK-NEXT: foresight.layer_norm
// CHECK-NEXT: foresight.linear
// CHECK-NEXT: foresight.linear
// CHECK-NEXT: foresight.linear
// CHECK: foresight.kernel @decode.attention
// CHECK-NEXT: foresight.kv_append
// CHECK-NEXT: foresight.attention

// CHECK-LABEL: func.func @prefill(
// CHECK-SAME: attributes {foresight.entry = "prefill", foresight.max_tokens = 64 : i64}
// CHECK: foresight.launch "head" @prefill.head

// CHECK-LABEL: func.func @decode(
// CHECK-SAME: %{{.*}}: tensor<1xi32> {foresight.buffer = @ids}
// CHECK-SAME: (tensor<1x100xf32> {foresight.buffer = @logits}, !foresight.kv_cache<4 x 16, 64, f16> {foresight.buffer = @kv.0}
// CHECK: %[[X0:.*]], %[[T0:.*]] = foresight.launch "embed" @decode.embed ({{.*}}) outs [@embed.out] {{.*}} {role = "embed"}
// CHECK-NEXT: %[[QKV:.*]]:3, %[[T1:.*]] = foresight.launch "layers.0.qkv" @decode.qkv after(%[[T0]]) (%[[X0]], {{.*}} {layer = 0 : i64, role = "qkv"}
// CHECK-NEXT: %[[A:.*]]:2, %[[T2:.*]] = foresight.launch "layers.0.attention" @decode.attention after(%[[T1]]) ({{.*}} outs [@kv.0, @layers.0.attention.out]
// CHECK-NEXT: %[[R:.*]], %[[T3:.*]] = foresight.launch "layers.0.out_proj" @decode.out_proj after(%[[T2]]) (%[[A]]#1, {{.*}} outs [@embed.out]
// CHECK-NEXT: %[[H:.*]], %[[T4:.*]] = foresight.launch "layers.0.fc1" @decode.fc1 after(%[[T3]]) (%[[R]], {{.*}} outs [@layers.0.fc1.out]
// CHECK-NEXT: %{{.*}}, %{{.*}} = foresight.launch "layers.0.fc2" @decode.fc2 after(%[[T4]]) (%[[H]], {{.*}}, %[[R]] : {{.*}} outs [@embed.out]
// CHECK-NEXT: foresight.launch "layers.1.qkv" @decode.qkv
// CHECK-NEXT: foresight.launch "layers.1.attention" @decode.attention
// CHECK-NEXT: foresight.launch "layers.1.out_proj" @decode.out_proj
// CHECK-NEXT: foresight.launch "layers.1.fc1" @decode.fc1
// CHECK-NEXT: foresight.launch "layers.1.fc2" @decode.fc2
// CHECK-NEXT: foresight.launch "head" @decode.head
// CHECK-NEXT: return

// LayerNorm after the block: the residual stream reads it too, so it is a stage.
// POST-LABEL: func.func @decode(
// POST: foresight.launch "layers.0.out_proj"
// POST-NEXT: foresight.launch "layers.0.mlp_norm" @decode.mlp_norm
// POST-NEXT: foresight.launch "layers.0.fc1"
// POST-NEXT: foresight.launch "layers.0.fc2"
// POST-NEXT: foresight.launch "layers.0.block_norm" @decode.mlp_norm
// POST-NEXT: foresight.launch "layers.1.qkv"

// Rows are padded to 32 elements.
// ODD-DAG: foresight.buffer @layers.0.fc1.out "work" : tensor<?x100xf32> rows = 33 row_bytes = 512
// ODD-DAG: foresight.buffer @kv.0 "state" : !foresight.kv_cache<4 x 12, 33, f16> rows = 1 row_bytes = 8448

// GELU: foresight.weight @layers.0.fc1.weight : tensor<64x32xbf16>
// GELU: !foresight.kv_cache<2 x 16, 16, bf16>
