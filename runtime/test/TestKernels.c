/*===- TestKernels.c - Stages of a made-up model
----------------------------===*\
|*
|* What the compiler generates, written by hand for tests of devices: compiled
|* to a shared object that becomes the code section of a test bundle. No model
|* that anyone trains computes this; every value can be predicted by a few lines
|* in a test.
|*
\*===------------------------------------------------------------------------===*/
#include "foresight/abi/Kernel.h"

/* Test buffers have rows of this many elements. */
enum { kRow = 64, kChain = 97 };

#define NAMED(name) __asm__(name)

/* ids, positions, table[vocab, 64] -> x: x[t, c] = table[id, c] + position. */
void embed(void *const *args, const foresight_step *step, void *scratch,
           int64_t begin, int64_t end) NAMED("embed.body");
void embed(void *const *args, const foresight_step *step, void *scratch,
           int64_t begin, int64_t end) {
  const int32_t *ids = args[0], *positions = args[1];
  const float *table = args[2];
  float *x = args[3];
  for (int64_t t = begin; t < end; ++t)
    for (int c = 0; c < kRow; ++c)
      x[t * kRow + c] = table[ids[t] * kRow + c] + (float)positions[t];
}

/* x, weight[64] -> y, counts. `prepare` sums the row; unit u is column u:
   y[u] = x[u] + sum * weight[u], and it says that it read u + 1 more. */
void mixPrepare(void *const *args, const foresight_step *step, void *scratch)
    NAMED("mix.prepare");
void mixPrepare(void *const *args, const foresight_step *step, void *scratch) {
  const float *x = args[0];
  float sum = 0;
  for (int c = 0; c < kRow; ++c)
    sum += x[c];
  *(float *)scratch = sum;
}
void mix(void *const *args, const foresight_step *step, void *scratch,
         int64_t begin, int64_t end) NAMED("mix.body");
void mix(void *const *args, const foresight_step *step, void *scratch,
         int64_t begin, int64_t end) {
  const float *x = args[0], *weight = args[1];
  float *y = args[2];
  int32_t *counts = args[3];
  for (int64_t u = begin; u < end; ++u) {
    y[u] = x[u] + *(const float *)scratch * weight[u];
    counts[u] = (int32_t)u + 1;
  }
}

/* x, weight[64] -> y: mix without counters. */
void mixDense(void *const *args, const foresight_step *step, void *scratch,
              int64_t begin, int64_t end) NAMED("mix_dense.body");
void mixDense(void *const *args, const foresight_step *step, void *scratch,
              int64_t begin, int64_t end) {
  const float *x = args[0], *weight = args[1];
  float *y = args[2];
  float sum = 0;
  for (int c = 0; c < kRow; ++c)
    sum += x[c];
  for (int64_t u = begin; u < end; ++u)
    y[u] = x[u] + sum * weight[u];
}

/* memory -> memory: the state counts how often each unit ran. */
void tick(void *const *args, const foresight_step *step, void *scratch,
          int64_t begin, int64_t end) NAMED("tick.body");
void tick(void *const *args, const foresight_step *step, void *scratch,
          int64_t begin, int64_t end) {
  float *memory = args[0];
  for (int64_t u = begin; u < end; ++u)
    memory[u] += 1;
}

/* a -> b: unit u needs another unit of the stage before. */
void chain(void *const *args, const foresight_step *step, void *scratch,
           int64_t begin, int64_t end) NAMED("chain.body");
void chain(void *const *args, const foresight_step *step, void *scratch,
           int64_t begin, int64_t end) {
  const float *a = args[0];
  float *b = args[1];
  for (int64_t u = begin; u < end; ++u)
    b[u] = a[(u * 7 + 3) % kChain] + 1;
}

/* y, memory -> logits: logits[v] = (y[v] + memory[v]) of the last row. */
void head(void *const *args, const foresight_step *step, void *scratch,
          int64_t begin, int64_t end) NAMED("head.body");
void head(void *const *args, const foresight_step *step, void *scratch,
          int64_t begin, int64_t end) {
  const float *y = (const float *)args[0] + (step->tokens - 1) * kRow;
  const float *memory = args[1];
  float *logits = args[2];
  for (int64_t v = begin; v < end; ++v)
    logits[v] = y[v] + memory[v];
}
