//===- ForesightBase.td - The foresight dialect -----------------*- tablegen -*-===//
#ifndef FORESIGHT_BASE_TD
#define FORESIGHT_BASE_TD

include "mlir/IR/OpBase.td"
include "mlir/IR/AttrTypeBase.td"

def Foresight_Dialect : Dialect {
  let name = "foresight";
  let cppNamespace = "::foresight";
  let summary = "decoding steps of OPT language models that read only the weights each token needs";
  let description = [{
    A model is a module of `foresight.weight` symbols and `func.func` entry points. An entry
    computes `T` tokens of one sequence: activations are `tensor<TxNxf32>`, one row a token, `T`
    is `1` while decoding and `?` while a prompt is processed. Weights are values too
    (`foresight.get_weight`), so that a stage lists what it reads.

    Numbers: the residual stream, LayerNorm, softmax and every accumulation are f32, whatever
    type the weights are stored in. Masks are predicates; there are no sentinel values.

    Ordering is data: an op that may run early yields a `!foresight.token`, an op that needs
    its effect names that token.

    Phases, each printable and parsable: raised (one `@step`), sparse (`predict`, `select_*`,
    `sparse_mlp`), staged (`stage` regions with tokens), scheduled (`kernel` symbols, `launch`
    ops, `buffer` symbols).
  }];
  let useDefaultTypePrinterParser = 1;
  let useDefaultAttributePrinterParser = 1;
  let hasConstantMaterializer = 0;
}

class Foresight_Op<string mnemonic, list<Trait> traits = []> : Op<Foresight_Dialect, mnemonic, traits>;
class Foresight_Type<string typeName, string m, list<Trait> traits = []> : TypeDef<Foresight_Dialect, typeName, traits> {
  let mnemonic = m;
}
class Foresight_Attr<string attrName, string m, list<Trait> traits = []> : AttrDef<Foresight_Dialect, attrName, traits> {
  let mnemonic = m;
}

#endif
