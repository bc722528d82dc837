//===- Passes.td - foresight to foresight -----------------------*- tablegen -*-===//
#ifndef FORESIGHT_TRANSFORMS_PASSES_TD
#define FORESIGHT_TRANSFORMS_PASSES_TD

include "mlir/Pass/PassBase.td"

def SetTypesPass : Pass<"foresight-set-types", "mlir::ModuleOp"> {
  let summary = "Choose the types that weights and KV caches are kept in";
  let description = [{
    Matrices get the element type `dtype`; `auto` is bf16 for a model whose matrices are bf16 and f16 for every other. Vectors
    (biases, LayerNorm) are f32. KV caches get the same element type and room for `max-seq` tokens, which may not be more than the
    `max_seq` of the module's `foresight.model`; both facts there follow.

    **Results change** by the rounding of weights, keys and values to the type chosen; everything else is computed in f32.
    ```mlir
    foresight.weight @fc1 : tensor<64x16xf32> = #foresight.external<"m.safetensors", offset = 0, bytes = 4096, f32>
    // becomes, with dtype=f16
    foresight.weight @fc1 : tensor<64x16xf16> = #foresight.external<"m.safetensors", offset = 0, bytes = 4096, f32>
    ```
  }];
  let options = [
    Option<"dtype", "dtype", "std::string", /*default=*/"\"auto\"", "auto, f32, f16 or bf16">,
    Option<"maxSeq", "max-seq", "int64_t", /*default=*/"0", "tokens that a KV cache has room for; 0 leaves it as it is">,
  ];
  let dependentDialects = ["::foresight::ForesightDialect", "mlir::func::FuncDialect"];
}

def FormMlpPass : Pass<"foresight-form-mlp", "mlir::ModuleOp"> {
  let summary = "Make a linear, its activation and the next linear one mlp";
  let description = [{
    An MLP is what may be computed for some neurons only, so it must be seen as one op. fc2's weight becomes neuron-major, by a
    derived weight that is the transpose of the one in the file. The intermediate values must have no other use. Results do not
    change, except that fc2 sums in ascending order.
    ```mlir
    %w1 = foresight.get_weight @fc1 : tensor<64x16xf16>
    %w2 = foresight.get_weight @fc2 : tensor<16x64xf16>
    %h = foresight.linear %x, %w1 {activation = #foresight.activation<relu>} : tensor<?x16xf32>, tensor<64x16xf16> -> tensor<?x64xf32>
    %y = foresight.linear %h, %w2 : tensor<?x64xf32>, tensor<16x64xf16> -> tensor<?x16xf32>
    // becomes, with: foresight.weight @fc2.neuron_major : tensor<64x16xf16> = #foresight.derived<transpose, [@fc2]>
    %w2 = foresight.get_weight @fc2.neuron_major : tensor<64x16xf16>
    %y = foresight.mlp %x, %w1 <relu> %w2 : tensor<?x16xf32>, tensor<64x16xf16>, tensor<64x16xf16> -> tensor<?x16xf32>
    ```
  }];
  let dependentDialects = ["::foresight::ForesightDialect"];
}

def HoistLastRowPass : Pass<"foresight-hoist-last-row", "mlir::ModuleOp"> {
  let summary = "Take the last row before the head, not after it";
  let description = [{
    `last_row` moves in front of the linear layers and LayerNorms that have no other use, so that the head of a prompt is computed
    for one row. It stops at the residual stream: the last block stays one of many equal blocks. Results do not change.
    ```mlir
    %n = foresight.layer_norm %x epsilon = 1.0e-05 : tensor<?x16xf32> -> tensor<?x16xf32>
    %r = foresight.last_row %n : tensor<?x16xf32> -> tensor<1x16xf32>
    // becomes
    %r = foresight.last_row %x : tensor<?x16xf32> -> tensor<1x16xf32>
    %n = foresight.layer_norm %r epsilon = 1.0e-05 : tensor<1x16xf32> -> tensor<1x16xf32>
    ```
  }];
  let dependentDialects = ["::foresight::ForesightDialect"];
}

