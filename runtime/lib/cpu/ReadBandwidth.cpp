//===- ReadBandwidth.cpp - How fast this machine reads --------------------===//
#include "foresight/runtime/CpuDevice.h"

#include "HugeMemory.h"
#include "Machine.h"
#include "ThreadPool.h"

#include <algorithm>
#include <chrono>
#include <cstring>

namespace foresight {
namespace {

/// What a thread claims at a time; large enough for prefetchers to settle.
constexpr int64_t kPiece = int64_t(1) << 20;

typedef long long Vector __attribute__((vector_size(32)));

/// A thread reads a piece as so many streams: hardware fetches each ahead, and
/// one alone does not keep memory busy (0.85 of four on Zen 3).
constexpr int64_t kStreams = 4;

/// Sums pieces. The sum goes to where the compiler cannot tell that nobody
/// reads it.
void readPieces(void *const *args, const foresight_step *, void *scratch,
                int64_t begin, int64_t end) {
  constexpr int64_t kStream = kPiece / kStreams;
  constexpr int64_t kLine = 64 / int64_t(sizeof(Vector));
  Vector sums[kStreams * kLine] = {};
  for (int64_t piece = begin; piece < end; ++piece) {
    const auto *from = reinterpret_cast<const Vector *>(
        static_cast<const std::byte *>(args[0]) + piece * kPiece);
    for (int64_t k = 0; k < kStream / int64_t(sizeof(Vector)); k += kLine)
      for (int64_t s = 0; s < kStreams; ++s)
        for (int64_t i = 0; i < kLine; ++i)
          sums[s * kLine + i] ^=
              from[s * (kStream / int64_t(sizeof(Vector))) + k + i];
  }
  for (int64_t i = 1; i < kStreams * kLine; ++i)
    sums[0] ^= sums[i];
  *static_cast<volatile long long *>(scratch) =
      sums[0][0] ^ sums[0][1] ^ sums[0][2] ^ sums[0][3];
}

} // namespace

Result<ReadBandwidth> measureReadBandwidth(int threads, int64_t bufferBytes,
                                           int passes) {
  if (threads < 0 || bufferBytes < kPiece || passes < 1)
    return makeError(ErrorCode::Usage,
                     "the read bandwidth is measured on at "
                     "least ",
                     kPiece, " bytes in at least one pass");
  ReadBandwidth result;
  result.threads = threads > 0 ? threads : availableThreads();
  const int64_t pieces = bufferBytes / kPiece;
  result.bufferBytes = pieces * kPiece;
  FORESIGHT_TRY(cpu::HugeMemory memory,
                cpu::HugeMemory::allocate(result.bufferBytes));
  // Pages that were never written would all be the one zero page.
  std::memset(memory.data(), 1, static_cast<size_t>(result.bufferBytes));
  cpu::ThreadPool pool(result.threads);
  FORESIGHT_CHECK(pool.reserveScratch(64));
  void *const args[] = {memory.data()};
  const cpu::Task task{
      .body = readPieces, .args = args, .units = static_cast<uint32_t>(pieces)};
  for (int pass = 0; pass < passes; ++pass) {
    const auto start = std::chrono::steady_clock::now();
    pool.run({&task, 1}, {});
    const std::chrono::duration<double> seconds =
        std::chrono::steady_clock::now() - start;
    result.bytesPerSecond =
        std::max(result.bytesPerSecond,
                 static_cast<double>(result.bufferBytes) / seconds.count());
  }
  return result;
}

} // namespace foresight
