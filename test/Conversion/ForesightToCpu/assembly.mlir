// DEFINE: %{variant} = x86-64-v3
// DEFINE: %{assemble} = foresight-opt %s --foresight-to-cpu=variant=%{variant} | mlir-translate --mlir-to-llvmir \
// DEFINE:   | opt -O3 -mcpu=%{variant} -disable-loop-unrolling -vectorize-loops=false -vectorize-slp=false \
// DEFINE:   | llc -O3 -mcpu=%{variant} -relocation-model=pic
// RUN: %{assemble} > %t.v3.s
// RUN: FileCheck %s --check-prefixes=ALL,V3 < %t.v3.s
// RUN: FileCheck %s --check-prefix=FREE < %t.v3.s
// REDEFINE: %{variant} = x86-64-v4
// RUN: %{assemble} > %t.v4.s
// RUN: FileCheck %s --check-prefixes=ALL,V4 < %t.v4.s
// RUN: FileCheck %s --check-prefix=FREE < %t.v4.s

// The shared object has nothing to call.
// FREE-NOT: call
// FREE-NOT: @PLT

// Four rows share a load of x; weights are converted as they are loaded; all sums
// stay in registers. Streams are long: hardware fetches them ahead.
// ALL-LABEL: rows.body:
// ALL-NOT: {{((32|64)-byte Spill|prefetch)}}
// V3: vcvtph2ps {{.*}}, %ymm
// V3: vfmadd{{.*}}%ymm
// V4: vcvtph2ps {{.*}}, %zmm
// V4: vfmadd{{.*}}%zmm
// ALL-NOT: {{((32|64)-byte Spill|prefetch)}}
// ALL: .size rows.body
foresight.kernel @rows(%x: tensor<1x512xf32>, %w: tensor<2048x512xf16>) {
  %0 = foresight.linear %x, %w : tensor<1x512xf32>, tensor<2048x512xf16> -> tensor<1x2048xf32>
  foresight.yield %0 : tensor<1x2048xf32>
}

// bf16 is widened by a shift.
// ALL-LABEL: bfloat.body:
// V3: vpmovzxwd {{.*}}, %ymm
// V3: vpslld $16, %ymm
// V4: vpmovzxwd {{.*}}, %zmm
// V4: vpslld $16, %zmm
foresight.kernel @bfloat(%x: tensor<1x512xf32>, %w: tensor<2048x512xbf16>) {
  %0 = foresight.linear %x, %w : tensor<1x512xf32>, tensor<2048x512xbf16> -> tensor<1x2048xf32>
  foresight.yield %0 : tensor<1x2048xf32>
}

// A row's terms are broadcast; sums are fused with a load each. The count of
// finished units is one atomic.
// ALL-LABEL: columns.body:
// ALL-NOT: prefetch
// V3: vbroadcastss {{.*}}, %ymm
// V4: vbroadcastss {{.*}}, %zmm
// V3: vcvtph2ps {{.*}}, %ymm
// V3: vfmadd{{.*}}%ymm
// V4: vfmadd{{.*}}%zmm
// ALL-NOT: {{(32|64)}}-byte Spill
// ALL: lock
// ALL: .size columns.body
foresight.kernel @columns(%x: tensor<1x2048xf32>, %w: tensor<2048x512xf16>) {
  %0 = foresight.column_linear %x, %w : tensor<1x2048xf32>, tensor<2048x512xf16> -> tensor<1x512xf32>
  foresight.yield %0 : tensor<1x512xf32>
}

// Listed rows are anywhere: those of the next group are asked for.
// ALL-LABEL: listed.body:
// ALL: prefetcht1
// V3: vfmadd{{.*}}%ymm
// V4: vfmadd{{.*}}%zmm
// ALL-NOT: {{(32|64)}}-byte Spill
// ALL: lock
foresight.kernel @listed(%x: tensor<1x2048xf32>, %w: tensor<2048x512xf16>) {
  %0 = foresight.column_linear %x, %w {skip_zeros} : tensor<1x2048xf32>, tensor<2048x512xf16> -> tensor<1x512xf32>
  foresight.yield %0 : tensor<1x512xf32>
}

// Codes are cut out by shifts and masks, as bytes, and multiplied in pairs with
// both parts of the activations; set bits of the test's mask are the neurons kept.
// ALL-LABEL: sparse.prepare:
// V3: vroundps
// V4: vrndscaleps
// ALL-LABEL: sparse.body:
// V3: vpand
// V3: vpmaddubsw {{.*}}, %ymm
// V3: vpmaddwd {{.*}}, %ymm
// V4: vpand{{[dq]}}
// V4: vpmaddubsw {{.*}}, %zmm
// V4: vpmaddwd {{.*}}, %zmm
// ALL: popcnt
// ALL: tzcnt
// ALL: vcvtph2ps
foresight.kernel @sparse(%x: tensor<1x512xf32>, %w: tensor<2048x512xf16>, %copy: !foresight.low_bit<2048 x 512, 4>) {
  %s, %t = foresight.predict %x, %copy : tensor<1x512xf32>, !foresight.low_bit<2048 x 512, 4> -> tensor<1x2048xf32>
  %set = foresight.select_certified %s, %x, %copy kappa = 1.0 after(%t)
      : tensor<1x2048xf32>, tensor<1x512xf32>, !foresight.low_bit<2048 x 512, 4> -> !foresight.index_set<2048 of 2048>
  %h = foresight.gather_linear %x, %w rows(%set) {activation = #foresight.activation<relu>}
      : tensor<1x512xf32>, tensor<2048x512xf16>, !foresight.index_set<2048 of 2048> -> tensor<1x2048xf32>
  foresight.yield %h : tensor<1x2048xf32>
}

// Codes of 8 bits would overflow sums of 16: they are widened to 16 bits before.
// ALL-LABEL: sparse8.body:
// ALL-NOT: vpmaddubsw
// V3: vpmaddwd {{.*}}, %ymm
// V4: vpmaddwd {{.*}}, %zmm
// ALL-NOT: vpmaddubsw
// ALL: popcnt
foresight.kernel @sparse8(%x: tensor<1x512xf32>, %w: tensor<2048x512xf16>, %copy: !foresight.low_bit<2048 x 512, 8>) {
  %s, %t = foresight.predict %x, %copy : tensor<1x512xf32>, !foresight.low_bit<2048 x 512, 8> -> tensor<1x2048xf32>
  %set = foresight.select_certified %s, %x, %copy kappa = 1.0 after(%t)
      : tensor<1x2048xf32>, tensor<1x512xf32>, !foresight.low_bit<2048 x 512, 8> -> !foresight.index_set<2048 of 2048>
  %h = foresight.gather_linear %x, %w rows(%set) {activation = #foresight.activation<relu>}
      : tensor<1x512xf32>, tensor<2048x512xf16>, !foresight.index_set<2048 of 2048> -> tensor<1x2048xf32>
  foresight.yield %h : tensor<1x2048xf32>
}