def AddSequencesPass : Pass<"foresight-add-sequences", "mlir::ModuleOp"> {
  let summary = "Give the caches of @step room for several sequences";
  let description = [{
    With `max-batch` above 1 each KV cache holds so many sequences, and `@step` takes one more argument: which of them its rows
    belong to. Results do not change.
    ```mlir
    func.func @step(%ids: tensor<?xi32>, %positions: tensor<?xi32>, %kv: !foresight.kv_cache<4 x 4, 8, f16>)
    // becomes, with max-batch=8
    func.func @step(%ids: tensor<?xi32>, %positions: tensor<?xi32>, %sequences: tensor<1xi32>,
                    %kv: !foresight.kv_cache<4 x 4, 8, f16, sequences = 8>)
    ```
  }];
  let options = [
    Option<"maxBatch", "max-batch", "int64_t", /*default=*/"1", "sequences that a KV cache has room for">,
  ];
  let dependentDialects = ["::foresight::ForesightDialect", "mlir::func::FuncDialect"];
}

def SpecializeEntriesPass : Pass<"foresight-specialize-entries", "mlir::ModuleOp"> {
  let summary = "Make @prefill and @decode of @step";
  let description = [{
    `@step` is replaced by `@prefill`, which keeps `T = ?`, and `@decode` with `T = 1`, where `last_row` folds away. With
    `dense-decode` there is a second copy of the latter, `@decode_dense`, that no sparsity touches: what a sparse bundle is compared
    with. Each carries `foresight.entry` and `foresight.max_tokens`. Results do not change.

    Where caches hold B sequences there is `@decode_batch` too: up to B rows, each the next token of a sequence of its own, so that
    `%sequences` has one number a row, and each with its own logits. No sparsity touches it.
    ```mlir
    func.func @step(%ids: tensor<?xi32>, ...) -> (tensor<1x100xf32>, ...)
    // becomes
    func.func @prefill(%ids: tensor<?xi32>, ...) -> (tensor<1x100xf32>, ...) attributes {foresight.entry = "prefill", foresight.max_tokens = 512 : i64}
    func.func @decode(%ids: tensor<1xi32>, ...) -> (tensor<1x100xf32>, ...) attributes {foresight.entry = "decode", foresight.max_tokens = 1 : i64}
    ```
  }];
  let options = [
    Option<"denseDecode", "dense-decode", "bool", /*default=*/"false", "also make @decode_dense">,
    Option<"maxTokens", "max-tokens", "int64_t", /*default=*/"512", "most tokens of one call of @prefill; a KV cache may hold fewer">,
  ];
  let dependentDialects = ["::foresight::ForesightDialect", "mlir::func::FuncDialect"];
}

def SparsifyPass : Pass<"foresight-sparsify", "mlir::ModuleOp"> {
  let summary = "Compute MLPs in @decode for the neurons that may be active";
  let description = [{
    The n-th `mlp` of `@decode` is layer n. What becomes of it says the profile, and for a layer that it does not list the options:

    | rule | becomes |
    |---|---|
    | `proof` | `predict`, `select_certified` with kappa 1, `sparse_mlp`: neurons that the low-bit copy proves inactive are left out |
    | `margin` | the same with kappa = margin / sqrt(hidden size) |
    | `low_rank` | `linear` with the predictor's first matrix beside query, key and value, `predict` with an 8-bit copy of its second, `select_certified` with kappa 0, `sparse_mlp`; the matrices are the weights `layers.N.predictor.first.weight`, `.second.weight` and `.second.bias` |
    | `skip` | `sparse_mlp` without a set: fc1 dense, fc2 rows of zero neurons are not read |
    | `dense` | stays `mlp` |

    Only ReLU has neurons that are exactly 0: an MLP with another activation stays dense and a remark says so. What was done and why is left on the
    entry as `foresight.sparsity`, one dictionary a layer, and the module's `sparsity` fact is updated.

    **Results change** with `margin` and `low_rank`: a neuron that the prediction leaves out is taken for 0. The other rules change nothing.
    ```mlir
    %y = foresight.mlp %x, %w1 <relu> %w2 : tensor<1x16xf32>, tensor<64x16xf16>, tensor<64x16xf16> -> tensor<1x16xf32>
    // becomes, with: foresight.weight @fc1.low_bit : !foresight.low_bit<64 x 16, 4> = #foresight.derived<low_bit, [@fc1, @none, @none, @none]>
    %copy = foresight.get_weight @fc1.low_bit : !foresight.low_bit<64 x 16, 4>
    %scores, %done = foresight.predict %x, %copy : tensor<1x16xf32>, !foresight.low_bit<64 x 16, 4> -> tensor<1x64xf32>
    %set = foresight.select_certified %scores, %x, %copy kappa = 1.0 after(%done) : ... -> !foresight.index_set<64 of 64>
    %y = foresight.sparse_mlp %x, %w1 <relu> %w2 rows(%set : !foresight.index_set<64 of 64>) {skip_zeros} : ...
    ```
  }];
  let options = [
    Option<"profile", "profile", "std::string", /*default=*/"", "profile file; it wins over the options below">,
    Option<"rule", "rule", "std::string", /*default=*/"\"proof\"", "proof, margin, skip or dense">,
    Option<"bits", "bits", "int64_t", /*default=*/"6", "bits of the low-bit copy, 2 to 8">,
    Option<"margin", "margin", "double", /*default=*/"4.0", "standard errors of rounding that a neuron must be inactive by">,
    Option<"lookahead", "lookahead", "std::string", /*default=*/"\"here\"", "here, half_block, block or two_blocks">,
  ];
  let dependentDialects = ["::foresight::ForesightDialect"];
}

