// A batch has code of its own on a GPU, which is made for how many rows there may be: up to 16 its products too.
//
// RUN: foresight-opt %fixtures/step-pre-norm.mlir --foresight-compile-pipeline="max-batch=4 target=cuda" | FileCheck %s
// RUN: foresight-opt %fixtures/step-pre-norm.mlir --foresight-compile-pipeline="max-batch=40 target=cuda" | FileCheck %s --check-prefix=MANY
// RUN: foresight-opt %fixtures/step-pre-norm.mlir --foresight-compile-pipeline="max-batch=4 target=cuda dtype=f32" | FileCheck %s --check-prefix=WIDE
// RUN: foresight-opt %fixtures/step-pre-norm.mlir --foresight-compile-pipeline="max-batch=4" | FileCheck %s --check-prefix=CPU

// CHECK-NOT: @decode_batch.{{.*}} library
// CHECK: foresight.kernel @decode_batch.qkv(%{{.*}}: tensor<?x{{[0-9]+}}xf16>,
// CHECK-SAME: attributes {foresight.max_tokens = 4 : i64}
// CHECK: foresight.kernel @decode_batch.attention(
// CHECK-SAME: attributes {foresight.max_tokens = 4 : i64}
// CHECK: foresight.kv_append {{.*}} in(%{{.*}} : tensor<?xi32>)
// CHECK: foresight.attention {{.*}} -> tensor<?x{{[0-9]+}}xf16>
// fc2 by rows of the output, as when decoding one sequence.
// CHECK: foresight.kernel @decode_batch.fc2(
// CHECK-NEXT: foresight.linear
// CHECK-LABEL: func.func @decode_batch(

// MANY-NOT: foresight.kernel @decode_batch.{{(qkv|out_proj|fc1|fc2)}}
// MANY: foresight.kernel @decode_batch.attention({{.*}} attributes {foresight.max_tokens = 40 : i64}

// WIDE: foresight.kernel @prefill.q({{.*}}) library "gemm"
// WIDE: foresight.kernel @decode_batch.attention({{.*}} attributes {foresight.max_tokens = 4 : i64}

// What a prompt has on a CPU, a batch has too.
// CPU: foresight.kernel @prefill.out_proj({{.*}}) library "gemm"
// CPU-NOT: foresight.kernel @decode_batch.out_proj
// CPU-LABEL: func.func @decode_batch(
// CPU: foresight.launch "layers.0.out_proj" @prefill.out_proj
