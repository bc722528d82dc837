/*===- Kernel.h - How compiled stages are called ------------------*- C -*-===*\
|*
|* Every distinct stage of a bundle is one pair of functions in its code object,
|* `NAME.prepare` (may be absent) and `NAME.body`. The runtime runs a stage so:
|*
|*   1. each worker that takes part calls `prepare` once, with scratch memory of
|*      its own: what every worker needs and is cheaper to compute again than to
|*      wait for (LayerNorm of one row, quantising it, listing what is not
|*      zero);
|*   2. workers claim ranges of units with an atomic counter and call `body` on
|*      them until none is left.
|*
|* A unit (a block of weight rows, a head, a segment of a sum) is computed the
|* same way whoever claims it and however units are cut into ranges: results do
|* not depend on the number of workers or on their timing.
|*
|* Memory: buffers hold `T` rows, one a token; a row is padded to a multiple of
|* FORESIGHT_ROW_PAD elements; token ids and positions (int32, one a row) lie
|* densely. Padding is zero when memory is allocated and code
|* never writes anything but zero there. Weights are laid out by the rules in
|* BundleFormat.h. Base addresses are 64-byte aligned.
\*===----------------------------------------------------------------------===*/
#ifndef FORESIGHT_ABI_KERNEL_H
#define FORESIGHT_ABI_KERNEL_H

#include <stdint.h>

#define FORESIGHT_ROW_PAD 32
#define FORESIGHT_ALIGNMENT 64

#ifdef __cplusplus
extern "C" {
#endif

/** What changes from call to call. Layout is part of the ABI. */
typedef struct foresight_step {
  int64_t tokens;   /**< rows T in this call */
  int64_t position; /**< position of row 0 in its sequence; row t is at position
                       + t */
} foresight_step;

/** `args`: one pointer an argument of the kernel, then one a result, then (if
 *  the kernel needs it) one to memory that the workers share, zero when it is
 *  allocated and kept from call to call, then (if the stage counts) one to
 * int32 counters, one a unit. Each call must run every unit once. `scratch`:
 * the stage's scratch_bytes, 64-byte aligned, the caller's own, kept from
 * prepare to body. */
typedef void (*foresight_prepare_fn)(void *const *args,
                                     const foresight_step *step, void *scratch);
typedef void (*foresight_body_fn)(void *const *args, const foresight_step *step,
                                  void *scratch, int64_t begin, int64_t end);

#ifdef __cplusplus
}
#endif
#endif
