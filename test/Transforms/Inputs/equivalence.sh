#!/bin/sh
# equivalence.sh STEP.mlir DIR: run the passes one by one; after each, compare
# what the module before it and after it compute.
set -eu
dir=$2
cp "$1" "$dir/before.mlir"

# apply PASS: before.mlir to after.mlir
apply() {
  foresight-opt "$dir/before.mlir" "$1" -o "$dir/after.mlir"
}
# same NAME ENTRY ENTRY-AFTER ARGUMENTS...: fail where the two differ
same() {
  name=$1 before=$2 after=$3
  shift 3
  foresight-interpret "$dir/before.mlir" --entry="$before" --seed=1 "$@" \
    --compare="$dir/after.mlir" --compare-entry="$after" --print=0 \
    >"$dir/out" 2>&1 || {
    echo "$name changes what $after computes:" >&2
    cat "$dir/out" >&2
    exit 1
  }
}
prompt() { same "$@" --tokens=6 --positions=0,1,2,3,4,5; }
later() { same "$@" --tokens=1 --positions=9; }
next() { mv "$dir/after.mlir" "$dir/before.mlir"; }

# Types change results by rounding only; what is compared below starts from it.
foresight-opt "$dir/before.mlir" --foresight-set-types -o "$dir/after.mlir"
next
for pass in --foresight-form-mlp --foresight-hoist-last-row; do
  apply $pass
  prompt $pass step step
  later $pass step step
  next
done
apply --foresight-specialize-entries=dense-decode=true
prompt specialize-entries step prefill
later specialize-entries step decode
later specialize-entries step decode_dense
next

# A proof is lossless: every pass keeps what decode computes.
cp "$dir/before.mlir" "$dir/dense.mlir"
for pass in --foresight-sparsify=rule=proof --foresight-fold-norm \
  --foresight-lookahead --foresight-expand-mlp --foresight-form-stages \
  --foresight-schedule --foresight-outline-kernels --foresight-plan-buffers; do
  apply $pass
  prompt $pass prefill prefill
  later $pass decode decode
  later $pass decode_dense decode_dense
  next
done
foresight-opt "$dir/before.mlir" --foresight-verify-schedule -o /dev/null

# Nor does it matter that values live in buffers, some in the same memory, and
# that launches run in any order that their tokens allow.
cp "$dir/dense.mlir" "$dir/after.mlir"
prompt schedule prefill prefill --orders=3
later schedule decode decode --orders=5
later schedule decode_dense decode_dense --orders=5

# For a GPU rows of a prompt are rounded, where all that read them would.
foresight-opt "$dir/dense.mlir" --foresight-expand-mlp --foresight-form-stages=target=cuda -o "$dir/before.mlir"
apply --foresight-narrow-rows=target=cuda
prompt narrow-rows prefill prefill --tolerance=1e-2
foresight-opt "$dir/dense.mlir" --foresight-schedule-pipeline=target=cuda -o "$dir/before.mlir"
cp "$dir/dense.mlir" "$dir/after.mlir"
prompt "schedule for a GPU" prefill prefill --orders=3 --tolerance=1e-2

# Of a batch too: rows of three sequences, each at a place of its own.
foresight-opt "$1" --foresight-prepare-pipeline=max-batch=3 --foresight-entries-pipeline -o "$dir/after.mlir"
for target in cpu cuda; do
  foresight-opt "$dir/after.mlir" --foresight-schedule-pipeline=target=$target -o "$dir/before.mlir"
  same "schedule of a batch for $target" decode_batch decode_batch --tokens=3 \
    --positions=9,2,5 --orders=5 --tolerance=1e-2
done

# So does skipping zeros only. With a margin, and when looking ahead, the passes
# after the choice was made keep what it computes.
for rule in "rule=skip" "rule=margin margin=1 bits=3" \
  "rule=margin lookahead=half_block" "rule=margin lookahead=two_blocks"; do
  cp "$dir/dense.mlir" "$dir/before.mlir"
  apply "--foresight-sparsify=$rule"
  [ "$rule" != "rule=skip" ] || later skip decode decode
  next
  foresight-opt "$dir/before.mlir" --foresight-fold-norm --foresight-lookahead -o "$dir/after.mlir"
  next
  foresight-opt "$dir/before.mlir" --foresight-schedule-pipeline -o "$dir/after.mlir"
  later "schedule with $rule" decode decode
done
