// RUN: foresight-opt %s --split-input-file --verify-diagnostics

// expected-error @below {{has 1 inputs but 2 names}}
onnx.graph @names_of_inputs opset 20 inputs ["a", "b"] {
^bb0(%a: tensor<?xi64>):
  onnx.output ["a"] %a : tensor<?xi64>
}

// -----

// expected-error @below {{opset must be positive, found 0}}
onnx.graph @opset opset 0 inputs [] {
  onnx.output []
}

// -----

onnx.graph @short_weight opset 20 inputs [] {
  // expected-error @below {{'w' has 512 bytes but 510 are in the file}}
  %w = onnx.constant "w" : tensor<32x8xf16> = #foresight.external<"m.onnx", offset = 64, bytes = 510, f16>
  onnx.output []
}

// -----

onnx.graph @dense_of_another_shape opset 20 inputs [] {
  // expected-error @below {{'w' has type 'tensor<2xi64>' but its elements have 'tensor<1xi64>'}}
  %w = "onnx.constant"() {name = "w", source = dense<1> : tensor<1xi64>} : () -> tensor<2xi64>
  onnx.output []
}

// -----

onnx.graph @names_of_outputs opset 20 inputs ["a"] {
^bb0(%a: tensor<?xi64>):
  // expected-error @below {{has 1 values but 0 names}}
  onnx.output [] %a : tensor<?xi64>
}
