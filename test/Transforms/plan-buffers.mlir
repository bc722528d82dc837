// RUN: foresight-opt %s --foresight-plan-buffers --foresight-verify-schedule --split-input-file --verify-diagnostics | FileCheck %s

foresight.kernel @relu(%x: tensor<?x64xf32>) {
  %0 = foresight.activate %x <relu> : tensor<?x64xf32>
  foresight.yield %0 : tensor<?x64xf32>
}
foresight.kernel @sum(%w: tensor<64x64xf16>, %x: tensor<?x64xf32>, %r: tensor<?x64xf32>) {
  %0 = foresight.linear %x, %w : tensor<?x64xf32>, tensor<64x64xf16> -> tensor<?x64xf32>
  %1 = foresight.add %r, %0 : tensor<?x64xf32>
  foresight.yield %1 : tensor<?x64xf32>
}
// The stream is also what the product reads: no unit may overwrite it.
foresight.kernel @sum_of_own_product(%w: tensor<64x64xf16>, %x: tensor<?x64xf32>) {
  %0 = foresight.linear %x, %w : tensor<?x64xf32>, tensor<64x64xf16> -> tensor<?x64xf32>
  %1 = foresight.add %x, %0 : tensor<?x64xf32>
  foresight.yield %1 : tensor<?x64xf32>
}

// CHECK-DAG: foresight.buffer @input.0 "input" : tensor<?x64xf32> rows = 4 row_bytes = 256
// CHECK-DAG: foresight.buffer @a.out "work" : tensor<?x64xf32> rows = 4 row_bytes = 256 offset = 0
// CHECK-DAG: foresight.buffer @b.out "work" : tensor<?x64xf32> rows = 4 row_bytes = 256 offset = 1024
// CHECK-DAG: foresight.buffer @d.out "work" : tensor<?x64xf32> rows = 4 row_bytes = 256 offset = 1024
// CHECK-DAG: foresight.buffer @logits "output" : tensor<?x64xf32> rows = 4 row_bytes = 256

// CHECK-LABEL: func.func @prefill
// CHECK-SAME: tensor<?x64xf32> {foresight.buffer = @input.0}
// CHECK-SAME: -> (tensor<?x64xf32> {foresight.buffer = @logits})
func.func @prefill(%x: tensor<?x64xf32>) -> tensor<?x64xf32> attributes {foresight.entry = "prefill", foresight.max_tokens = 4 : i64} {
  %g = foresight.get_weight @w : tensor<64x64xf16>
  // CHECK: "a" {{.*}} outs [@a.out]
  %a, %ta = foresight.launch "a" @relu (%x : tensor<?x64xf32>) outs [] -> (tensor<?x64xf32>)
  // CHECK: "b" {{.*}} outs [@b.out]
  %b, %tb = foresight.launch "b" @relu after(%ta) (%a : tensor<?x64xf32>) outs [] -> (tensor<?x64xf32>)
  // Nobody reads %a any more: the sum overwrites it.
  // CHECK: "c" {{.*}} outs [@a.out]
  %c, %tc = foresight.launch "c" @sum after(%tb) (%g, %b, %a : tensor<64x64xf16>, tensor<?x64xf32>, tensor<?x64xf32>) outs [] -> (tensor<?x64xf32>)
  // CHECK: "d" {{.*}} outs [@d.out]
  %d, %td = foresight.launch "d" @sum_of_own_product after(%tc) (%g, %c : tensor<64x64xf16>, tensor<?x64xf32>) outs [] -> (tensor<?x64xf32>)
  // CHECK: "e" {{.*}} outs [@logits]
  %e, %te = foresight.launch "e" @relu after(%td) (%d : tensor<?x64xf32>) outs [] -> (tensor<?x64xf32>)
  return %e : tensor<?x64xf32>
}
foresight.weight @w : tensor<64x64xf16> = #foresight.synthetic<seed = 1, mean = 0.0 : f64, deviation = 1.0 : f64>

// -----

// No token orders "d" and the sum, so the stream that "d" reads stays whole, and
// what both write lies apart.
foresight.kernel @relu(%x: tensor<1x64xf32>) {
  %0 = foresight.activate %x <relu> : tensor<1x64xf32>
  foresight.yield %0 : tensor<1x64xf32>
}
foresight.kernel @sum(%x: tensor<1x64xf32>, %r: tensor<1x64xf32>) {
  %0 = foresight.activate %x <relu> : tensor<1x64xf32>
  %1 = foresight.add %r, %0 : tensor<1x64xf32>
  foresight.yield %1 : tensor<1x64xf32>
}
// CHECK-DAG: foresight.buffer @a.out "work" {{.*}} offset = 0
// CHECK-DAG: foresight.buffer @b.out "work" {{.*}} offset = 256
// CHECK-DAG: foresight.buffer @c.out "work" {{.*}} offset = 768
// CHECK-DAG: foresight.buffer @d.out "work" {{.*}} offset = 512
// CHECK-LABEL: func.func @decode
func.func @decode(%x: tensor<1x64xf32>) -> tensor<1x64xf32> attributes {foresight.entry = "decode", foresight.max_tokens = 1 : i64} {
  %a, %ta = foresight.launch "a" @relu (%x : tensor<1x64xf32>) outs [] -> (tensor<1x64xf32>)
  %b, %tb = foresight.launch "b" @relu after(%ta) (%a : tensor<1x64xf32>) outs [] -> (tensor<1x64xf32>)
  // CHECK: "d" {{.*}} outs [@d.out]
  %d, %td = foresight.launch "d" @relu after(%ta) (%a : tensor<1x64xf32>) outs [] -> (tensor<1x64xf32>)
  // CHECK: "c" {{.*}} outs [@c.out]
  %c, %tc = foresight.launch "c" @sum after(%tb) (%b, %a : tensor<1x64xf32>, tensor<1x64xf32>) outs [] -> (tensor<1x64xf32>)
  %e, %te = foresight.launch "e" @sum after(%td, %tc) (%d, %c : tensor<1x64xf32>, tensor<1x64xf32>) outs [] -> (tensor<1x64xf32>)
  return %e : tensor<1x64xf32>
}

