//===- WeightOps.td - Weights -----------------------------------*- tablegen -*-===//
#ifndef FORESIGHT_WEIGHT_OPS_TD
#define FORESIGHT_WEIGHT_OPS_TD

include "foresight/Dialect/ForesightTypes.td"
include "foresight/Dialect/ForesightAttrs.td"
include "mlir/IR/SymbolInterfaces.td"
include "mlir/Interfaces/InferTypeOpInterface.td"
include "mlir/Interfaces/SideEffectInterfaces.td"

def Foresight_WeightOp : Foresight_Op<"weight", [Symbol, DeclareOpInterfaceMethods<SymbolUserOpInterface>]> {
  let summary = "names weight data";
  let description = [{
    `type` is what the program computes with: a tensor of f32, f16 or bf16, or a `!foresight.low_bit` copy.
    `source` says where the data are: `#foresight.external`, `#foresight.synthetic`, `#foresight.derived` or, for
    small constants, a dense elements attribute of the same shape.

    Example:
    ```mlir
    foresight.weight @layers.0.fc1.weight : tensor<8192x2048xf16> =
        #foresight.external<"model.safetensors", offset = 4096, bytes = 33554432, f16>
    ```
  }];
  let arguments = (ins SymbolNameAttr:$sym_name, TypeAttr:$type, AnyAttr:$source);
  let assemblyFormat = "$sym_name `:` $type `=` $source attr-dict";
  let hasVerifier = 1;
}

def Foresight_GetWeightOp : Foresight_Op<"get_weight", [Pure, DeclareOpInterfaceMethods<SymbolUserOpInterface>]> {
  let summary = "the value of a named weight";
  let description = [{
    The type is the `foresight.weight`'s own. Naming a weight reads nothing: the op that uses it does.
    ```mlir
    %fc1 = foresight.get_weight @layers.0.fc1.weight : tensor<8192x2048xf16>
    ```
  }];
  let arguments = (ins FlatSymbolRefAttr:$weight);
  let results = (outs AnyType:$result);
  let assemblyFormat = "$weight attr-dict `:` type($result)";
}

#endif
