//===- Oracle.h - A scheduled module, executed in f64 -----------*- C++ -*-===//
//
// Apart from Model.h: the dialect and the runtime, which knows nothing of it,
// have names in common.
//
//===----------------------------------------------------------------------===//
#ifndef FORESIGHT_TEST_ENDTOEND_ORACLE_H
#define FORESIGHT_TEST_ENDTOEND_ORACLE_H

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace foresight::test {

/// One sequence, computed by the interpreter. What fails throws.
class Oracle {
public:
  /// `scheduled` is the text of a scheduled module.
  explicit Oracle(const std::string &scheduled);
  ~Oracle();

  /// Runs an entry on the next tokens and returns the logits of the last.
  std::vector<double> run(const std::string &entry, std::vector<int32_t> ids);

private:
  struct Impl;
  std::unique_ptr<Impl> impl;
};

} // namespace foresight::test
#endif