def FoldNormPass : Pass<"foresight-fold-norm", "mlir::ModuleOp"> {
  let summary = "Put LayerNorm's gamma and beta into the low-bit copies";
  let description = [{
    A `predict` that reads a LayerNorm with gamma and beta reads one without; the copy is rounded from the rows that have them folded
    in. What a selection bounds is then `||x|| <= sqrt(d)` for every token, and rounding sees the weights at their true size. Unless the weights are
    synthetic, the columns of the rows are also divided by their `balance`, at most 1, which the LayerNorm multiplies by: one step a
    row then suits all columns, and what rounding loses meets inputs of like size. A
    proof stays a proof; with a margin another few neurons may be selected.
    ```mlir
    %n = foresight.layer_norm %r gamma(%g : ...) beta(%b : ...) epsilon = 1.0e-05 : ...
    %scores, %done = foresight.predict %n, %copy : ...        // derived<low_bit, [@fc1, @b1, @none, @none]>
    // becomes
    %c = foresight.get_weight @fc1.balance                    // derived<balance, [@fc1, @gamma]>
    %u = foresight.layer_norm %r gamma(%c : ...) epsilon = 1.0e-05 : ...
    %scores, %done = foresight.predict %u, %folded : ...      // derived<low_bit, [@fc1, @b1, @gamma, @beta, @fc1.balance]>
    ```
  }];
  let dependentDialects = ["::foresight::ForesightDialect"];
}

def LookaheadPass : Pass<"foresight-lookahead", "mlir::ModuleOp"> {
  let summary = "Move predictions to the earliest point their lookahead allows";
  let description = [{
    `here` reads the input of its own MLP. `half_block` reads what the attention of the same block reads, `block` and `two_blocks` what
    the MLP one or two blocks before reads, without gamma and beta. The prediction and what it reads move up to that point; its
    consumer waits for its token, now and when stages are formed. A layer that has no such block before it reads the earliest there is.

    **Results change** for any lookahead but `here`: scores come from an older value of the residual stream. Only a selection with a margin may be
    made from them; for a proof (kappa = 1) this is an error.
    ```mlir
    %m = foresight.layer_norm %r epsilon = 1.0e-05 : ...     // after attention
    %scores, %done = foresight.predict %m, %copy {lookahead = #foresight.lookahead<half_block>} : ...
    // becomes
    %u = foresight.layer_norm %x epsilon = 1.0e-05 : ...     // before it
    %scores, %done = foresight.predict %u, %copy {lookahead = #foresight.lookahead<half_block>} : ...
    ```
  }];
  let dependentDialects = ["::foresight::ForesightDialect"];
}

