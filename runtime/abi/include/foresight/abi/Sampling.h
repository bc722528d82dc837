/*===- Sampling.h - How a token is drawn, on every device ---------*- C -*-===*\
|*
|* The CPU's sampler and the kernels of a GPU draw the same token from the same
|* logits, options and number of the token, whatever order they add up in:
|*
|*   1. Tokens are ordered by their logits, the largest first; of equal logits
|*      the lower id comes first, and -0 equals 0.
|*   2. The weight of a token is 2^x in units of 2^-40, cut off, as an integer;
|*      x = (logit - largest) * scale, scale = log2(e) / temperature. It is
|*      computed in f32, every operation rounded by itself:
|*          n = x rounded to an integer, to even     f = x - n
|*          p = ((c6 f + c5) f + ... + c1) f + 1     2^x = p * 2^n
|*      and is 0 where x < -41. Sums of integers have no order.
|*   3. top-k: only the first k tokens take part; `total` is the sum of their
|*      weights. top-p: of these only the first whose sum is above
|*      p * total, and those before it; `total` is then their sum.
|*   4. The token is the first whose sum with those before it is above
|*      r * total / 2^64, r being number `index` of the sequence of the seed
|*      (foresight/sampling/Random.h). Products are cut off to integers.
|*
\*===----------------------------------------------------------------------===*/
#ifndef FORESIGHT_ABI_SAMPLING_H
#define FORESIGHT_ABI_SAMPLING_H

#include <stdint.h>

/** Below this power of two a weight is 0. */
#define FORESIGHT_LEAST_POWER (-41.0f)
/** One, as a weight. */
#define FORESIGHT_WEIGHT_ONE 0x1p40f
/** c1 .. c6: ln(2)^k / k!. The weight is right to 2^-22 of itself. */
#define FORESIGHT_POWER_TERMS                                                  \
  {0x1.62e43p-1f,  0x1.ebfbep-3f,   0x1.c6b08ep-5f,                            \
   0x1.3b2ab6p-7f, 0x1.5d87fep-10f, 0x1.430912p-13f}
/** x + this is x rounded to an integer, in the low bits. */
#define FORESIGHT_ROUNDER 0x1.8p23f

#ifdef __cplusplus
extern "C" {
#endif

/** Options, as numbers that kernels use. Layout is part of the ABI. */
typedef struct foresight_sampling {
  uint64_t seed;
  uint64_t share; /**< top-p in units of 2^-64; 0: all tokens */
  int64_t kept;   /**< top-k; 0: all tokens */
  float scale;    /**< log2(e) / temperature; 0: the largest logit */
  uint32_t unused;
  /** Address of int32 ids that are fed instead of the tokens picked, one a
   * token, or 0. */
  uint64_t forced;
} foresight_sampling;

/** What a GPU tells the host of one token. */
typedef struct foresight_token {
  uint64_t word;  /**< (number of the token + 1) << 32 | id; id -1: a logit was
                     no number. Written last. */
  uint64_t begun; /**< when its kernels started, ns; 0: not measured */
  uint64_t ended; /**< when it was written, ns */
  uint64_t unused;
} foresight_token;

/** Bins of a search for the token at which a sum is reached. */
#define FORESIGHT_SEARCH_BINS 2048

/** What the kernels that pick a token keep of a sequence. All zero but `index`
 *  and `position` before the first token. */
typedef struct foresight_pick_state {
  uint64_t best;    /**< order << 32 | ~id of the largest logit so far */
  uint32_t arrived; /**< blocks that are done */
  uint32_t damaged; /**< not 0: a logit is NaN or +infinity */
  int64_t index;    /**< number of the token in its text */
  int64_t position; /**< where it will stand in the sequence */
  uint64_t begun;
  uint64_t weights[FORESIGHT_SEARCH_BINS];
  uint32_t counts[FORESIGHT_SEARCH_BINS];
} foresight_pick_state;

/* Entries in a GPU's code. All but the last take
 *   (logits, states, sampling, ids, positions, step, tokens,
 *    vocabulary, bytes of a row of logits, blocks of a row, slots)
 * the first seven being addresses: f32 rows of logits, one state a row, one
 * foresight_sampling, where the next step reads ids (int32), positions (int32)
 * and foresight_step, and rows of `slots` foresight_token that token n of a
 * text is written to slot n % slots of; then int64 numbers. A launch has rows *
 * blocks blocks. */

/** Finds the largest logit; where that is the token, does what is left to do.*/
#define FORESIGHT_PICK_LARGEST "foresight_pick_largest"
/** Behind it, where a token is drawn. */
#define FORESIGHT_PICK_DRAWN "foresight_pick_drawn"
/** (state): notes the time. */
#define FORESIGHT_PICK_BEGIN "foresight_pick_begin"
/** Threads of a block, its shared memory, and logits it takes at once. */
#define FORESIGHT_PICK_THREADS 1024
#define FORESIGHT_PICK_SHARED 45056
#define FORESIGHT_PICK_TILE 8192

#ifdef __cplusplus
}
#endif
#endif
