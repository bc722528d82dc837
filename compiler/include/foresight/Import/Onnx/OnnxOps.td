//===- OnnxOps.td - The onnx-level IR ---------------------------*- tablegen -*-===//
#ifndef FORESIGHT_ONNX_OPS_TD
#define FORESIGHT_ONNX_OPS_TD

include "mlir/IR/OpBase.td"
include "mlir/IR/OpAsmInterface.td"
include "mlir/IR/AttrTypeBase.td"
include "mlir/IR/SymbolInterfaces.td"
include "mlir/Interfaces/SideEffectInterfaces.td"

def Onnx_Dialect : Dialect {
  let name = "onnx";
  let cppNamespace = "::foresight::onnx";
  let summary = "A model file as it was written";
  let description = [{
    One op for every node, none for its meaning: what a node computes is in the evaluator
    (`Evaluator.h`), and what a group of nodes means is found by running them. Names of nodes are
    locations. Weights are `#foresight.external` ranges of files.
  }];
  let useDefaultTypePrinterParser = 1;
}

class Onnx_Op<string mnemonic, list<Trait> traits = []> : Op<Onnx_Dialect, mnemonic, traits>;

def Onnx_ValueType : TypeDef<Onnx_Dialect, "Value"> {
  let mnemonic = "value";
  let summary = "a tensor of which nothing is claimed";
  let description = [{
    The result of a node. What a file says of the shapes of its values is often wrong, so it is not kept.
  }];
}

def Onnx_GraphOp : Onnx_Op<"graph", [IsolatedFromAbove, Symbol, SingleBlock,
    DeclareOpInterfaceMethods<OpAsmOpInterface, ["getAsmBlockArgumentNames"]>]> {
  let summary = "the main graph of a model";
  let description = [{
    The block's arguments are the graph's inputs that are not initializers, `inputs` their names.
    `opset` is the version of the default domain.
    ```mlir
    onnx.graph @main opset 20 inputs ["input_ids"] {
    ^bb0(%input_ids: tensor<?x?xi64>):
      %w = onnx.constant "embed" : tensor<32x32xf32> = #foresight.external<"model.onnx", offset = 64, bytes = 4096, f32>
      %0 = onnx.node "Gather" with {axis = 0 : i64}(%w, %input_ids) : (tensor<32x32xf32>, tensor<?x?xi64>) -> !onnx.value
      onnx.output ["logits"] %0 : !onnx.value
    }
    ```
  }];
  let arguments = (ins SymbolNameAttr:$sym_name, I64Attr:$opset, ArrayAttr:$inputs);
  let regions = (region SizedRegion<1>:$body);
  let assemblyFormat = "$sym_name `opset` $opset `inputs` $inputs attr-dict-with-keyword $body";
  let hasVerifier = 1;
}

def Onnx_ConstantOp : Onnx_Op<"constant", [Pure, DeclareOpInterfaceMethods<OpAsmOpInterface, ["getAsmResultNames"]>]> {
  let summary = "an initializer, or the value of a Constant node";
  let description = [{
    `source` is `#foresight.external`, or a dense elements attribute for a tensor of a few elements.
  }];
  let arguments = (ins StrAttr:$name, AnyAttr:$source);
  let results = (outs AnyRankedTensor:$result);
  let assemblyFormat = "$name `:` type($result) `=` $source attr-dict";
  let hasVerifier = 1;
}

def Onnx_NoneOp : Onnx_Op<"none", [Pure]> {
  let summary = "an optional input that is left out";
  let results = (outs NoneType:$result);
  let assemblyFormat = "attr-dict";
  let builders = [OpBuilder<(ins), [{ build($_builder, $_state, $_builder.getNoneType()); }]>];
}

def Onnx_NodeOp : Onnx_Op<"node", [DeclareOpInterfaceMethods<OpAsmOpInterface, ["getAsmResultNames"]>]> {
  let summary = "a node";
  let description = [{
    `op_type` and `domain` (absent: the default one) say which operator; `params` are its attributes as written.
    Subgraphs (of `If`) are regions without arguments that see the values around them, named by `branches`.
  }];
  let arguments = (ins StrAttr:$op_type, OptionalAttr<StrAttr>:$domain, OptionalAttr<DictionaryAttr>:$params,
                       OptionalAttr<ArrayAttr>:$branches, Variadic<AnyType>:$inputs);
  let results = (outs Variadic<Onnx_ValueType>:$outputs);
  let regions = (region VariadicRegion<SizedRegion<1>>:$bodies);
  let assemblyFormat = [{
    $op_type (`of` $domain^)? (`with` $params^)? `(` $inputs `)` (`branches` $branches^ $bodies)? attr-dict
    `:` functional-type($inputs, $outputs)
  }];
  let hasVerifier = 1;
}

def Onnx_OutputOp : Onnx_Op<"output", [Terminator, Pure]> {
  let summary = "the results of a graph or subgraph";
  let arguments = (ins ArrayAttr:$names, Variadic<AnyType>:$values);
  let assemblyFormat = "$names ($values^ `:` type($values))? attr-dict";
  let hasVerifier = 1;
}

#endif
