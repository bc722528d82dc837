//===- EmitBundle.cpp - Code, weights and manifest to one file ------------===//

#include "Compile.h"

#include "foresight/Conversion/ForesightToCpu/ForesightToCpu.h"
#include "foresight/Conversion/ForesightToGpu/ForesightToGpu.h"
#include "foresight/Target/Bundle/BundleWriter.h"
#include "foresight/Target/Bundle/Manifest.h"
#include "foresight/support/Version.h"

#include "llvm/Config/llvm-config.h"

#include <filesystem>
#include <map>

using namespace foresight;
using namespace foresight::bundle;
using namespace mlir;
namespace fs = std::filesystem;

/// Bytes of weights from which on it is worth saying how long they will take.
static constexpr uint64_t kLongWork = 500'000'000;

Result<std::string> Compilation::compilePtx() {
  progress.phase("code", options.cuda->name);
  OwningOpRef<ModuleOp> code;
  std::string ptx;
  if (failed(lowerToGpu(*module, code, options.cuda->computeCapability)) ||
      failed(emitPtx(*code, *options.cuda, ptx)))
    return diagnostics.take(failureCode(), "no code for " + options.cuda->name +
                                               " could be generated");
  return ptx;
}

/// PTX, which the driver compiles for the GPU that it finds; and, where ptxas
/// is, what it makes of it, which spares the driver that.
Result<std::vector<Compilation::CodeSection>> Compilation::compileGpu() {
  FORESIGHT_TRY(std::string ptx, compilePtx());
  std::vector<CodeSection> sections = {{options.cuda->name, std::move(ptx)}};
  const std::string ptxas = options.cubin ? findPtxas() : "";
  if (ptxas.empty())
    return sections;
  progress.phase("cubin", ptxas);
  std::string error;
  FailureOr<PtxasResult> made =
      assemblePtx(ptxas, sections.front().bytes, *options.cuda, error);
  // It may be older than the PTX; the driver is asked later.
  if (failed(made))
    progress.note("no cubin is in the bundle, a driver will compile its PTX: " +
                  ptxas + ": " + StringRef(error).trim().str());
  else
    sections.push_back({options.cuda->name + kCubinSuffix,
                        {made->cubin.begin(), made->cubin.end()}});
  return sections;
}

/// One shared object a variant of a CPU.
Result<std::vector<Compilation::CodeSection>> Compilation::compileVariants() {
  std::vector<CodeSection> sections;
  for (const CpuVariant &variant : options.variants) {
    progress.phase("code", variant.name);
    OwningOpRef<ModuleOp> code;
    SmallVector<char> object, shared;
    if (failed(lowerToCpu(*module, variant, code)))
      return diagnostics.take(failureCode(), "no code for " + variant.name +
                                                 " could be generated");
    if (!options.dump.empty()) {
      SmallVector<char> text;
      if (succeeded(emitCpuCode(*code, variant, CpuOutput::LlvmIr, text)))
        FORESIGHT_CHECK(
            dumpText(variant.name + ".ll", {text.data(), text.size()}));
    }
    if (failed(emitCpuCode(*code, variant, CpuOutput::Object, object)) ||
        failed(linkSharedObject(object, module->getLoc(), shared)))
      return diagnostics.take(failureCode(), "no code for " + variant.name +
                                                 " could be generated");
    sections.push_back({variant.name, {shared.begin(), shared.end()}});
  }
  return sections;
}

Result<OrderedJson> Compilation::manifest(const Packing &packing) {
  ManifestInputs inputs;
  for (auto kernel : module->getOps<KernelOp>()) {
    FailureOr<KernelInfo> info = KernelInfo();
    if (options.cuda) {
      FailureOr<GpuLaunch> launch =
          analyzeGpuKernel(kernel, options.cuda->computeCapability);
      if (failed(launch))
        return diagnostics.take(failureCode(), "a kernel cannot be lowered");
      info->weightBytes = launch->weightBytes;
      info->hasCounts = launch->hasCounts;
      info->countBytes = launch->countBytes;
      info->units = std::max<int64_t>(1, launch->units);
      inputs.launches[kernel.getSymName()] = *launch;
    } else {
      info = analyzeCpuKernel(kernel);
    }
    if (failed(info))
      return diagnostics.take(failureCode(), "a kernel cannot be lowered");
    inputs.kernels[kernel.getSymName()] = *info;
  }
  inputs.weights = packing.weights();
  inputs.generateWeights = generatesWeights();
  inputs.weightBytes = packing.bytes();
  inputs.variants = options.variants;
  if (options.cuda) {
    inputs.device = "cuda";
    inputs.variants = {{options.cuda->name, "", {options.cuda->ptxVersion}, 0}};
  }
  inputs.options = options.record();
  inputs.producer = "foresight-compile";
  inputs.version = versionText();
  inputs.llvm = LLVM_VERSION_STRING;
  inputs.commit = commitText();
  FailureOr<OrderedJson> manifest = buildManifest(*module, inputs);
  if (failed(manifest))
    return diagnostics.take(failureCode(), "the schedule is not complete");
  return std::move(*manifest);
}

