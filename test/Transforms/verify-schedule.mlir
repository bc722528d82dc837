// RUN: foresight-opt %s --foresight-verify-schedule --split-input-file --verify-diagnostics

foresight.kernel @relu(%x: tensor<1x32xf32>) {
  %0 = foresight.activate %x <relu> : tensor<1x32xf32>
  foresight.yield %0 : tensor<1x32xf32>
}
foresight.buffer @in "input" : tensor<?x32xf32> rows = 1 row_bytes = 128
foresight.buffer @out "output" : tensor<?x32xf32> rows = 1 row_bytes = 128
foresight.buffer @a "work" : tensor<?x32xf32> rows = 1 row_bytes = 128 offset = 0
foresight.buffer @b "work" : tensor<?x32xf32> rows = 1 row_bytes = 128 offset = 64
func.func @valid(%x: tensor<1x32xf32> {foresight.buffer = @in}) -> (tensor<1x32xf32> {foresight.buffer = @out}) attributes {foresight.entry = "decode", foresight.max_tokens = 1 : i64} {
  %a, %ta = foresight.launch "a" @relu (%x : tensor<1x32xf32>) outs [@a] -> (tensor<1x32xf32>)
  %b, %tb = foresight.launch "b" @relu after(%ta) (%a : tensor<1x32xf32>) outs [@out] -> (tensor<1x32xf32>)
  return %b : tensor<1x32xf32>
}

// -----

foresight.kernel @relu(%x: tensor<1x32xf32>) {
  %0 = foresight.activate %x <relu> : tensor<1x32xf32>
  foresight.yield %0 : tensor<1x32xf32>
}
foresight.buffer @in "input" : tensor<?x32xf32> rows = 1 row_bytes = 128
foresight.buffer @out "output" : tensor<?x32xf32> rows = 1 row_bytes = 128
foresight.buffer @a "work" : tensor<?x32xf32> rows = 1 row_bytes = 128 offset = 0
func.func @token_is_missing(%x: tensor<1x32xf32> {foresight.buffer = @in}) -> (tensor<1x32xf32> {foresight.buffer = @out}) attributes {foresight.entry = "decode", foresight.max_tokens = 1 : i64} {
  %a, %ta = foresight.launch "a" @relu (%x : tensor<1x32xf32>) outs [@a] -> (tensor<1x32xf32>)
  // expected-error @+1 {{'b' and 'a' use the same memory, one of them to write, but no token orders them}}
  %b, %tb = foresight.launch "b" @relu (%a : tensor<1x32xf32>) outs [@out] -> (tensor<1x32xf32>)
  return %b : tensor<1x32xf32>
}

// -----

foresight.kernel @relu(%x: tensor<1x32xf32>) {
  %0 = foresight.activate %x <relu> : tensor<1x32xf32>
  foresight.yield %0 : tensor<1x32xf32>
}
foresight.buffer @in "input" : tensor<?x32xf32> rows = 1 row_bytes = 128
foresight.buffer @out "output" : tensor<?x32xf32> rows = 1 row_bytes = 128
foresight.buffer @a "work" : tensor<?x32xf32> rows = 1 row_bytes = 128 offset = 0
foresight.buffer @b "work" : tensor<?x32xf32> rows = 1 row_bytes = 128 offset = 64
func.func @value_is_overwritten(%x: tensor<1x32xf32> {foresight.buffer = @in}) -> (tensor<1x32xf32> {foresight.buffer = @out}) attributes {foresight.entry = "decode", foresight.max_tokens = 1 : i64} {
  %a, %ta = foresight.launch "a" @relu (%x : tensor<1x32xf32>) outs [@a] -> (tensor<1x32xf32>)
  %b, %tb = foresight.launch "b" @relu after(%ta) (%x : tensor<1x32xf32>) outs [@b] -> (tensor<1x32xf32>)
  // expected-error @+1 {{'c' reads a value that 'b' has overwritten}}
  %c, %tc = foresight.launch "c" @relu after(%tb) (%a : tensor<1x32xf32>) outs [@out] -> (tensor<1x32xf32>)
  return %c : tensor<1x32xf32>
}

// -----

foresight.kernel @norm(%x: tensor<1x32xf32>) {
  %0 = foresight.layer_norm %x epsilon = 1.000000e-05 : tensor<1x32xf32> -> tensor<1x32xf32>
  foresight.yield %0 : tensor<1x32xf32>
}
foresight.buffer @in "input" : tensor<?x32xf32> rows = 1 row_bytes = 128
foresight.buffer @a "work" : tensor<?x32xf32> rows = 1 row_bytes = 128 offset = 0
func.func @norm_in_place(%x: tensor<1x32xf32> {foresight.buffer = @in}) -> (tensor<1x32xf32> {foresight.buffer = @a}) attributes {foresight.entry = "decode", foresight.max_tokens = 1 : i64} {
  %a, %ta = foresight.launch "a" @norm (%x : tensor<1x32xf32>) outs [@a] -> (tensor<1x32xf32>)
  // expected-error @+1 {{'b' writes result 0 over its input 0 while it still reads it}}
  %b, %tb = foresight.launch "b" @norm after(%ta) (%a : tensor<1x32xf32>) outs [@a] -> (tensor<1x32xf32>)
  return %b : tensor<1x32xf32>
}

// -----

foresight.kernel @relu(%x: tensor<1x32xf32>) {
  %0 = foresight.activate %x <relu> : tensor<1x32xf32>
  foresight.yield %0 : tensor<1x32xf32>
}
func.func @argument_has_no_buffer(%x: tensor<1x32xf32>) -> tensor<1x32xf32> attributes {foresight.entry = "decode", foresight.max_tokens = 1 : i64} { // expected-error {{a value of type 'tensor<1x32xf32>' has no buffer}}
  return %x : tensor<1x32xf32>
}

// -----

foresight.kernel @relu(%x: tensor<?x32xf32>) {
  %0 = foresight.activate %x <relu> : tensor<?x32xf32>
  foresight.yield %0 : tensor<?x32xf32>
}
foresight.buffer @in "input" : tensor<?x32xf32> rows = 8 row_bytes = 128
foresight.buffer @out "output" : tensor<?x32xf32> rows = 7 row_bytes = 128
func.func @too_few_rows(%x: tensor<?x32xf32> {foresight.buffer = @in}) -> (tensor<?x32xf32> {foresight.buffer = @out}) attributes {foresight.entry = "prefill", foresight.max_tokens = 8 : i64} {
  // expected-error @+1 {{buffer @out has 7 rows but the entry uses 8}}
  %a, %ta = foresight.launch "a" @relu (%x : tensor<?x32xf32>) outs [@out] -> (tensor<?x32xf32>)
  return %a : tensor<?x32xf32>
}

// -----

foresight.buffer @in "input" : tensor<?x32xf32> rows = 1 row_bytes = 128
func.func @op_is_left(%x: tensor<1x32xf32> {foresight.buffer = @in}) -> (tensor<1x32xf32> {foresight.buffer = @in}) attributes {foresight.entry = "decode", foresight.max_tokens = 1 : i64} {
  // expected-error @+1 {{is left in a scheduled entry; expected get_weight, launch and return only}}
  %a = foresight.activate %x <relu> : tensor<1x32xf32>
  return %a : tensor<1x32xf32>
}

// -----

foresight.buffer @a "work" : tensor<?x48xf32> rows = 1 row_bytes = 256 offset = 0
// expected-error @+1 {{and @a overlap, but one has rows with padding that must stay zero}}
foresight.buffer @b "work" : tensor<?x64xf32> rows = 1 row_bytes = 256 offset = 0
