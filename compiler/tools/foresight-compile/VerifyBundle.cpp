//===- VerifyBundle.cpp - The bundle against a reference ------------------===//
//
// `foresight verify` runs the bundle and compares: what is verified is what is
// shipped, through the runtime that ships it.
//
//===----------------------------------------------------------------------===//

#include "Compile.h"

#include "llvm/Support/FileSystem.h"
#include "llvm/Support/FileUtilities.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Program.h"

#include <filesystem>

using namespace foresight;
namespace fs = std::filesystem;

std::string Compilation::runtimePath() const {
  return fs::path(program).parent_path() / "foresight";
}

Status Compilation::checkRuntime() const {
  std::error_code ignored;
  if (fs::exists(runtimePath(), ignored))
    return {};
  return makeError(ErrorCode::BadInput, runtimePath(),
                   ": this program, which --emit=exe copies and --verify runs, "
                   "is not there; build the target foresight");
}

/// What a tool printed as its error, without its own name in front.
static std::string errorIn(llvm::StringRef printed) {
  const llvm::StringRef mark = "foresight: error: ";
  size_t at = printed.find(mark);
  if (at != llvm::StringRef::npos)
    printed = printed.drop_front(at + mark.size());
  return printed.rtrim().str();
}

Status Compilation::verifyBundle() {
  progress.phase("verify", options.verify);
  // What it has found is for stdout; its error becomes ours.
  llvm::SmallString<128> errors;
  if (std::error_code error =
          llvm::sys::fs::createTemporaryFile("foresight", "txt", errors))
    return makeError(ErrorCode::Resource,
                     "cannot make a temporary file: ", error.message());
  llvm::FileRemover remover(errors);
  std::string runtime = runtimePath(),
              expected = "--expected=" + options.verify;
  bool executable = options.emit == Emit::Exe;
  std::string itself = fs::absolute(options.output);
  std::vector<llvm::StringRef> arguments = {executable ? itself : runtime,
                                            "verify"};
  if (!executable)
    arguments.push_back(options.output);
  arguments.push_back(expected);
  std::string why;
  int code = llvm::sys::ExecuteAndWait(
      arguments.front(), arguments, /*Env=*/std::nullopt,
      {std::nullopt, std::nullopt, llvm::StringRef(errors)},
      /*SecondsToWait=*/0, /*MemoryLimit=*/0, &why);
  if (code == 0)
    return {};
  if (code < 0)
    return makeError(ErrorCode::Internal, options.output,
                     ": foresight verify ended early: ", why);
  auto text = llvm::MemoryBuffer::getFile(errors);
  return Error{static_cast<ErrorCode>(code),
               text ? errorIn((*text)->getBuffer()) : "verify failed"};
}
