//===- EmitBundle.cpp - Code, weights and manifest to one file ------------===//

#include "Compile.h"

#include "foresight/Conversion/ForesightToCpu/ForesightToCpu.h"
#include "foresight/Conversion/ForesightToGpu/ForesightToGpu.h"
#include "foresight/Target/Bundle/BundleWriter.h"
#include "foresight/Target/Bundle/Manifest.h"
#include "foresight/support/Version.h"

#include "llvm/Config/llvm-config.h"

#include <filesystem>

using namespace foresight;
using namespace foresight::bundle;
using namespace mlir;

Result<std::string> Compilation::compilePtx() {
  progress.phase("code", options.cuda->name);
  OwningOpRef<ModuleOp> code;
  std::string ptx;
  if (failed(lowerToGpu(*module, code)) ||
      failed(emitPtx(*code, *options.cuda, ptx)))
    return diagnostics.take(failureCode(), "no code for " + options.cuda->name +
                                               " could be generated");
  return ptx;
}

/// One shared object a variant, in the order of `options.variants`.
Result<std::vector<std::string>> Compilation::compileVariants() {
  std::vector<std::string> objects;
  if (options.cuda) {
    FORESIGHT_TRY(std::string ptx, compilePtx());
    objects.push_back(std::move(ptx));
    return objects;
  }
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
    objects.emplace_back(shared.begin(), shared.end());
  }
  return objects;
}

Result<OrderedJson> Compilation::manifest(const Packing &packing) {
  ManifestInputs inputs;
  for (auto kernel : module->getOps<KernelOp>()) {
    FailureOr<KernelInfo> info = KernelInfo();
    if (options.cuda) {
      FailureOr<GpuLaunch> launch = analyzeGpuKernel(kernel);
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

Status Compilation::emitBundle() {
  FORESIGHT_TRY(Packing packing, Packing::plan(*module));
  FORESIGHT_TRY(OrderedJson facts, manifest(packing));
  std::string text = dumpJson(facts, 1);
  FORESIGHT_CHECK(dumpText("manifest.json", text));
  FORESIGHT_TRY(std::vector<std::string> objects, compileVariants());

  bool executable = options.emit == Emit::Exe;
  if (executable || !options.verify.empty())
    FORESIGHT_CHECK(checkRuntime());
  FORESIGHT_TRY(
      BundleWriter writer,
      executable ? BundleWriter::createExecutable(options.output, runtimePath())
                 : BundleWriter::create(options.output));
  FORESIGHT_CHECK(writer.section(SectionKind::kManifest, "", text));
  for (auto [i, object] : llvm::enumerate(objects))
    FORESIGHT_CHECK(writer.section(
        SectionKind::kCode,
        options.cuda ? options.cuda->name : options.variants[i].name, object));
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
