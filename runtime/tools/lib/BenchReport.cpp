//===- BenchReport.cpp - What bench measured ------------------------------===//
#include "BenchReport.h"

#include "Model.h"
#include "Statistics.h"

#include <algorithm>

namespace foresight::tools {

std::vector<BenchReport::RoleTotal>
BenchReport::roles(const DecodeBench &decode) const {
  std::vector<RoleTotal> out;
  if (decode.trace.entry < 0 || decode.trace.tokens == 0)
    return out;
  const EntryInfo &entry = manifest.entries[decode.trace.entry];
  const auto steps = static_cast<double>(decode.trace.steps);
  for (size_t i = 0; i < entry.stages.size(); ++i) {
    const std::string &role = entry.stages[i].role;
    auto found = std::find_if(out.begin(), out.end(), [&](const auto &total) {
      return total.role == role;
    });
    if (found == out.end())
      found = out.insert(out.end(), {.role = role});
    found->seconds += double(decode.trace.stages[i].nanoseconds) * 1e-9 / steps;
    found->bytes += double(decode.trace.stages[i].weightBytes) / steps;
  }
  return out;
}

static std::string spread(const std::vector<double> &seconds, int digits) {
  return fixed(medianOf(seconds) * 1e3, digits) + " ms (p10 " +
         fixed(quantileOf(seconds, 0.1) * 1e3, digits) + ", p90 " +
         fixed(quantileOf(seconds, 0.9) * 1e3, digits) + ")";
}

double DecodeBench::tokensPerSecond() const {
  return static_cast<double>(std::max<int64_t>(batch, 1)) / medianOf(seconds);
}

std::string BenchReport::shareText(double bytesPerSecond) const {
  return bandwidth.bytesPerSecond > 0
             ? percent(bytesPerSecond / bandwidth.bytesPerSecond)
             : "-";
}

/// Of the device's memory, where a bundle of an older compiler cannot tell it,
/// nothing.
std::string BenchReport::bandwidthText() const {
  if (bandwidth.bytesPerSecond <= 0)
    return "";
  return "read bandwidth " + fixed(bandwidth.bytesPerSecond / 1e9, 1) +
         " GB/s " +
         (bandwidth.threads > 0
              ? "with " + std::to_string(bandwidth.threads) + " threads"
              : "of the GPU's memory") +
         "\n";
}

std::string BenchReport::stagesText(const DecodeBench &decode) const {
  Table stages({"role", "ms", "MB", "GB/s"});
  for (const RoleTotal &total : roles(decode))
    stages.add({total.role, fixed(total.seconds * 1e3, 3),
                fixed(total.bytes / 1e6, 2),
                total.seconds > 0 ? fixed(total.bytes / total.seconds / 1e9, 1)
                                  : "-"});
  return stages.text();
}

std::string BenchReport::batchText() const {
  Table table({"batch", "ms a step", "p10", "p90", "tokens/s", "MB a step",
               "GB/s", "of bandwidth", "tokens against dense"});
  const double median = medianOf(batch->seconds);
  const double bytes =
      batch->bytesPerToken() * static_cast<double>(batch->batch);
  table.add({std::to_string(batch->batch), fixed(median * 1e3, 3),
             fixed(quantileOf(batch->seconds, 0.1) * 1e3, 3),
             fixed(quantileOf(batch->seconds, 0.9) * 1e3, 3),
             fixed(batch->tokensPerSecond(), 1), fixed(bytes / 1e6, 2),
             fixed(bytes / median / 1e9, 1), shareText(bytes / median),
             fixed(batch->tokensPerSecond() / decodes[0].tokensPerSecond(), 2) +
                 "x"});
  return "\n" + table.text() + "\nstages of the batch, a step\n" +
         stagesText(*batch);
}

std::string BenchReport::text() const {
  std::string out;
  if (manifest.model.synthetic)
    out += std::string(kSyntheticNote) + "\n";
  for (const std::string &role : without)
    out += "without stages of role " + role + ": times only, not the model\n";
  out += manifest.model.name + " on " + cpuName() + "\n" +
         program.description() + "\n" + bandwidthText() + "\n";
  const double promptMedian = medianOf(promptSeconds);
  out += "prompt of " + std::to_string(promptTokens) +
         " tokens: " + spread(promptSeconds, 1) + ", " +
         fixed(double(promptTokens) / promptMedian, 0) + " tokens/s\n\n";

  Table table({"decode", "ms a token", "p10", "p90", "tokens/s", "MB a token",
               "GB/s", "of bandwidth", "against dense"});
  const double denseMedian = medianOf(decodes[0].seconds);
  for (const DecodeBench &decode : decodes) {
    const double median = medianOf(decode.seconds);
    const double rate = decode.bytesPerToken() / median;
    table.add({decode.dense ? "dense" : "sparse", fixed(median * 1e3, 3),
               fixed(quantileOf(decode.seconds, 0.1) * 1e3, 3),
               fixed(quantileOf(decode.seconds, 0.9) * 1e3, 3),
               fixed(1 / median, 1), fixed(decode.bytesPerToken() / 1e6, 2),
               fixed(rate / 1e9, 1), shareText(rate),
               fixed(denseMedian / median, 2) + "x"});
  }
  out += table.text();
  for (const DecodeBench &decode : decodes)
    if (!decode.idleSeconds.empty())
      out += std::string("idle between steps, ") +
             (decode.dense ? "dense: " : "sparse: ") +
             fixed(medianOf(decode.idleSeconds) * 1e6, 1) + " us (p90 " +
             fixed(quantileOf(decode.idleSeconds, 0.9) * 1e6, 1) + ")\n";
  for (const DecodeBench &decode : decodes) {
    out += std::string("\nstages of ") + (decode.dense ? "dense" : "sparse") +
           " decoding, a token\n" + stagesText(decode);
    if (decode.dense)
      continue;
    const std::vector<MlpUse> layers = mlpUse(manifest, decode.trace);
    out += "\n" + mlpUseTable(layers, totalUse(manifest, layers));
  }
  if (batch)
    out += batchText();
  return out;
}

static OrderedJson timesJson(const std::vector<double> &seconds) {
  return {{"median", medianOf(seconds)},     {"p10", quantileOf(seconds, 0.1)},
          {"p90", quantileOf(seconds, 0.9)}, {"min", quantileOf(seconds, 0)},
          {"max", quantileOf(seconds, 1)},   {"count", seconds.size()}};
}

OrderedJson BenchReport::shareJson(double bytesPerSecond) const {
  if (bandwidth.bytesPerSecond <= 0)
    return nullptr;
  return bytesPerSecond / bandwidth.bytesPerSecond;
}

OrderedJson BenchReport::decodeJson(const DecodeBench &decode) const {
  const double rate = decode.bytesPerToken() * decode.tokensPerSecond();
  OrderedJson out = {{"seconds", timesJson(decode.seconds)},
                     {"tokens_per_second", decode.tokensPerSecond()},
                     {"weight_bytes_per_token", decode.bytesPerToken()},
                     {"bytes_per_second", rate},
                     {"bandwidth_share", shareJson(rate)},
                     {"speedup_over_dense",
                      decode.tokensPerSecond() / decodes[0].tokensPerSecond()}};
  if (decode.batch > 0)
    out["batch"] = decode.batch;
  if (!decode.idleSeconds.empty())
    out["idle_seconds"] = timesJson(decode.idleSeconds);
  OrderedJson stages = OrderedJson::array();
  for (const RoleTotal &total : roles(decode))
    stages.push_back({{"role", total.role},
                      {"seconds", total.seconds},
                      {"weight_bytes", total.bytes}});
  out["stages"] = stages;
  if (!decode.dense) {
    const std::vector<MlpUse> layers = mlpUse(manifest, decode.trace);
    const MlpUse total = totalUse(manifest, layers);
    out["selected"] = total.selected;
    out["active"] = total.active;
    out["mlp_bytes"] = total.bytes;
    out["layers"] = mlpUseJson(layers);
  }
  return out;
}

OrderedJson BenchReport::json() const {
  OrderedJson out = {
      {"bundle", bundle.path()},
      {"model", manifest.model.name},
      {"dtype", manifest.model.dtype},
      {"sparsity", manifest.model.sparsity},
      {"synthetic", manifest.model.synthetic},
      {"cpu", cpuName()},
      {"program", program.description()},
      {"memory_bytes", program.memoryBytes()},
      {"bandwidth",
       {{"bytes_per_second", bandwidth.bytesPerSecond},
        {"threads", bandwidth.threads},
        {"buffer_bytes", bandwidth.bufferBytes}}},
      {"prompt",
       {{"tokens", promptTokens},
        {"seconds", timesJson(promptSeconds)},
        {"tokens_per_second", double(promptTokens) / medianOf(promptSeconds)}}},
      {"tokens", tokens},
      {"repeat", repeat}};
  out["decode"] = decodeJson(decodes.back());
  if (decodes.size() > 1)
    out["decode_dense"] = decodeJson(decodes.front());
  if (batch)
    out["decode_batch"] = decodeJson(*batch);
  if (manifest.model.synthetic)
    out["note"] = kSyntheticNote;
  if (!without.empty())
    out["without"] = without;
  return out;
}

void ChromeTrace::add(const Manifest &manifest, const SessionTrace &trace,
                      const std::string &name) {
  if (trace.entry < 0)
    return;
  auto track = std::find_if(tracks.begin(), tracks.end(),
                            [&](const Track &t) { return t.name == name; });
  if (track == tracks.end()) {
    track = tracks.insert(tracks.end(), {.name = name});
    events.push_back({{"name", "thread_name"},
                      {"ph", "M"},
                      {"pid", 1},
                      {"tid", track - tracks.begin()},
                      {"args", {{"name", name}}}});
  }
  const EntryInfo &entry = manifest.entries[trace.entry];
  for (size_t i = 0; i < entry.stages.size(); ++i) {
    const SessionTrace::Stage &stage = trace.stages[i];
    events.push_back(
        {{"name", entry.stages[i].name},
         {"cat", entry.stages[i].role},
         {"ph", "X"},
         {"pid", 1},
         {"tid", track - tracks.begin()},
         {"ts", double(track->nanoseconds) * 1e-3},
         {"dur", double(stage.nanoseconds) * 1e-3},
         {"args",
          {{"weight_bytes", stage.weightBytes}, {"counted", stage.counted}}}});
    track->nanoseconds += stage.nanoseconds;
  }
}

std::string ChromeTrace::json() const {
  return dumpJson(
             OrderedJson{{"traceEvents", events}, {"displayTimeUnit", "ms"}}) +
         "\n";
}

} // namespace foresight::tools
