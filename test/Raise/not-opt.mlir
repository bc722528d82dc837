// RUN: foresight-opt %s --foresight-raise --split-input-file --verify-diagnostics

// A model of images.

// expected-error @below {{input 'pixels' of type 'tensor<1x3x8xf32>' is not one that an OPT export has}}
// expected-error @below {{input 'sizes' of type 'tensor<?x?x?xi64>' is not one that an OPT export has: token ids, an attention mask, positions, or keys and values}}
onnx.graph @images opset 17 inputs ["pixels", "sizes"] {
^bb0(%pixels: tensor<1x3x8xf32>, %sizes: tensor<?x?x?xi64>):
  %0 = onnx.node "Relu"(%pixels) : (tensor<1x3x8xf32>) -> !onnx.value
  onnx.output ["y"] %0 : !onnx.value
}

// -----

// expected-error @below {{no input holds token ids [batch, tokens]}}
onnx.graph @no_ids opset 17 inputs ["attention_mask"] {
^bb0(%mask: tensor<?x?xi64>):
  onnx.output ["y"] %mask : tensor<?x?xi64>
}

// -----

// expected-error @below {{not an OPT model: no sum of a token embedding and a position embedding was found}}
onnx.graph @embedding_only opset 17 inputs ["input_ids"] {
^bb0(%ids: tensor<?x?xi64>):
  %table = onnx.constant "table" : tensor<96x4xf32> = dense<0.0> : tensor<96x4xf32>
  %0 = onnx.node "Gather"(%table, %ids) : (tensor<96x4xf32>, tensor<?x?xi64>) -> !onnx.value
  onnx.output ["logits"] %0 : !onnx.value
}

// -----

// Embeddings and a head, but no layers.
onnx.graph @no_layers opset 17 inputs ["input_ids"] {
^bb0(%ids: tensor<?x?xi64>):
  %table = onnx.constant "table" : tensor<96x4xf32> = dense<0.0> : tensor<96x4xf32>
  %places = onnx.constant "places" : tensor<64x4xf32> = dense<0.0> : tensor<64x4xf32>
  %zero = onnx.constant "zero" : tensor<i64> = dense<0> : tensor<i64>
  %one = onnx.constant "one" : tensor<i64> = dense<1> : tensor<i64>
  %word = onnx.node "Gather"(%table, %ids) : (tensor<96x4xf32>, tensor<?x?xi64>) -> !onnx.value
  %shape = onnx.node "Shape"(%ids) : (tensor<?x?xi64>) -> !onnx.value
  %tokens = onnx.node "Gather"(%shape, %one) : (!onnx.value, tensor<i64>) -> !onnx.value
  %range = onnx.node "Range"(%zero, %tokens, %one) : (tensor<i64>, !onnx.value, tensor<i64>) -> !onnx.value
  %place = onnx.node "Gather"(%places, %range) : (tensor<64x4xf32>, !onnx.value) -> !onnx.value
  // expected-error @below {{not an OPT model: no layer follows the embedding}}
  %h = onnx.node "Add"(%word, %place) : (!onnx.value, !onnx.value) -> !onnx.value
  %head = onnx.node "Transpose" with {perm = array<i64: 1, 0>}(%table) : (tensor<96x4xf32>) -> !onnx.value
  %logits = onnx.node "MatMul"(%h, %head) : (!onnx.value, !onnx.value) -> !onnx.value
  onnx.output ["logits"] %logits : !onnx.value
}

// -----

// Everything that is not supported is said at once, and what is not understood
// where it begins.
onnx.graph @shapes opset 17 inputs ["input_ids"] {
^bb0(%ids: tensor<?x?xi64>):
  %three = onnx.constant "three" : tensor<1xi64> = dense<3> : tensor<1xi64>
  // expected-error @below {{node 'without a name' (Reshape): shape [2, 4] cannot become [3] (run with 2 sequences of 4 tokens after 0)}}
  %0 = onnx.node "Reshape"(%ids, %three) : (tensor<?x?xi64>, tensor<1xi64>) -> !onnx.value
  onnx.output ["logits"] %0 : !onnx.value
}

// -----

// Sizes that are fixed are run as they are, so they must be small.

// expected-error @below {{input "input_ids" of type 'tensor<0x2048xi64>' has a fixed size of 0; export the model with dynamic axes}}
// expected-error @below {{has a fixed size of 2048; export the model with dynamic axes for batch and tokens}}
onnx.graph @fixed opset 17 inputs ["input_ids"] {
^bb0(%ids: tensor<0x2048xi64>):
  onnx.output ["logits"] %ids : tensor<0x2048xi64>
}

// -----

// expected-error @below {{input "past" must have a fixed number of heads and head size, found 'tensor<?x?x?x16xf32>'}}
onnx.graph @heads opset 17 inputs ["input_ids", "past"] {
^bb0(%ids: tensor<?x?xi64>, %past: tensor<?x?x?x16xf32>):
  onnx.output ["logits"] %ids : tensor<?x?xi64>
}

