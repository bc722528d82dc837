//===- Model.h - A bundle ready to run --------------------------*- C++ -*-===//
#ifndef FORESIGHT_TOOLS_MODEL_H
#define FORESIGHT_TOOLS_MODEL_H

#include "Args.h"

#include "foresight/runtime/Bundle.h"
#include "foresight/runtime/CpuDevice.h"
#include "foresight/runtime/CudaDevice.h"
#include "foresight/runtime/Device.h"
#include "foresight/runtime/Session.h"
#include "foresight/text/Tokenizer.h"

#include <memory>
#include <optional>

namespace foresight::tools {

/// More than a machine has, and few enough to start.
constexpr int64_t kMostThreads = 1024;

/// What every output about a bundle of made-up weights says.
constexpr const char *kSyntheticNote = "synthetic weights: speed only";

/// --threads, --weights, --variant, --gemm.
extern const std::vector<OptionSpec> kDeviceOptions;
std::vector<OptionSpec> withDeviceOptions(std::vector<OptionSpec> options);

/// Members point at each other: not copied, moved only as a whole.
struct Model {
  std::unique_ptr<Bundle> bundle;
  std::unique_ptr<Device> device;
  std::unique_ptr<Program> program;
  std::unique_ptr<Session> session;

  const Manifest &manifest() const { return bundle->manifest(); }
  bool isSparse() const { return !manifest().selections.empty(); }
  /// BadBundle if the bundle carries no tokenizer.
  Result<text::Tokenizer> tokenizer() const;
};

/// The bundle that the command line names, or the one behind this executable.
Result<std::string> bundlePath(const Args &args);
/// Opens it and nothing more.
Result<std::unique_ptr<Bundle>> openBundle(const Args &args);
/// Opens it, says so on stderr if it is synthetic, and makes a session.
/// `measure`: what is loaded tells how fast that was.
Result<Model> loadModel(const Args &args, bool measure = false);

/// Fails where `path`, the value of `option`, cannot be written, or is one of
/// `inputs`.
Status checkOutput(std::string_view option, const std::string &path,
                   std::initializer_list<std::string> inputs);

/// Reads a whole text file; "-" is standard input.
Result<std::string> readTextFile(const std::string &path);

/// How a text becomes the token sequence that `eval` and `calibrate` read.
enum class TextSplit {
  None,      ///< one document
  Paragraphs ///< one document between any two blank lines
};
/// Special tokens in front of every document. Usage if there are fewer than
/// two tokens.
Result<std::vector<int32_t>> encodeText(const text::Tokenizer &tokenizer,
                                        const std::string &text,
                                        TextSplit split,
                                        const std::string &source);

/// Resource if standard output could not be written.
Status flushOutput();

} // namespace foresight::tools
#endif
