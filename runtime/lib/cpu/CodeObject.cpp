//===- CodeObject.cpp - The code section of a bundle, loaded --------------===//
#include "CodeObject.h"

#include "foresight/runtime/CpuDevice.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include <dlfcn.h>
#include <sys/mman.h>
#include <unistd.h>

namespace foresight::cpu {

Result<const CodeVariant *> chooseVariant(const Bundle &bundle,
                                          const std::string &wanted) {
  const std::vector<std::string> present = cpuFeatures();
  const Manifest &manifest = bundle.manifest();
  const CodeVariant *best = nullptr;
  std::string missing, names;
  for (const CodeVariant &variant : manifest.variants) {
    names += (names.empty() ? "" : ", ") + variant.name;
    if (!wanted.empty() && variant.name != wanted)
      continue;
    std::string lacks;
    for (const std::string &feature : variant.features)
      if (std::find(present.begin(), present.end(), feature) == present.end())
        lacks += (lacks.empty() ? "" : ", ") + feature;
    if (lacks.empty())
      best = &variant;
    else
      missing += "\n  note: '" + variant.name + "' needs " + lacks;
  }
  if (best)
    return best;
  if (!wanted.empty() && missing.empty())
    return makeError(ErrorCode::Usage, bundle.path(), ": has no code variant '",
                     wanted, "'; it has ", names);
  return makeError(ErrorCode::BadBundle, bundle.path(),
                   ": has no code for this CPU (", cpuName(),
                   "); compile the model with --target=cpu:x86-64-v3 or on "
                   "this machine with --target=cpu:native",
                   missing);
}

Result<CodeObject> CodeObject::load(const Bundle &bundle,
                                    const CodeVariant &variant) {
  const std::string where = bundle.path() + ": code '" + variant.name + "'";
  std::span<const std::byte> code =
      bundle.section(bundle::SectionKind::kCode, variant.name);
  if (code.empty())
    return makeError(ErrorCode::BadBundle, where, " is missing");
  const int file = memfd_create(variant.name.c_str(), MFD_CLOEXEC);
  if (file < 0)
    return makeError(ErrorCode::Resource, where,
                     ": no memory to load it: ", std::strerror(errno));
  while (!code.empty()) {
    const ssize_t count = ::write(file, code.data(), code.size());
    if (count < 0 && errno == EINTR)
      continue;
    if (count <= 0) {
      const int reason = errno;
      ::close(file);
      return makeError(ErrorCode::Resource, where,
                       ": no memory to load it: ", std::strerror(reason));
    }
    code = code.subspan(static_cast<size_t>(count));
  }
  CodeObject object;
  object.where = where;
  object.handle = dlopen(("/proc/self/fd/" + std::to_string(file)).c_str(),
                         RTLD_NOW | RTLD_LOCAL);
  ::close(file);
  if (!object.handle) {
    const char *reason = dlerror();
    return makeError(ErrorCode::BadBundle, where, ": cannot be loaded: ",
                     reason ? reason : "unknown reason");
  }
  return object;
}

CodeObject::CodeObject(CodeObject &&other) noexcept
    : handle(std::exchange(other.handle, nullptr)),
      where(std::move(other.where)) {}

CodeObject &CodeObject::operator=(CodeObject &&other) noexcept {
  std::swap(handle, other.handle);
  std::swap(where, other.where);
  return *this;
}

CodeObject::~CodeObject() {
  if (handle)
    dlclose(handle);
}

Result<CodeObject::Functions> CodeObject::find(const KernelInfo &kernel) const {
  Functions functions;
  const auto missing = [&](const std::string &name) {
    return makeError(ErrorCode::BadBundle, where, ": has no function '", name,
                     "'");
  };
  const std::string body = kernel.name + ".body",
                    prepare = kernel.name + ".prepare";
  functions.body =
      reinterpret_cast<foresight_body_fn>(dlsym(handle, body.c_str()));
  if (!functions.body)
    return missing(body);
  if (kernel.hasPrepare) {
    functions.prepare =
        reinterpret_cast<foresight_prepare_fn>(dlsym(handle, prepare.c_str()));
    if (!functions.prepare)
      return missing(prepare);
  }
  return functions;
}

} // namespace foresight::cpu