/// Says what will be written, before it is: how much, what is stored once for
/// several weights, whether the disk has room, and how long it takes.
Status Compilation::announceWeights(const Packing &packing) {
  if (packing.savedBytes()) {
    progress.note("equal weights are stored once, which saves " +
                  bytesText(packing.savedBytes()));
    std::map<uint64_t, std::vector<const PackedWeight *>> places;
    for (const PackedWeight &weight : packing.weights())
      if (weight.bytes)
        places[weight.offset].push_back(&weight);
    for (const auto &[offset, weights] : places) {
      if (!options.explain || weights.size() < 2)
        continue;
      std::string names;
      for (const PackedWeight *weight : weights)
        names += (names.empty() ? "" : " = ") + weight->name;
      progress.explain(names + ", " + bytesText(weights.front()->bytes));
    }
  }
  if (generatesWeights())
    return {};
  std::error_code error;
  std::string folder = fs::absolute(options.output, error).parent_path();
  fs::space_info space = fs::space(folder, error);
  // An earlier file of this name stays until the new one is whole.
  if (!error && space.available < packing.bytes())
    return makeError(ErrorCode::Resource, options.output, ": needs ",
                     bytesText(packing.bytes()), " for weights, but ", folder,
                     " has ", bytesText(space.available),
                     " free; make room, write elsewhere with -o, or choose "
                     "--dtype=f16 or --sparsity=none");
  if (packing.bytes() < kLongWork)
    return {};
  FORESIGHT_TRY(double seconds, packing.estimateSeconds());
  char time[64];
  snprintf(time, sizeof time, "about %.0f s, or as long as the disk takes",
           seconds);
  progress.note("weights will take " + bytesText(packing.bytes()) +
                (error ? ""
                       : " of the " + bytesText(space.available) +
                             " that are free on disk") +
                " and " + time);
  return {};
}

Status Compilation::emitBundle() {
  FORESIGHT_TRY(Packing packing, Packing::plan(*module, generatesWeights()));
  FORESIGHT_CHECK(announceWeights(packing));
  FORESIGHT_TRY(OrderedJson facts, manifest(packing));
  std::string text = dumpJson(facts, 1);
  FORESIGHT_CHECK(dumpText("manifest.json", text));
  FORESIGHT_TRY(std::vector<CodeSection> code,
                options.cuda ? compileGpu() : compileVariants());

  bool executable = options.emit == Emit::Exe;
  if (executable || !options.verify.empty())
    FORESIGHT_CHECK(checkRuntime());
  FORESIGHT_TRY(
      BundleWriter writer,
      executable ? BundleWriter::createExecutable(options.output, runtimePath())
                 : BundleWriter::create(options.output));
  FORESIGHT_CHECK(writer.section(SectionKind::kManifest, "", text));
  for (const CodeSection &section : code)
    FORESIGHT_CHECK(
        writer.section(SectionKind::kCode, section.name, section.bytes));
  if (!tokenizer.empty())
    FORESIGHT_CHECK(writer.section(SectionKind::kTokenizer, "", tokenizer));
  if (profile)
    FORESIGHT_CHECK(
        writer.section(SectionKind::kProfile, "", profile->toJson()));

  if (generatesWeights()) {
    progress.phase("weights",
                   bytesText(packing.bytes()) + ", made on the GPU at load");
    progress.phase("write", options.output);
    FORESIGHT_CHECK(writer.commit());
    progress.finish(options.output + ", " + bytesText(writer.bytes()));
    return {};
  }
  progress.phase("weights", bytesText(packing.bytes()));
  PackingOptions packingOptions;
  packingOptions.progress = [&](uint64_t done, uint64_t total) {
    progress.percent(done, total);
  };
  FORESIGHT_CHECK(writer.beginBlocks(SectionKind::kWeights, packing.bytes()));
  FORESIGHT_CHECK(packing.write(
      [&](uint64_t offset, std::span<const std::byte> bytes) {
        return writer.writeBlock(offset, bytes);
      },
      packingOptions));
  FORESIGHT_CHECK(writer.end());
  progress.phase("write", options.output);
  FORESIGHT_CHECK(writer.commit());
  progress.finish(options.output + ", " + bytesText(writer.bytes()));
  return {};
}
