// RUN: foresight-opt %fixtures/step-pre-norm.mlir --foresight-prepare-pipeline --foresight-specialize-entries=dense-decode=true --foresight-sparsify="rule=margin margin=2 bits=4 lookahead=block" --foresight-fold-norm --foresight-lookahead --foresight-schedule-pipeline --foresight-explain -o /dev/null 2>&1 | FileCheck %s
// RUN: foresight-opt %fixtures/step-gelu.mlir --foresight-prepare-pipeline --foresight-specialize-entries --foresight-sparsify --foresight-schedule-pipeline --foresight-explain -o /dev/null 2>&1 | FileCheck %s --check-prefix=GELU

// CHECK: prefill: 22 stages, 9 kernels
// CHECK: 6 x prefill.q: linear (library gemm)
// CHECK: decode: 12 stages, 7 kernels
// CHECK: 2 x decode.fc1: 2 layer_norm, predict, select_certified, gather_linear
// CHECK: layers 0 to 1: margin with a copy of 4 bits, kappa 0.250, predicted from block
// CHECK: decode_dense: 12 stages
// CHECK-NOT: {{layers? [0-9]}}
// CHECK: memory: KV caches 0.0 MiB; {{[0-9]+}} work buffers in 0.{{[0-9]}} MiB

// GELU: layer 0: dense because activation gelu is never exactly 0
