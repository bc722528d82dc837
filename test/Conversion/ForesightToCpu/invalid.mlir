// RUN: foresight-opt %s --foresight-to-cpu --split-input-file --verify-diagnostics

foresight.kernel @prompt(%x: tensor<?x48xf32>, %w: tensor<48x48xf16>) {
  // expected-error@below {{has more than one row: on a CPU a product over a prompt is a library stage}}
  %0 = foresight.linear %x, %w : tensor<?x48xf32>, tensor<48x48xf16> -> tensor<?x48xf32>
  foresight.yield %0 : tensor<?x48xf32>
}

// -----

foresight.kernel @chain(%x: tensor<1x48xf32>, %w: tensor<48x48xf16>) {
  %0 = foresight.linear %x, %w : tensor<1x48xf32>, tensor<48x48xf16> -> tensor<1x48xf32>
  // expected-error@below {{reads what the same kernel computes, a block at a time: put it in the next stage}}
  %1 = foresight.linear %0, %w : tensor<1x48xf32>, tensor<48x48xf16> -> tensor<1x48xf32>
  foresight.yield %1 : tensor<1x48xf32>
}

// -----

foresight.kernel @norm_after(%x: tensor<1x48xf32>, %w: tensor<48x48xf16>) {
  %0 = foresight.linear %x, %w : tensor<1x48xf32>, tensor<48x48xf16> -> tensor<1x48xf32>
  // expected-error@below {{needs whole rows}}
  %1 = foresight.layer_norm %0 epsilon = 1.0e-5 : tensor<1x48xf32> -> tensor<1x48xf32>
  foresight.yield %1 : tensor<1x48xf32>
}

// -----

foresight.kernel @joined(%x: tensor<1x48xf32>, %w: tensor<48x48xf16>) {
  %0 = foresight.linear %x, %w : tensor<1x48xf32>, tensor<48x48xf16> -> tensor<1x48xf32>
  %1 = foresight.linear %x, %w : tensor<1x48xf32>, tensor<48x48xf16> -> tensor<1x48xf32>
  // expected-error@below {{joins two products of one kernel}}
  %2 = foresight.add %0, %1 : tensor<1x48xf32>
  foresight.yield %2 : tensor<1x48xf32>
}

// -----

// expected-error@below {{mixes bodies}}
foresight.kernel @mixed(%x: tensor<1x48xf32>, %w: tensor<48x48xf16>) {
  %0 = foresight.linear %x, %w : tensor<1x48xf32>, tensor<48x48xf16> -> tensor<1x48xf32>
  %1 = foresight.column_linear %x, %w : tensor<1x48xf32>, tensor<48x48xf16> -> tensor<1x48xf32>
  foresight.yield %0, %1 : tensor<1x48xf32>, tensor<1x48xf32>
}

// -----

foresight.kernel @append_of_many(%kv: !foresight.kv_cache<4 x 12, 64, f16>, %q: tensor<?x48xf32>, %pos: tensor<?xi32>) {
  // expected-error@below {{writes several rows that the attention of the same kernel reads}}
  %kv1 = foresight.kv_append %kv, %q, %q at %pos : !foresight.kv_cache<4 x 12, 64, f16>, tensor<?x48xf32>, tensor<?xi32>
  %0 = foresight.attention %q, %kv1 at %pos scale = 2.5e-1 : tensor<?x48xf32>, !foresight.kv_cache<4 x 12, 64, f16>, tensor<?xi32> -> tensor<?x48xf32>
  foresight.yield %0 : tensor<?x48xf32>
}

// -----

foresight.kernel @whole_mlp(%x: tensor<1x48xf32>, %w: tensor<96x48xf16>) {
  // expected-error@below {{has no CPU lowering inside a kernel}}
  %0 = foresight.mlp %x, %w <relu> %w : tensor<1x48xf32>, tensor<96x48xf16>, tensor<96x48xf16> -> tensor<1x48xf32>
  foresight.yield %0 : tensor<1x48xf32>
}

// -----

// expected-error@below {{yields argument 0 as it is}}
foresight.kernel @nothing(%x: tensor<1x48xf32>) {
  foresight.yield %x : tensor<1x48xf32>
}

// -----

// expected-error@below {{needs foresight.predict, foresight.select_certified and foresight.gather_linear together}}
foresight.kernel @scores(%x: tensor<1x48xf32>, %copy: !foresight.low_bit<96 x 48, 4>) {
  %0, %t = foresight.predict %x, %copy : tensor<1x48xf32>, !foresight.low_bit<96 x 48, 4> -> tensor<1x96xf32>
  foresight.yield %0 : tensor<1x96xf32>
}