// -----

// Rows of 48 are padded to 64, and padding stays zero: rows of another width
// do not take that memory, rows of the same do.
foresight.kernel @narrow(%x: tensor<1x48xf32>) {
  %0 = foresight.activate %x <relu> : tensor<1x48xf32>
  foresight.yield %0 : tensor<1x48xf32>
}
foresight.kernel @widen(%x: tensor<1x48xf32>, %w: tensor<64x48xf16>) {
  %0 = foresight.linear %x, %w : tensor<1x48xf32>, tensor<64x48xf16> -> tensor<1x64xf32>
  foresight.yield %0 : tensor<1x64xf32>
}
foresight.kernel @shrink(%x: tensor<1x64xf32>, %w: tensor<48x64xf16>) {
  %0 = foresight.linear %x, %w : tensor<1x64xf32>, tensor<48x64xf16> -> tensor<1x48xf32>
  foresight.yield %0 : tensor<1x48xf32>
}
foresight.weight @up : tensor<64x48xf16> = #foresight.synthetic<seed = 1, mean = 0.0 : f64, deviation = 1.0 : f64>
foresight.weight @down : tensor<48x64xf16> = #foresight.synthetic<seed = 1, mean = 0.0 : f64, deviation = 1.0 : f64>
// CHECK-DAG: foresight.buffer @a.out "work" : tensor<?x48xf32> rows = 1 row_bytes = 256 offset = 0
// CHECK-DAG: foresight.buffer @b.out "work" : tensor<?x48xf32> rows = 1 row_bytes = 256 offset = 256
// CHECK-DAG: foresight.buffer @c.out "work" : tensor<?x64xf32> rows = 1 row_bytes = 256 offset = 512
// CHECK-DAG: foresight.buffer @d.out "work" : tensor<?x48xf32> rows = 1 row_bytes = 256 offset = 0
// CHECK-LABEL: func.func @decode
func.func @decode(%x: tensor<1x48xf32>) -> tensor<1x48xf32> attributes {foresight.entry = "decode", foresight.max_tokens = 1 : i64} {
  %up = foresight.get_weight @up : tensor<64x48xf16>
  %down = foresight.get_weight @down : tensor<48x64xf16>
  %a, %ta = foresight.launch "a" @narrow (%x : tensor<1x48xf32>) outs [] -> (tensor<1x48xf32>)
  %b, %tb = foresight.launch "b" @narrow after(%ta) (%a : tensor<1x48xf32>) outs [] -> (tensor<1x48xf32>)
  %c, %tc = foresight.launch "c" @widen after(%tb) (%b, %up : tensor<1x48xf32>, tensor<64x48xf16>) outs [] -> (tensor<1x64xf32>)
  %d, %td = foresight.launch "d" @shrink after(%tc) (%c, %down : tensor<1x64xf32>, tensor<48x64xf16>) outs [] -> (tensor<1x48xf32>)
  %e, %te = foresight.launch "e" @narrow after(%td) (%d : tensor<1x48xf32>) outs [] -> (tensor<1x48xf32>)
  return %e : tensor<1x48xf32>
}

// -----

// A set is a bit a candidate, in words; its buffer is padded.
// CHECK: foresight.buffer @a.out "work" : tensor<?x2xi32> rows = 1 row_bytes = 64
foresight.kernel @set(%s: tensor<1x40xf32>) {
  %0 = foresight.select_threshold %s threshold = 0.0 : tensor<1x40xf32> -> !foresight.index_set<40 of 40>
  foresight.yield %0 : !foresight.index_set<40 of 40>
}
foresight.kernel @take(%s: tensor<1x40xf32>, %set: !foresight.index_set<40 of 40>, %w: tensor<40x40xf16>) {
  %0 = foresight.column_linear %s, %w rows(%set : !foresight.index_set<40 of 40>) : tensor<1x40xf32>, tensor<40x40xf16> -> tensor<1x40xf32>
  foresight.yield %0 : tensor<1x40xf32>
}
foresight.weight @w : tensor<40x40xf16> = #foresight.synthetic<seed = 1, mean = 0.0 : f64, deviation = 1.0 : f64>
// CHECK-LABEL: func.func @decode
func.func @decode(%s: tensor<1x40xf32>) -> tensor<1x40xf32> attributes {foresight.entry = "decode", foresight.max_tokens = 1 : i64} {
  %w = foresight.get_weight @w : tensor<40x40xf16>
  // CHECK: foresight.launch "a" {{.*}} outs [@a.out]
  %a, %ta = foresight.launch "a" @set (%s : tensor<1x40xf32>) outs [] -> (!foresight.index_set<40 of 40>)
  %b, %tb = foresight.launch "b" @take after(%ta) (%s, %a, %w : tensor<1x40xf32>, !foresight.index_set<40 of 40>, tensor<40x40xf16>) outs [] -> (tensor<1x40xf32>)
  return %b : tensor<1x40xf32>
}
