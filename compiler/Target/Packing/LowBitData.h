//===- LowBitData.h - A low-bit copy, made piece by piece -------*- C++ -*-===//
#ifndef FORESIGHT_TARGET_PACKING_LOWBITDATA_H
#define FORESIGHT_TARGET_PACKING_LOWBITDATA_H

#include "WeightData.h"

#include "foresight/lowbit/Pack.h"

#include <array>
#include <atomic>
#include <memory>
#include <optional>
#include <vector>

namespace foresight::packing {

/// What a low-bit copy is made of.
struct LowBitData {
  WeightData weight;
  std::vector<float> bias, gamma, beta, balance; ///< empty: missing
  int64_t rows = 0, columns = 0;
  int bits = 0;

  /// The error bound is derived for rows up to this long.
  static constexpr int64_t kMaxColumns = 16384;

  /// Of a `#foresight.derived<low_bit, ...>`.
  static Result<LowBitData> resolve(Resolver &resolver, WeightOp weight);
  /// Of the symbols of its sources, "none" for what is missing; `bits` is left
  /// to the caller.
  static Result<LowBitData> resolve(Resolver &resolver, llvm::StringRef weight,
                                    llvm::StringRef bias, llvm::StringRef gamma,
                                    llvm::StringRef beta,
                                    llvm::StringRef balance);

  std::string key() const;
  std::vector<std::string> tensorNames() const;

  /// Rounds rows [begin, end) into a record of that many rows.
  Status pack(int64_t begin, int64_t end, std::vector<std::byte> &record) const;

private:
  std::string vectorKeys;
  std::vector<std::string> vectorNames;
};

/// Gives any byte range of one record without holding it: codes are made when
/// they are asked for, and what is known of their rows (scale, bias, error,
/// norm) is kept until it is. Rows whose codes nobody has asked for yet
/// when a range of the latter comes are rounded for that alone, so a caller
/// does well to ask for codes first. Ranges may come from several threads.
class LowBitStream {
public:
  explicit LowBitStream(const LowBitData &data);

  /// Writes bytes [begin, end) of the record.
  Status read(int64_t begin, int64_t end, std::byte *out);
  /// Where the vectors after the codes start.
  int64_t vectorsOffset() const { return layout.scale; }

private:
  Status readCodes(int64_t begin, int64_t end, std::byte *out);
  Status makeRows(int64_t begin, int64_t end, std::vector<std::byte> &record);

  const LowBitData &data;
  lowbit::Record layout;
  std::array<std::vector<float>, 2> singles;   ///< scale, bias
  std::array<std::vector<uint16_t>, 2> halves; ///< error, norm
  std::unique_ptr<std::atomic<bool>[]> ready;
};

} // namespace foresight::packing
#endif
