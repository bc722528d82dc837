// RUN: foresight-opt %s --foresight-verify-entries --split-input-file --verify-diagnostics

// expected-error @+1 {{is left; run foresight-specialize-entries}}
func.func @step(%x: tensor<?x16xf32>) -> tensor<?x16xf32> attributes {foresight.entry = "step"} {
  return %x : tensor<?x16xf32>
}

// -----

// expected-error @+1 {{has no function with foresight.entry = "decode"}}
module {
func.func @prefill(%x: tensor<?x16xf32>) -> tensor<?x16xf32> attributes {foresight.entry = "prefill"} {
  return %x : tensor<?x16xf32>
}
}

// -----

func.func @prefill(%x: tensor<?x16xf32>) -> tensor<?x16xf32> attributes {foresight.entry = "prefill"} {
  return %x : tensor<?x16xf32>
}
func.func @decode(%x: tensor<?x16xf32>) -> tensor<?x16xf32> attributes {foresight.entry = "decode"} {
  // expected-error @+1 {{has type 'tensor<?x16xf32>' in an entry that computes one token}}
  %y = foresight.activate %x <relu> : tensor<?x16xf32>
  return %y : tensor<?x16xf32>
}

// -----

func.func @prefill(%x: tensor<?x16xf32>, %w: tensor<8x16xf16>) -> tensor<?x16xf32> attributes {foresight.entry = "prefill"} {
  // expected-error @+1 {{is in @prefill; only @decode may be sparse}}
  %y = foresight.sparse_mlp %x, %w <relu> %w : tensor<?x16xf32>, tensor<8x16xf16>, tensor<8x16xf16> -> tensor<?x16xf32>
  return %y : tensor<?x16xf32>
}
func.func @decode(%x: tensor<1x16xf32>) -> tensor<1x16xf32> attributes {foresight.entry = "decode"} {
  return %x : tensor<1x16xf32>
}

// -----

func.func @prefill(%x: tensor<?x16xf32>) -> tensor<?x16xf32> attributes {foresight.entry = "prefill"} {
  return %x : tensor<?x16xf32>
}
func.func @decode(%x: tensor<1x16xf32>, %p: tensor<1xi32>, %kv: !foresight.kv_cache<2 x 8, 8, f16>, %q: tensor<16x16xf16>, %w: tensor<8x16xf16>, %copy: !foresight.low_bit<8 x 16, 4>)
    -> tensor<1x16xf32> attributes {foresight.entry = "decode"} {
  %n = foresight.layer_norm %x epsilon = 1.000000e-05 : tensor<1x16xf32> -> tensor<1x16xf32>
  // expected-error @+1 {{does not read the place that its lookahead here names; run foresight-lookahead}}
  %s, %t = foresight.predict %n, %copy : tensor<1x16xf32>, !foresight.low_bit<8 x 16, 4> -> tensor<1x8xf32>
  %l = foresight.linear %n, %q : tensor<1x16xf32>, tensor<16x16xf16> -> tensor<1x16xf32>
  %a = foresight.attention %l, %kv at %p scale = 1.000000e+00 : tensor<1x16xf32>, !foresight.kv_cache<2 x 8, 8, f16>, tensor<1xi32> -> tensor<1x16xf32>
  %r = foresight.add %x, %a : tensor<1x16xf32>
  %m = foresight.layer_norm %r epsilon = 1.000000e-05 : tensor<1x16xf32> -> tensor<1x16xf32>
  %set = foresight.select_certified %s, %n, %copy kappa = 0.5 after(%t) : tensor<1x8xf32>, tensor<1x16xf32>, !foresight.low_bit<8 x 16, 4> -> !foresight.index_set<8 of 8>
  %y = foresight.sparse_mlp %m, %w <relu> %w rows(%set : !foresight.index_set<8 of 8>) {skip_zeros} : tensor<1x16xf32>, tensor<8x16xf16>, tensor<8x16xf16> -> tensor<1x16xf32>
  return %y : tensor<1x16xf32>
}
