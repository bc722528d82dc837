//===- PackBench.cpp - How fast rows are rounded and packed ---------------===//

#include "foresight/lowbit/Pack.h"

#include <cstdio>
#include <ctime>
#include <random>
#include <vector>

using namespace foresight::lowbit;

/// Packs rows of a matrix as wide as opt-1.3b's fc1, on one core, and prints
/// processor time a weight for each number of bits.
int main() {
  constexpr int64_t kRows = 2000, kColumns = 2048;
  std::mt19937 engine(1);
  std::normal_distribution<float> normal;
  std::vector<float> weight(kColumns);
  for (float &w : weight)
    w = normal(engine);
  const std::vector<float> gamma(kColumns, 1.1f), beta(kColumns, 0.1f);
  std::printf("bits  ns/weight  error/norm\n");
  for (int bits = 2; bits <= 8; ++bits) {
    std::vector<std::byte> bytes(record(kRows, kColumns, bits).bytes);
    const Packer packer(kRows, kColumns, bits, gamma, beta, bytes);
    const std::clock_t start = std::clock();
    for (int64_t i = 0; i < kRows; ++i)
      packer.pack(i, weight, 0);
    const double seconds =
        static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
    const RecordView view(bytes.data(), kRows, kColumns, bits);
    std::printf("%4d  %9.1f  %10.4f\n", bits,
                1e9 * seconds / (kRows * kColumns),
                view.error(0) / view.norm(0));
  }
}
