//===- Inspect.cpp - foresight inspect ------------------------------------===//
#include "Commands.h"
#include "Model.h"
#include "Statistics.h"

#include "foresight/support/Json.h"

#include <cstdio>
#include <map>

namespace foresight::tools {
namespace {

std::string shapeText(const std::vector<int64_t> &shape) {
  std::string out;
  for (const int64_t size : shape)
    out += (out.empty() ? "" : "x") + std::to_string(size);
  return out;
}

std::string joined(const std::vector<std::string> &parts, const char *between) {
  std::string out;
  for (const std::string &part : parts)
    out += (out.empty() ? "" : between) + part;
  return out;
}

std::string bufferNames(const Manifest &manifest,
                        const std::vector<int64_t> &indices) {
  std::string out;
  for (const int64_t index : indices)
    out += (out.empty() ? "" : ", ") + manifest.buffers[index].name;
  return out.empty() ? "-" : out;
}

std::string unitsText(const StageInfo &stage) {
  return std::to_string(stage.units) + (stage.perToken ? " a token" : "");
}

void printModel(const Bundle &bundle) {
  const Manifest &manifest = bundle.manifest();
  const ModelFacts &model = manifest.model;
  if (model.synthetic)
    std::printf("%s\n", kSyntheticNote);
  std::printf("model      %s (%s), from %s\n", model.name.c_str(),
              model.family.c_str(), model.source.c_str());
  std::printf("           %lld layers, hidden %lld, %lld heads of %lld, FFN ",
              (long long)model.layers, (long long)model.hiddenSize,
              (long long)model.heads, (long long)model.headDim);
  bool equal = true;
  for (const int64_t size : model.ffnDim)
    equal &= size == model.ffnDim.front();
  std::printf("%s, vocabulary %lld\n",
              equal && !model.ffnDim.empty()
                  ? std::to_string(model.ffnDim.front()).c_str()
                  : shapeText(model.ffnDim).c_str(),
              (long long)model.vocabSize);
  std::printf("           %.1f million parameters, at most %lld tokens\n",
              model.parameters / 1e6, (long long)model.maxSeq);
  std::printf("weights    %s, sparsity %s\n", model.dtype.c_str(),
              model.sparsity.c_str());
  std::printf("bundle     %s, %s, format %lld\n", bundle.path().c_str(),
              bytesText(double(bundle.fileBytes())).c_str(),
              (long long)manifest.format);
  std::printf("made by    %s %s, LLVM %s, commit %s\n",
              manifest.producer.c_str(), manifest.version.c_str(),
              manifest.llvm.c_str(), manifest.commit.c_str());
  std::printf("target     %s\n", manifest.device.c_str());
  for (const CodeVariant &variant : manifest.variants) {
    const auto cubin = bundle.section(bundle::SectionKind::kCode,
                                      variant.name + bundle::kCubinSuffix);
    std::printf("           %s (%s)%s\n", variant.name.c_str(),
                joined(variant.features, ", ").c_str(),
                cubin.empty() ? "" : ", with a cubin");
  }
  if (!manifest.options.empty()) {
    std::printf("options   ");
    for (const auto &[name, value] : manifest.options)
      std::printf(" --%s=%s", name.c_str(), value.c_str());
    std::printf("\n");
  }
}

void printStages(const Manifest &manifest, const EntryInfo &entry) {
  int64_t bytes = 0;
  for (const StageInfo &stage : entry.stages)
    bytes += stage.weightBytes;
  std::printf("\nentry %s: %zu stages, up to %lld tokens a call, %s of weights "
              "whatever the data\n",
              entry.name.c_str(), entry.stages.size(),
              (long long)entry.maxTokens, bytesText(double(bytes)).c_str());
  Table table({"#", "stage", "kernel", "units", "after", "weights", "+ a count",
               "reads", "-> writes"},
              "rllrrrrll");
  for (size_t i = 0; i < entry.stages.size(); ++i) {
    const StageInfo &stage = entry.stages[i];
    const KernelInfo &kernel = manifest.kernels[stage.kernel];
    std::string after;
    for (const int64_t index : stage.after)
      after += (after.empty() ? "" : ",") + std::to_string(index);
    table.add({std::to_string(i), stage.name,
               kernel.library.empty() ? kernel.name : kernel.library,
               unitsText(stage), after.empty() ? "-" : after,
               bytesText(double(stage.weightBytes)),
               stage.counts < 0 ? "-" : bytesText(double(stage.countBytes)),
               bufferNames(manifest, stage.reads),
               "-> " + bufferNames(manifest, stage.writes)});
  }
  std::printf("%s", table.text().c_str());
}

void printRest(const Manifest &manifest) {
  if (!manifest.selections.empty()) {
    std::printf("\nselections\n");
    Table table({"layer", "rule", "bits", "kappa", "lookahead", "copy"});
    for (const SelectionInfo &selection : manifest.selections)
      table.add(
          {std::to_string(selection.layer), selection.rule,
           selection.bits ? std::to_string(selection.bits) : "-",
           selection.copy < 0 ? "-" : fixed(selection.kappa, 4),
           selection.lookahead,
           selection.copy < 0
               ? "-"
               : bytesText(double(manifest.weights[selection.copy].bytes))});
    std::printf("%s", table.text().c_str());
  }
  std::printf("\nbuffers (work buffers share an arena of %s)\n",
              bytesText(double(manifest.arenaBytes)).c_str());
  Table buffers({"buffer", "kind", "element", "rows", "columns", "bytes"},
                "lll");
  for (const BufferInfo &buffer : manifest.buffers)
    buffers.add({buffer.name, std::string(bufferKindName(buffer.kind)),
                 std::string(elementName(buffer.element)),
                 std::to_string(buffer.rows), std::to_string(buffer.columns),
                 bytesText(double(buffer.bytes()))});
  std::printf("%s", buffers.text().c_str());

  // Equal weights share a place.
  int64_t total = 0, saved = 0;
  std::map<int64_t, std::string> places;
  for (const WeightInfo &weight : manifest.weights) {
    const bool first = places.emplace(weight.offset, weight.name).second;
    (first ? total : saved) += weight.bytes;
  }
  std::printf("\nweights (%s", bytesText(double(total)).c_str());
  if (saved)
    std::printf("; equal ones are stored once, which saves %s",
                bytesText(double(saved)).c_str());
  std::printf(")\n");
  Table weights({"weight", "element", "shape", "bytes", "from"}, "lllrl");
  for (const WeightInfo &weight : manifest.weights) {
    std::string element(elementName(weight.element));
    if (weight.bits)
      element = std::to_string(weight.bits) + " bits";
    const std::string &place = places[weight.offset];
    weights.add(
        {weight.name, element, shapeText(weight.shape),
         place == weight.name ? bytesText(double(weight.bytes)) : "as " + place,
         joined(weight.tensors, ", ")});
  }
  std::printf("%s", weights.text().c_str());
}

Status inspect(const Args &args) {
  if (args.has("json") && args.has("profile"))
    return makeError(ErrorCode::Usage, "give one of --json and --profile");
  FORESIGHT_TRY(const auto bundle, openBundle(args));
  if (args.has("json")) {
    FORESIGHT_TRY(Json manifest,
                  parseJson(bundle->manifestText(), bundle->path(),
                            ErrorCode::BadBundle));
    if (bundle->manifest().model.synthetic)
      manifest["note"] = kSyntheticNote;
    std::printf("%s\n", dumpJson(manifest, 2).c_str());
    return flushOutput();
  }
  if (args.has("profile")) {
    if (bundle->profile().empty())
      return makeError(ErrorCode::Usage, bundle->path(),
                       ": was compiled without a profile");
    std::printf("%.*s\n", int(bundle->profile().size()),
                bundle->profile().data());
    return flushOutput();
  }
  printModel(*bundle);
  for (const EntryInfo &entry : bundle->manifest().entries)
    printStages(bundle->manifest(), entry);
  printRest(bundle->manifest());
  return flushOutput();
}

} // namespace

Command inspectCommand() {
  return {{"inspect",
           "show what a bundle holds",
           "[BUNDLE] [OPTIONS]",
           "Checks the bundle, weights excepted, and prints model facts, the "
           "stages of every entry\nwith what they read and write, selections, "
           "buffers and weights.",
           {
               {"json", nullptr, "print the manifest as it is"},
               {"profile", nullptr, "print the profile it was compiled with"},
           }},
          inspect};
}

} // namespace foresight::tools
