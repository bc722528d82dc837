//===- ForesightAttrs.td - Attributes and enums -----------------*- tablegen -*-===//
#ifndef FORESIGHT_ATTRS_TD
#define FORESIGHT_ATTRS_TD

include "foresight/Dialect/ForesightBase.td"
include "mlir/IR/EnumAttr.td"

class Foresight_Enum<string name, string summary, list<I32EnumAttrCase> cases>
    : I32EnumAttr<name, summary, cases> {
  let cppNamespace = "::foresight";
  let genSpecializedAttr = 0;
}
class Foresight_EnumAttr<I32EnumAttr e, string m> : EnumAttr<Foresight_Dialect, e, m> {
  let assemblyFormat = "`<` $value `>`";
}

def Foresight_Activation : Foresight_Enum<"Activation", "what follows a linear layer", [
  I32EnumAttrCase<"None", 0, "none">, I32EnumAttrCase<"Relu", 1, "relu">,
  I32EnumAttrCase<"Gelu", 2, "gelu">, I32EnumAttrCase<"GeluTanh", 3, "gelu_tanh">]>;
def Foresight_ActivationAttr : Foresight_EnumAttr<Foresight_Activation, "activation">;

def Foresight_Lookahead : Foresight_Enum<"Lookahead",
    "how far before its consumer's own input a prediction reads", [
  I32EnumAttrCase<"Here", 0, "here">,          // the consumer's own input
  I32EnumAttrCase<"HalfBlock", 1, "half_block">, // the attention input of the same block
  I32EnumAttrCase<"Block", 2, "block">,        // the same place one block earlier
  I32EnumAttrCase<"TwoBlocks", 3, "two_blocks">]>;
def Foresight_LookaheadAttr : Foresight_EnumAttr<Foresight_Lookahead, "lookahead">;

def Foresight_DerivedKind : Foresight_Enum<"DerivedKind", "how a weight is made from others", [
  I32EnumAttrCase<"Transpose", 0, "transpose">,
  I32EnumAttrCase<"ConcatRows", 1, "concat_rows">,
  I32EnumAttrCase<"LowBit", 2, "low_bit">,
  I32EnumAttrCase<"Balance", 3, "balance">,
  I32EnumAttrCase<"SliceRows", 4, "slice_rows">]>;
def Foresight_DerivedKindAttr : Foresight_EnumAttr<Foresight_DerivedKind, "derived_kind">;

def Foresight_ExternalAttr : Foresight_Attr<"External", "external"> {
  let summary = "weight data in a file that is mapped, never copied into the IR";
  let description = [{
    `bytes` bytes at `offset` of `file` hold `shape` elements of `element` in row-major order. A weight whose
    logical shape is the transpose of `shape` says `transposed`. Elements are converted to the weight's
    own element type when it is packed. `file` is a path, absolute or relative to the working folder. `element` is f16, bf16, f32 or f64.
    Example: `#foresight.external<"model.safetensors", offset = 4096, bytes = 33554432, f16>`.
  }];
  let parameters = (ins StringRefParameter<>:$file, "int64_t":$offset, "int64_t":$bytes,
                        "::mlir::Type":$element, OptionalParameter<"bool">:$transposed);
  let assemblyFormat = "`<` $file `,` `offset` `=` $offset `,` `bytes` `=` $bytes `,` $element (`,` `transposed` `=` $transposed^)? `>`";
}

def Foresight_SyntheticAttr : Foresight_Attr<"Synthetic", "synthetic"> {
  let summary = "weight data made from a seed: element i is mean + deviation * normal(seed, i)";
  let description = [{
    For speed alone: `normal` is one of 65536 equally likely values of a standard normal, the same on every machine.
    Example: `#foresight.synthetic<seed = 7, mean = 0.0 : f64, deviation = 0.02 : f64>`.
  }];
  let parameters = (ins "int64_t":$seed, "::mlir::FloatAttr":$mean, "::mlir::FloatAttr":$deviation);
  let assemblyFormat = "`<` `seed` `=` $seed `,` `mean` `=` $mean `,` `deviation` `=` $deviation `>`";
}

def Foresight_DerivedAttr : Foresight_Attr<"Derived", "derived"> {
  let summary = "weight data computed from other weights when the bundle is packed";
  let description = [{
    - `transpose`: one source.
    - `concat_rows`: sources with equal columns, one below the other.
    - `slice_rows`: the rows of one source from `first` on, or the elements of a vector; the result type says how
      many. Exporters join query, key and value in one matrix.
    - `low_bit`: sources `[weight, bias, gamma, beta]`; gamma and beta are LayerNorm's, folded into the rows
      (`w[i,k] * gamma[k]`, `b[i] + sum_k w[i,k] * beta[k]`) before they are rounded. A fifth source, `balance`, divides
      the columns: the copy is then applied to rows that are multiplied by it. A missing bias, gamma or beta is
      named `@none`, which no weight is called (the empty symbol does not parse). The result type gives the bits.
    - `balance`: sources `[weight, gamma]`, gamma perhaps `@none`; a vector with one number a column of the weight,
      above 0 and at most 1: about the root mean square of the column times gamma, over that of the widest column
      (`kernels/lowbit`, `balanceColumns`).
  }];
  let parameters = (ins "::foresight::DerivedKind":$kind,
                        ArrayRefParameter<"::mlir::FlatSymbolRefAttr">:$sources,
                        OptionalParameter<"int64_t">:$first);
  let builders = [AttrBuilder<(ins "::foresight::DerivedKind":$kind,
                                   "::llvm::ArrayRef<::mlir::FlatSymbolRefAttr>":$sources), [{
    return $_get($_ctxt, kind, sources, /*first=*/0);
  }]>];
  let assemblyFormat = "`<` $kind `,` `[` $sources `]` (`,` `first` `=` $first^)? `>`";
  let extraClassDeclaration = [{
    /// Stands for an optional source that is not there.
    static constexpr ::llvm::StringLiteral kMissing = "none";
    bool isMissing(unsigned i) const {
      return i >= getSources().size() || getSources()[i].getValue() == kMissing;
    }
  }];
}

#endif
