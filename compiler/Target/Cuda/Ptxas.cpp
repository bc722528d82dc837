//===- Ptxas.cpp - PTX through CUDA's assembler ---------------------------===//

#include "foresight/Target/Cuda/CudaTarget.h"

#include "llvm/ADT/ScopeExit.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/Program.h"
#include "llvm/Support/raw_ostream.h"

#include <cstdlib>

using namespace mlir;
using namespace foresight;

std::string foresight::findPtxas() {
  SmallVector<std::string> folders;
  if (const char *home = std::getenv("CUDA_HOME"))
    folders.push_back(std::string(home) + "/bin");
  for (const std::string &folder : folders)
    if (auto found = llvm::sys::findProgramByName("ptxas", {folder}))
      return *found;
  if (auto found = llvm::sys::findProgramByName("ptxas"))
    return *found;
  if (auto found =
          llvm::sys::findProgramByName("ptxas", {"/usr/local/cuda/bin"}))
    return *found;
  return "";
}

/// "ptxas info    : Used 40 registers, ..." and the line before it, for each
/// entry.
static std::vector<PtxasEntry> parseEntries(StringRef text) {
  std::vector<PtxasEntry> entries;
  SmallVector<StringRef> lines;
  text.split(lines, '\n');
  auto numberBefore = [](StringRef line, StringRef word) -> int64_t {
    size_t at = line.find(word);
    if (at == StringRef::npos)
      return 0;
    StringRef digits = line.take_front(at).rtrim();
    size_t start = digits.find_last_not_of("0123456789");
    int64_t value = 0;
    (void)digits.substr(start + 1).getAsInteger(10, value);
    return value;
  };
  for (StringRef line : lines) {
    size_t at = line.find("Compiling entry function '");
    if (at != StringRef::npos) {
      StringRef name = line.substr(at).split('\'').second;
      entries.push_back({name.split('\'').first.str()});
    } else if (!entries.empty()) {
      if (line.contains("bytes stack frame")) {
        entries.back().stackBytes = numberBefore(line, " bytes stack frame");
        entries.back().spillBytes = numberBefore(line, " bytes spill stores") +
                                    numberBefore(line, " bytes spill loads");
      } else if (line.contains("registers")) {
        entries.back().registers = numberBefore(line, " registers");
      }
    }
  }
  return entries;
}

FailureOr<PtxasResult> foresight::assemblePtx(StringRef ptxas, StringRef ptx,
                                              const CudaVariant &variant,
                                              std::string &error) {
  SmallString<128> input, output, messages;
  int descriptor;
  if (auto code = llvm::sys::fs::createTemporaryFile("foresight", "ptx",
                                                     descriptor, input)) {
    error = "temporary file: " + code.message();
    return failure();
  }
  llvm::scope_exit removeInput([&] { (void)llvm::sys::fs::remove(input); });
  {
    llvm::raw_fd_ostream os(descriptor, /*shouldClose=*/true);
    os << ptx;
  }
  if (llvm::sys::fs::createTemporaryFile("foresight", "cubin", output) ||
      llvm::sys::fs::createTemporaryFile("foresight", "log", messages)) {
    error = "temporary file";
    return failure();
  }
  llvm::scope_exit removeOutputs([&] {
    (void)llvm::sys::fs::remove(output);
    (void)llvm::sys::fs::remove(messages);
  });
  std::string arch = "-arch=" + variant.name;
  StringRef arguments[] = {ptxas, arch, "-v", input, "-o", output};
  std::optional<StringRef> redirects[] = {StringRef(), messages.str(),
                                          messages.str()};
  int status = llvm::sys::ExecuteAndWait(ptxas, arguments, std::nullopt,
                                         redirects, /*SecondsToWait=*/300);
  auto log = llvm::MemoryBuffer::getFile(messages);
  std::string text = log ? (*log)->getBuffer().str() : "";
  if (status != 0) {
    error = text;
    return failure();
  }
  PtxasResult result;
  result.entries = parseEntries(text);
  auto cubin = llvm::MemoryBuffer::getFile(output);
  if (!cubin) {
    error = cubin.getError().message();
    return failure();
  }
  result.cubin.assign((*cubin)->getBufferStart(), (*cubin)->getBufferEnd());
  return result;
}
