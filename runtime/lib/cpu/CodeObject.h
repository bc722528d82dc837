//===- CodeObject.h - The code section of a bundle, loaded ------*- C++ -*-===//
#ifndef FORESIGHT_RUNTIME_CPU_CODEOBJECT_H
#define FORESIGHT_RUNTIME_CPU_CODEOBJECT_H

#include "foresight/abi/Kernel.h"
#include "foresight/runtime/Bundle.h"

#include <string>

namespace foresight::cpu {

/// The variant of `bundle`'s code that runs here: the one named `wanted`, or,
/// if that is empty, the last whose features this CPU has. BadBundle if there
/// is none, Usage if there is no variant `wanted`.
Result<const CodeVariant *> chooseVariant(const Bundle &bundle,
                                          const std::string &wanted);

/// A shared object loaded from memory; unloaded when destroyed. Move-only.
class CodeObject {
public:
  static Result<CodeObject> load(const Bundle &bundle,
                                 const CodeVariant &variant);

  CodeObject() = default;
  CodeObject(CodeObject &&other) noexcept;
  CodeObject &operator=(CodeObject &&other) noexcept;
  ~CodeObject();

  /// The functions of a generated kernel; BadBundle if one is missing.
  struct Functions {
    foresight_prepare_fn prepare = nullptr;
    foresight_body_fn body = nullptr;
  };
  Result<Functions> find(const KernelInfo &kernel) const;

private:
  void *handle = nullptr;
  std::string where;
};

} // namespace foresight::cpu
#endif
