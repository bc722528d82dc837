// RUN: foresight-opt %s | foresight-opt | FileCheck %s

// CHECK-LABEL: onnx.graph @main opset 20 inputs ["input_ids", "flag"] {
// CHECK: ^bb0(%input_ids: tensor<?x?xi64>, %flag: tensor<1xi1>):
onnx.graph @main opset 20 inputs ["input_ids", "flag"] {
^bb0(%input_ids: tensor<?x?xi64>, %flag: tensor<1xi1>):
  // CHECK: %[[W:[a-z]+]] = onnx.constant "w" : tensor<32x8xf16> = #foresight.external<"m.onnx", offset = 64, bytes = 512, f16>
  %w = onnx.constant "w" : tensor<32x8xf16> = #foresight.external<"m.onnx", offset = 64, bytes = 512, f16>
  %axes = onnx.constant "axes" : tensor<1xi64> = dense<1> : tensor<1xi64>
  // CHECK: %[[NONE:.*]] = onnx.none
  %none = onnx.none
  // CHECK: onnx.node "Gather" with {axis = 0 : i64}(%[[W]], %input_ids) : (tensor<32x8xf16>, tensor<?x?xi64>) -> !onnx.value
  %0 = onnx.node "Gather" with {axis = 0 : i64}(%w, %input_ids) : (tensor<32x8xf16>, tensor<?x?xi64>) -> !onnx.value
  // CHECK: onnx.node "FusedMatMul" of "com.microsoft"
  %1 = onnx.node "FusedMatMul" of "com.microsoft"(%0, %none) : (!onnx.value, none) -> !onnx.value
  // CHECK: onnx.node "If"(%flag) branches ["then_branch", "else_branch"] {
  %2 = onnx.node "If"(%flag) branches ["then_branch", "else_branch"] {
    onnx.output ["x"] %1 : !onnx.value
  }, {
    onnx.output ["y"] %0 : !onnx.value
  } : (tensor<1xi1>) -> !onnx.value
  // CHECK: onnx.output ["logits"] %{{.*}} : !onnx.value
  onnx.output ["logits"] %2 : !onnx.value
}
