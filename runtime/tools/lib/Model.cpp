//===- Model.cpp - A bundle ready to run ----------------------------------===//
#include "Model.h"

#include "foresight/support/AtomicFile.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>

namespace foresight::tools {

/// Stops a device that never ends.
static constexpr size_t kLongestText = size_t{1} << 30;

const std::vector<OptionSpec> kDeviceOptions = {
    {"device", "cpu|cuda[:N]",
     "where to run; N counts GPUs from 0 (default: what the\nbundle is for)"},
    {"overlap", "on|off",
     "on a GPU, start kernels while those before them end\n(default: on)"},
    {"threads", "N", "threads to use (default: as many as the process may)"},
    {"weights", "auto|copy|map",
     "copy weights into huge pages, or use the file's own\n"
     "pages (default: copy where memory allows)"},
    {"variant", "NAME",
     "code variant, e.g. x86-64-v3 (default: the best for\n"
     "this CPU; see foresight inspect)"},
    {"gemm", "own|onednn", "engine of the prompt's matrix products"},
};

std::vector<OptionSpec> withDeviceOptions(std::vector<OptionSpec> options) {
  options.insert(options.end(), kDeviceOptions.begin(), kDeviceOptions.end());
  return options;
}

Result<text::Tokenizer> Model::tokenizer() const {
  if (bundle->tokenizer().empty())
    return makeError(ErrorCode::BadBundle, bundle->path(),
                     ": the bundle carries no tokenizer: none that foresight "
                     "can use lay beside the model\n"
                     "use --ids with --output=ids, or compile it from a folder "
                     "that holds a byte-level BPE tokenizer.json");
  return text::Tokenizer::fromJson(bundle->tokenizer(),
                                   bundle->path() + ": tokenizer",
                                   ErrorCode::BadBundle);
}

static constexpr const char *kSelf = "/proc/self/exe";

Result<std::string> bundlePath(const Args &args) {
  if (Bundle::hasTrailer(kSelf)) {
    if (!args.positional.empty())
      return makeError(ErrorCode::Usage, "unexpected argument '",
                       args.positional[0],
                       "': this program carries its model itself");
    std::error_code ignored;
    const auto path = std::filesystem::read_symlink(kSelf, ignored);
    return ignored ? std::string(kSelf) : path.string();
  }
  if (args.positional.empty())
    return makeError(ErrorCode::Usage, "which bundle? Name a .fsb file that "
                                       "foresight-compile wrote");
  if (args.positional.size() > 1)
    return makeError(ErrorCode::Usage, "unexpected argument '",
                     args.positional[1], "' after the bundle");
  return args.positional[0];
}

Result<std::unique_ptr<Bundle>> openBundle(const Args &args) {
  FORESIGHT_TRY(const std::string path, bundlePath(args));
  FORESIGHT_TRY(Bundle bundle, Bundle::open(path));
  if (bundle.manifest().model.synthetic)
    std::fprintf(stderr, "%s\n", kSyntheticNote);
  return std::make_unique<Bundle>(std::move(bundle));
}

/// The device of --device, else the bundle's.
static Result<std::unique_ptr<Device>> createDevice(const Args &args,
                                                    const Bundle &bundle,
                                                    const CpuOptions &cpu,
                                                    bool measure) {
  const std::string &wanted = bundle.manifest().device;
  const std::string name = args.text("device", wanted);
  if (name == wanted && name != "cpu" && name != "cuda")
    return makeError(ErrorCode::BadBundle, bundle.path(),
                     ": is for the device '", wanted,
                     "', which this foresight does not have: compile it with "
                     "--target=cpu or cuda");
  CudaOptions cuda;
  FORESIGHT_TRY(const std::string overlap,
                args.choice("overlap", {"on", "off"}));
  cuda.without = args.all("without");
  if (name == "cpu") {
    if (!cuda.without.empty())
      return makeError(ErrorCode::Usage,
                       "--without: only a GPU leaves stages out");
    return createCpuDevice(cpu);
  }
  cuda.overlap = overlap == "on";
  cuda.measure = measure;
  if (name != "cuda") {
    const std::string_view prefix = "cuda:";
    const char *end = name.data() + name.size();
    const auto [rest, error] = std::from_chars(
        name.data() + std::min(prefix.size(), name.size()), end, cuda.ordinal);
    if (!name.starts_with(prefix) || error != std::errc() || rest != end ||
        cuda.ordinal < 0)
      return makeError(ErrorCode::Usage, "--device=", name,
                       ": use cpu, cuda or cuda:N");
  }
  return createCudaDevice(cuda);
}

Result<Model> loadModel(const Args &args, bool measure) {
  // Options first: a wrong one should not wait for gigabytes to be read.
  CpuOptions options;
  FORESIGHT_TRY(const int64_t threads,
                args.integer("threads", 0, 1, kMostThreads));
  options.threads = static_cast<int>(threads);
  FORESIGHT_TRY(const std::string memory,
                args.choice("weights", {"auto", "copy", "map"}));
  options.weights = memory == "copy"  ? WeightMemory::Copy
                    : memory == "map" ? WeightMemory::Map
                                      : WeightMemory::Auto;
  options.variant = args.text("variant");
  options.gemm = args.text("gemm");

  Model model;
  FORESIGHT_TRY(model.bundle, openBundle(args));
  FORESIGHT_TRY(model.device,
                createDevice(args, *model.bundle, options, measure));
  FORESIGHT_TRY(model.program, model.device->load(*model.bundle));
  FORESIGHT_TRY(Session session, Session::create(*model.program));
  model.session = std::make_unique<Session>(std::move(session));
  return model;
}

Status checkOutput(std::string_view option, const std::string &path,
                   std::initializer_list<std::string> inputs) {
  for (const std::string &input : inputs) {
    std::error_code failure;
    if (std::filesystem::equivalent(input, path, failure))
      return makeError(ErrorCode::Usage, option, " ", path, ": is ", input,
                       ", which is read; name another file");
  }
  FORESIGHT_CHECK(AtomicFile::create(path));
  return {};
}

Result<std::string> readTextFile(const std::string &path) {
  const bool standard = path == "-";
  const std::string name = standard ? "standard input" : path;
  // Not mapped: a text may come from a pipe, as `<(command)` gives it.
  const std::unique_ptr<std::FILE, int (*)(std::FILE *)> file(
      standard ? stdin : std::fopen(path.c_str(), "rbe"),
      standard ? [](std::FILE *) { return 0; } : std::fclose);
  if (!file)
    return makeError(ErrorCode::BadInput, name,
                     ": cannot be opened: ", std::strerror(errno));
  std::error_code ignored;
  if (!standard && std::filesystem::is_directory(path, ignored))
    return makeError(ErrorCode::BadInput, name,
                     ": is a folder, expected a file");
  std::string text;
  char buffer[1 << 16];
  while (const size_t count =
             std::fread(buffer, 1, sizeof buffer, file.get())) {
    if (text.size() + count > kLongestText)
      return makeError(ErrorCode::BadInput, name, ": has more than ",
                       kLongestText >> 20, " MB of text");
    text.append(buffer, count);
  }
  if (std::ferror(file.get()))
    return makeError(ErrorCode::BadInput, name,
                     ": cannot be read: ", std::strerror(errno));
  return text;
}

Result<std::vector<int32_t>> encodeText(const text::Tokenizer &tokenizer,
                                        const std::string &text,
                                        TextSplit split,
                                        const std::string &file) {
  const std::string source = file == "-" ? "standard input" : file;
  const auto named = [&](Error error) {
    error.message = source + ": " + error.message;
    return error;
  };
  std::vector<int32_t> ids;
  if (split == TextSplit::None) {
    auto encoded = tokenizer.encode(text);
    if (!encoded.ok())
      return named(encoded.error());
    ids = std::move(*encoded);
  } else {
    std::string_view rest = text;
    while (!rest.empty()) {
      const size_t end = std::min(rest.find("\n\n"), rest.size());
      const std::string_view paragraph = rest.substr(0, end);
      const size_t offset = paragraph.data() - text.data();
      rest.remove_prefix(std::min(end + 2, rest.size()));
      if (paragraph.find_first_not_of(" \t\r\n") == std::string_view::npos)
        continue;
      auto encoded = tokenizer.encode(paragraph);
      if (!encoded.ok()) {
        Error error = encoded.error();
        error.message +=
            "\nin the paragraph that starts at byte " + std::to_string(offset);
        return named(error);
      }
      ids.insert(ids.end(), encoded->begin(), encoded->end());
    }
  }
  if (ids.size() < 2)
    return makeError(ErrorCode::Usage, source,
                     ": the text has fewer than two tokens");
  return ids;
}

Status flushOutput() {
  if (std::fflush(stdout) != 0 || std::ferror(stdout))
    return makeError(ErrorCode::Resource,
                     "standard output: ", std::strerror(errno));
  return {};
}

} // namespace foresight::tools