// -----

// expected-error @below {{there is no onnx.graph to raise}}
module {
}

// -----

// Products of weights with each other and with nothing, lookups by a weight, an
// `If` on a value that is none.
onnx.graph @odd opset 17 inputs ["input_ids"] {
^bb0(%ids: tensor<?x?xi64>):
  %w = onnx.constant "w" : tensor<4x4xf32> = dense<0.0> : tensor<4x4xf32>
  %none = onnx.none
  // expected-error @below {{(MatMul): weight 'w' is multiplied by another weight or by nothing}}
  %0 = onnx.node "MatMul"(%w, %w) : (tensor<4x4xf32>, tensor<4x4xf32>) -> !onnx.value
  // expected-error @below {{(MatMul): weight 'w' is multiplied by another weight or by nothing}}
  %1 = onnx.node "MatMul"(%none, %w) : (none, tensor<4x4xf32>) -> !onnx.value
  // expected-error @below {{(Gather): its rows are looked up by a weight or by nothing}}
  %2 = onnx.node "Gather"(%w, %none) : (tensor<4x4xf32>, none) -> !onnx.value
  // expected-error @below {{(If): it has no condition or no branch}}
  %3 = onnx.node "If"(%none) : (none) -> !onnx.value
  onnx.output ["logits"] %ids : tensor<?x?xi64>
}

// -----

// Integers are no rows of a linear layer, whatever their shape.
onnx.graph @integers opset 17 inputs ["input_ids"] {
^bb0(%ids: tensor<?x?xi64>):
  %w = onnx.constant "w" : tensor<4x8xf32> = dense<0.0> : tensor<4x8xf32>
  %last = onnx.constant "last" : tensor<1xi64> = dense<2> : tensor<1xi64>
  %sizes = onnx.constant "sizes" : tensor<3xi64> = dense<[1, 1, 4]> : tensor<3xi64>
  %column = onnx.node "Unsqueeze"(%ids, %last) : (tensor<?x?xi64>, tensor<1xi64>) -> !onnx.value
  %wide = onnx.node "Expand"(%column, %sizes) : (!onnx.value, tensor<3xi64>) -> !onnx.value
  // expected-error @below {{weight 'w' has 4 inputs, but a tensor of integers of shape [2, 4, 4] is multiplied by it}}
  %y = onnx.node "MatMul"(%wide, %w) : (!onnx.value, tensor<4x8xf32>) -> !onnx.value
  %x = onnx.node "Cast" with {to = 1 : i64}(%wide) : (!onnx.value) -> !onnx.value
  onnx.output ["logits", "x"] %y, %x : !onnx.value, !onnx.value
}

// -----

// Places that no table has, and that cannot be subtracted from.
onnx.graph @far opset 17 inputs ["input_ids"] {
^bb0(%ids: tensor<?x?xi64>):
  %table = onnx.constant "table" : tensor<96x4xf32> = dense<0.0> : tensor<96x4xf32>
  %least = onnx.constant "least" : tensor<i64> = dense<-9223372036854775808> : tensor<i64>
  %zero = onnx.constant "zero" : tensor<i64> = dense<0> : tensor<i64>
  %zeros = onnx.node "Mul"(%ids, %zero) : (tensor<?x?xi64>, tensor<i64>) -> !onnx.value
  %far = onnx.node "Add"(%zeros, %least) : (!onnx.value, tensor<i64>) -> !onnx.value
  // expected-error @below {{its rows are looked up neither by token id nor by position}}
  %y = onnx.node "Gather"(%table, %far) : (tensor<96x4xf32>, !onnx.value) -> !onnx.value
  onnx.output ["logits"] %y : !onnx.value
}

// -----

// Weights cut to integers are other weights.
onnx.graph @cut opset 17 inputs ["input_ids"] {
^bb0(%ids: tensor<?x?xi64>):
  %table = onnx.constant "table" : tensor<96x4xf32> = dense<0.5> : tensor<96x4xf32>
  %w = onnx.constant "w" : tensor<4x8xf32> = dense<0.5> : tensor<4x8xf32>
  %x = onnx.node "Gather"(%table, %ids) : (tensor<96x4xf32>, tensor<?x?xi64>) -> !onnx.value
  %whole = onnx.node "Cast" with {to = 7 : i64}(%w) : (tensor<4x8xf32>) -> !onnx.value
  %back = onnx.node "Cast" with {to = 1 : i64}(%whole) : (!onnx.value) -> !onnx.value
  // expected-error @below {{what it computes is not a part of OPT}}
  %y = onnx.node "MatMul"(%x, %back) : (!onnx.value, !onnx.value) -> !onnx.value
  onnx.output ["logits"] %y : !onnx.value
}
