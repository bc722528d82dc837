//===- LinkSharedObject.cpp - One object to a shared object, by lld -------===//

#include "foresight/Target/Cpu/CpuTarget.h"

#include "mlir/IR/Diagnostics.h"

#include "lld/Common/Driver.h"
#include "llvm/ADT/ScopeExit.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/raw_ostream.h"

#include <mutex>

LLD_HAS_DRIVER(elf)

using namespace mlir;
using namespace foresight;

LogicalResult foresight::linkSharedObject(ArrayRef<char> object, Location loc,
                                          SmallVectorImpl<char> &out) {
  // lld keeps state in globals, and reads and writes files only.
  static std::mutex mutex;
  std::lock_guard lock(mutex);

  SmallString<128> input, output;
  auto fail = [&](StringRef what, std::error_code code) {
    return emitError(loc) << "cannot link: " << what << ": " << code.message();
  };
  int descriptor;
  if (auto code = llvm::sys::fs::createTemporaryFile("foresight", "o",
                                                     descriptor, input))
    return fail("temporary file", code);
  llvm::scope_exit removeInput([&] { (void)llvm::sys::fs::remove(input); });
  {
    llvm::raw_fd_ostream os(descriptor, /*shouldClose=*/true);
    os.write(object.data(), object.size());
    os.flush();
    if (os.has_error()) {
      std::error_code code = os.error();
      os.clear_error();
      return fail(input, code);
    }
  }
  if (auto code = llvm::sys::fs::createTemporaryFile("foresight", "so", output))
    return fail("temporary file", code);
  llvm::scope_exit removeOutput([&] { (void)llvm::sys::fs::remove(output); });

  // 4096-byte pages and separate segments let the runtime map text as it lies.
  const char *arguments[] = {
      "ld.lld",       "-shared",           "-z",
      "defs",         "--no-undefined",    "--gc-sections",
      "--strip-all",  "--hash-style=gnu",  "--build-id=none",
      "-soname",      "foresight-kernels", "-o",
      output.c_str(), input.c_str()};
  std::string messages;
  llvm::raw_string_ostream os(messages);
  lld::Result result =
      lld::lldMain(arguments, os, os, {{lld::Gnu, &lld::elf::link}});
  if (result.retCode != 0)
    return emitError(loc) << "cannot link the generated code: " << messages;

  auto linked = llvm::MemoryBuffer::getFile(output);
  if (!linked)
    return fail(output, linked.getError());
  out.assign((*linked)->getBufferStart(), (*linked)->getBufferEnd());
  return success();
}