def ExpandMlpPass : Pass<"foresight-expand-mlp", "mlir::ModuleOp"> {
  let summary = "Split MLPs into their two products";
  let description = [{
    `mlp` becomes `linear` with the activation and `column_linear`; `sparse_mlp` becomes `gather_linear` (`linear` where it has no
    set) and a `column_linear` that skips zeros. The second product needs no set of its own: a neuron outside the set is 0. An
    `activate` whose argument is a `linear` with no other use becomes the activation of that `linear`. Results do not change.
    ```mlir
    %y = foresight.sparse_mlp %x, %w1 <relu> %w2 rows(%set : !foresight.index_set<64 of 64>) {skip_zeros} : ...
    // becomes
    %h = foresight.gather_linear %x, %w1 rows(%set) {activation = #foresight.activation<relu>} : ...
    %y = foresight.column_linear %h, %w2 {skip_zeros} : ...
    ```
  }];
  let dependentDialects = ["::foresight::ForesightDialect"];
}

def FormStagesPass : Pass<"foresight-form-stages", "mlir::ModuleOp"> {
  let summary = "Group the ops of each entry into stages by the target's rules";
  let description = [{
    A stage becomes one kernel. It has one body, a product or attention, with what the target lets it compute before (LayerNorm,
    prediction, selection) and after (activation, residual). Products of the same row share a stage. A LayerNorm with uses in more
    than one stage gets a stage of its own. `target` names the rules; docs/design/overview.md has the table for a CPU. Stages are
    named by what they do in the model (`layers.3.fc1`). Results do not change.
    ```mlir
    %h = foresight.linear %x, %w1 {activation = #foresight.activation<relu>} : tensor<1x16xf32>, tensor<64x16xf16> -> tensor<1x64xf32>
    // becomes
    %h, %done = foresight.stage "layers.0.fc1" (%a = %x : tensor<1x16xf32>, %b = %w1 : tensor<64x16xf16>) -> (tensor<1x64xf32>)
        attributes {role = "fc1", layer = 0 : i64} {
      %0 = foresight.linear %a, %b {activation = #foresight.activation<relu>} : ...
      foresight.yield %0 : tensor<1x64xf32>
    }
    ```
  }];
  let options = [Option<"target", "target", "std::string", /*default=*/"\"cpu\"", "whose rules to follow">];
  let dependentDialects = ["::foresight::ForesightDialect"];
}

def MultiplyByRowsPass : Pass<"foresight-multiply-by-rows", "mlir::ModuleOp"> {
  let summary = "Compute dense second products by rows of the output where the target is faster so";
  let description = [{
    A dense `column_linear` in a stage whose weight is a derived transpose becomes a `linear` with the weight as it was: a product by rows
    needs no sums over many blocks of threads. Only in a module none of whose `column_linear`s leaves rows out, since a weight is stored
    once, neuron-major where rows are left out; and only if `target` asks for it. The order of sums changes, results only by rounding.
    ```mlir
    %y = foresight.column_linear %h, %w : tensor<1x64xf32>, tensor<64x16xf16> -> tensor<1x16xf32>  // %w = @fc2.weight.neuron_major
    // becomes
    %y = foresight.linear %h, %v : tensor<1x64xf32>, tensor<16x64xf16> -> tensor<1x16xf32>         // %v = @fc2.weight
    ```
  }];
  let options = [Option<"target", "target", "std::string", /*default=*/"\"cpu\"", "whose rules to follow">];
  let dependentDialects = ["::foresight::ForesightDialect"];
}

def NarrowRowsPass : Pass<"foresight-narrow-rows", "mlir::ModuleOp"> {
  let summary = "Store rows of a prompt in the 16 bits that all of their readers round to";
  let description = [{
    A library product reads its x rounded to the weight's type, `kv_append` rounds to the cache's, and tensor cores read queries so. Where
    all that read the result of a prompt's stage round it to the same 16 bits, and a LayerNorm, a library product without a residual or an
    attention computes it, it gets that type: rounded once, where it is computed, and half as long on its way. The residual stream stays f32.
    Results do not change but for biases, which the library then adds rounded. Only if `target` asks for it.
    ```mlir
    %h, %t0 = foresight.stage "layers.0.mlp_norm" (...) -> (tensor<?x64xf32>) {...}   // read by fc1, a library product with an f16 weight
    // becomes
    %h, %t0 = foresight.stage "layers.0.mlp_norm" (...) -> (tensor<?x64xf16>) {...}
    ```
  }];
  let options = [Option<"target", "target", "std::string", /*default=*/"\"cpu\"", "whose rules to follow">];
  let dependentDialects = ["::foresight::ForesightDialect"];
}

