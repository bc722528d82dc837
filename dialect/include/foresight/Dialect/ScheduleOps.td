//===- ScheduleOps.td - Stages, kernels, launches, buffers ------*- tablegen -*-===//
#ifndef FORESIGHT_SCHEDULE_OPS_TD
#define FORESIGHT_SCHEDULE_OPS_TD

include "foresight/Dialect/SelectionOps.td"
include "mlir/Interfaces/ControlFlowInterfaces.td"
include "mlir/IR/RegionKindInterface.td"

def Foresight_StageOp : Foresight_Op<"stage", [IsolatedFromAbove, AttrSizedOperandSegments, RecursiveMemoryEffects,
    SingleBlockImplicitTerminator<"::foresight::YieldOp">]> {
  let summary = "what one kernel will compute";
  let description = [{
    A group of ops that becomes one kernel. The region sees only its arguments, one an operand, so that stages with equal
    regions can share a kernel. `after` lists the stages whose effects this one needs; `done` is its own token. `name` says
    which part of the model it is (`layers.3.fc1`), for traces and errors; `role` and `layer` say the same for tools (see the
    manifest's stages; layer -1 is outside the layers). `library` names a library routine that computes the stage
    in place of generated code (`"gemm"`: one product with its bias, activation and residual). The location is the fused
    location of the ops it was made of.
    ```mlir
    %h, %done = foresight.stage "layers.0.fc1" after(%normed) (%a = %x : tensor<1x2048xf32>, %w = %fc1 : tensor<8192x2048xf16>)
        -> (tensor<1x8192xf32>) attributes {layer = 0 : i64, role = "fc1"} {
      %r = foresight.linear %a, %w : tensor<1x2048xf32>, tensor<8192x2048xf16> -> tensor<1x8192xf32>
      foresight.yield %r : tensor<1x8192xf32>
    }
    ```
  }];
  let arguments = (ins StrAttr:$name, Variadic<Foresight_TokenType>:$after, Variadic<AnyType>:$inputs, OptionalAttr<StrAttr>:$library,
                       DefaultValuedAttr<StrAttr, "\"other\"">:$role, DefaultValuedAttr<I64Attr, "-1">:$layer);
  let results = (outs Variadic<AnyType>:$results, Foresight_TokenType:$done);
  let regions = (region SizedRegion<1>:$body);
  let hasCustomAssemblyFormat = 1;
  let hasVerifier = 1;
}

def Foresight_YieldOp : Foresight_Op<"yield", [Pure, Terminator, ReturnLike,
    ParentOneOf<["::foresight::StageOp", "::foresight::KernelOp"]>]> {
  let summary = "the results of a stage or kernel";
  let description = [{ Ends the region of a `stage` or `kernel`; its values become the results of the stage or of each launch. }];
  let arguments = (ins Variadic<AnyType>:$values);
  let assemblyFormat = "($values^ `:` type($values))? attr-dict";
  // A body, be it empty: without one TableGen only declares the builder.
  let builders = [OpBuilder<(ins), [{ (void)odsState; }]>];
}

def Foresight_BufferOp : Foresight_Op<"buffer", [Symbol]> {
  let summary = "memory that stages read and write";
  let description = [{
    `row_bytes` for each token row of an entry's largest `T`; `rows` rows. Rows are padded to a multiple of 32 elements. `kind` is `input`, `output`,
    `state` (lives from token to token: a KV cache) or `work`. A `work` buffer lies at `offset` in the arena that all work buffers share;
    two that are never alive together may overlap.

    `type` is what it holds: `tensor<?xNxf32>` for rows of N features, a KV cache type for a cache (`rows` = 1, `row_bytes` = the whole
    cache), or `tensor<?xi32>` for token ids and positions, which lie densely (`row_bytes` = 4, no padding). Entries share buffers.
    An argument or result of an entry names its buffer in the attribute `foresight.buffer`.
    ```mlir
    foresight.buffer @layers.0.fc1.out "work" : tensor<?x8192xf32> rows = 512 row_bytes = 32768 offset = 0
    ```
  }];
  let arguments = (ins SymbolNameAttr:$sym_name, StrAttr:$kind, TypeAttr:$type, I64Attr:$rows, I64Attr:$row_bytes, OptionalAttr<I64Attr>:$offset);
  let assemblyFormat = "$sym_name $kind `:` $type `rows` `=` $rows `row_bytes` `=` $row_bytes (`offset` `=` $offset^)? attr-dict";
  let hasVerifier = 1;
}

def Foresight_KernelOp : Foresight_Op<"kernel", [Symbol, IsolatedFromAbove,
    SingleBlockImplicitTerminator<"::foresight::YieldOp">]> {
  let summary = "a distinct stage body, shared by the launches of equal shape";
  let description = [{
    One pair of functions in a bundle's code, or one call of a `library`. Arguments are the stage's inputs, weights among them; what the
    region yields are the results.
    ```mlir
    foresight.kernel @decode.fc1(%x: tensor<1x2048xf32>, %w: tensor<8192x2048xf16>) {
      %r = foresight.linear %x, %w : tensor<1x2048xf32>, tensor<8192x2048xf16> -> tensor<1x8192xf32>
      foresight.yield %r : tensor<1x8192xf32>
    }
    ```
  }];
  let arguments = (ins SymbolNameAttr:$sym_name, OptionalAttr<StrAttr>:$library);
  let regions = (region SizedRegion<1>:$body);
  let hasCustomAssemblyFormat = 1;
  let hasVerifier = 1;
}

def Foresight_LaunchOp : Foresight_Op<"launch", [AttrSizedOperandSegments, DeclareOpInterfaceMethods<SymbolUserOpInterface>]> {
  let summary = "runs a kernel";
  let description = [{
    `name`, `role` and `layer` are the stage's. `outs` names the buffer of each result, in order; a result that is the next state of
    an input (a KV cache) names that input's buffer. `outs` is empty until buffers are planned.

    A launch may run as soon as the launches whose tokens it names have finished. Its operands order nothing by themselves: values are memory
    by then, and `after` has to say what must be there.
    ```mlir
    %h, %done = foresight.launch "layers.0.fc1" @decode.fc1 after(%normed) (%x, %fc1 : tensor<1x2048xf32>, tensor<8192x2048xf16>)
        outs [@layers.0.fc1.out] -> (tensor<1x8192xf32>) {layer = 0 : i64, role = "fc1"}
    ```
  }];
  let arguments = (ins StrAttr:$name, FlatSymbolRefAttr:$kernel, Variadic<Foresight_TokenType>:$after, Variadic<AnyType>:$inputs,
                       TypedArrayAttrBase<FlatSymbolRefAttr, "buffer symbols">:$outs,
                       DefaultValuedAttr<StrAttr, "\"other\"">:$role, DefaultValuedAttr<I64Attr, "-1">:$layer);
  let results = (outs Variadic<AnyType>:$results, Foresight_TokenType:$done);
  let hasCustomAssemblyFormat = 1;
  let hasVerifier = 1;
}

#endif
