//===- TargetInfo.h - What transforms ask a target --------------*- C++ -*-===//
//
// A transform asks the target about the work in front of it and never what the
// target is called.
//
//===----------------------------------------------------------------------===//
#ifndef FORESIGHT_TARGET_TARGETINFO_H
#define FORESIGHT_TARGET_TARGETINFO_H

#include "llvm/ADT/StringRef.h"

#include <cstdint>
#include <memory>

namespace foresight {

/// How many token rows a stage works on: one while decoding and in the head,
/// few in a batch of sequences, where the target tells it from many, as in a
/// prompt.
enum class RowCount { One, Few, Many };

class TargetInfo {
public:
  virtual ~TargetInfo();

  virtual llvm::StringRef getName() const = 0;
  /// The library that computes a product of so many rows; empty: generated
  /// code.
  virtual llvm::StringRef productLibrary(RowCount rows) const = 0;
  /// Whether every worker computes a LayerNorm again that only one stage reads.
  virtual bool recomputesNorm(RowCount rows) const = 0;
  /// Whether products of the same input are one stage.
  virtual bool groupsProducts(RowCount rows) const = 0;
  /// Whether rows of a prompt are stored rounded to the 16 bits that products,
  /// caches and attention read them with.
  virtual bool narrowsPromptRows() const = 0;
  /// Rows of a batch up to which products of them by 16-bit weights, by rows of
  /// the output, are generated code. 0: a batch is computed as a prompt is.
  virtual int64_t mostFewRows() const = 0;
  /// Most prompt tokens of one call: memory for rows grows with them.
  virtual int64_t promptTokens() const = 0;
  /// Whether attention also writes the keys and values of its tokens.
  virtual bool appendsInAttention(RowCount rows) const = 0;
  /// Whether what is predicted from attention's input, or from what lies before
  /// it, is predicted and selected beside attention. The set leaves its stage.
  virtual bool predictsBesideAttention() const = 0;
  /// Whether a product that uses all of its inputs is faster by rows of the
  /// output than by rows of the input.
  virtual bool multipliesByRows() const = 0;
  /// Elements that a row of a buffer is padded to a multiple of.
  virtual int64_t rowPadElements() const = 0;
  /// Bytes that a buffer's address is a multiple of.
  virtual int64_t alignment() const = 0;
};

/// The rules of a target by name ("cpu"), or null.
std::unique_ptr<TargetInfo> createTargetInfo(llvm::StringRef name);

} // namespace foresight

#endif // FORESIGHT_TARGET_TARGETINFO_H