def SchedulePass : Pass<"foresight-schedule", "mlir::ModuleOp"> {
  let summary = "Order stages and write down what each waits for";
  let description = [{
    Puts the stages of an entry in an order that may be executed as it is and gives each the `after` tokens of the stages that it
    needs: those whose results it reads, and for one that appends to a KV cache those that read the cache as it was. Tokens that
    follow from others are left out. Results do not change.
    ```mlir
    %h, %t0 = foresight.stage "layers.0.fc1" (%a = %x : ...) ...
    %y, %t1 = foresight.stage "layers.0.fc2" (%a = %h : ..., %b = %x : ...) ...
    // becomes
    %h, %t0 = foresight.stage "layers.0.fc1" (%a = %x : ...) ...
    %y, %t1 = foresight.stage "layers.0.fc2" after(%t0) (%a = %h : ..., %b = %x : ...) ...
    ```
  }];
  let dependentDialects = ["::foresight::ForesightDialect"];
}

def OutlineKernelsPass : Pass<"foresight-outline-kernels", "mlir::ModuleOp"> {
  let summary = "Let stages with equal regions share a kernel";
  let description = [{
    Each distinct region, up to locations, becomes a `kernel` named by its role; a stage becomes a `launch` of it. Weights are
    arguments, so the layers of a model share their kernels wherever their shapes are equal. Results do not change.
    ```mlir
    foresight.kernel @decode.fc1(%a: tensor<1x16xf32>, %b: tensor<64x16xf16>) { ... }
    %h, %t0 = foresight.launch "layers.0.fc1" @decode.fc1 (%x, %w1 : ...) outs [] -> (tensor<1x64xf32>) {layer = 0 : i64, role = "fc1"}
    ```
  }];
  let dependentDialects = ["::foresight::ForesightDialect"];
}

def PlanBuffersPass : Pass<"foresight-plan-buffers", "mlir::ModuleOp"> {
  let summary = "Give every value of every entry its memory";
  let description = [{
    Each value gets a `buffer`, named after the stage that makes it; values of the same name in several entries share it. A KV cache
    is one buffer whatever its version. A residual sum overwrites the stream that it adds to when nothing else needs it. Two work
    buffers overlap when in every entry each use of one is ordered, by tokens, before the first write of the other: sharing memory
    never adds a dependence. Rows are padded to a multiple of 32 elements. Nothing is allocated while decoding.
    Results do not change.
    ```mlir
    foresight.buffer @layers.0.fc1.out "work" : tensor<?x64xf32> rows = 512 row_bytes = 256 offset = 0
    %h, %t0 = foresight.launch "layers.0.fc1" @decode.fc1 (%x, %w1 : ...) outs [@layers.0.fc1.out] -> (tensor<1x64xf32>) ...
    ```
  }];
  let options = [Option<"target", "target", "std::string", /*default=*/"\"cpu\"", "whose alignment and padding to follow">];
  let dependentDialects = ["::foresight::ForesightDialect"];
}

def VerifyEntriesPass : Pass<"foresight-verify-entries", "mlir::ModuleOp"> {
  let summary = "Check the contract of the entries phase";
  let description = [{
    `@prefill` and `@decode` are there and `@step` is not; all of `@decode` has static shapes; only `@decode` predicts and selects; every `predict`
    with a low-bit copy reads what its lookahead says, and one that reads anything but the input of its consumer feeds no proof.
    Changes nothing.
  }];
}

def ExplainPass : Pass<"foresight-explain", "mlir::ModuleOp"> {
  let summary = "Say what a scheduled module consists of and why";
  let description = [{
    Prints, to standard error, how each layer is decoded and for what reason if not as asked, the kernels of each entry with their ops and how
    many stages share them, and what memory is planned. `foresight-compile --explain` prints the same. Changes nothing.
  }];
}

def VerifySchedulePass : Pass<"foresight-verify-schedule", "mlir::ModuleOp"> {
  let summary = "Check the contract of the scheduled phase";
  let description = [{
    An entry holds `get_weight`, `launch` and `return` only; every argument, result and launch has its buffers, of the right size;
    tokens order every pair of launches of which one writes memory that the other touches; and each launch reads what its operand's
    producer wrote, nothing later. It knows nothing of how buffers were planned. Changes nothing.
  }];
}

#endif
