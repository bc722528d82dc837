//===- TestBundle.cpp - Bundles for tests of the runtime ------------------===//
#include "TestBundle.h"

#include "foresight/support/Hash.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include <unistd.h>

namespace foresight::test {

using bundle::SectionKind;

namespace {

uint64_t hashOf(const std::string &bytes, size_t begin, size_t count) {
  return hash64(std::as_bytes(std::span(bytes.data() + begin, count)));
}

template <typename T> void append(std::string &to, const T &value) {
  to.append(reinterpret_cast<const char *>(&value), sizeof(T));
}

size_t aligned(size_t offset) {
  const auto to = static_cast<size_t>(bundle::kSectionAlignment);
  return (offset + to - 1) / to * to;
}

std::string readFile(const std::string &path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

} // namespace

std::string BundleImage::bytes() const {
  std::vector<bundle::SectionEntry> table;
  std::string body, sums;
  const size_t frame =
      aligned(sizeof(bundle::Header) +
              (sections.size() + 1) * sizeof(bundle::SectionEntry));
  const auto add = [&](SectionKind kind, const std::string &name,
                       const std::string &data) {
    bundle::SectionEntry entry{.kind = kind,
                               .reserved = 0,
                               .offset = frame + body.size(),
                               .bytes = data.size(),
                               .firstChecksum = sums.size() / 8,
                               .name = {}};
    std::memcpy(entry.name, name.data(),
                std::min(name.size(), sizeof(entry.name) - 1));
    table.push_back(entry);
    body += data;
    body.resize(aligned(body.size()));
  };
  for (const Section &section : sections) {
    add(section.kind, section.name, section.bytes);
    const auto block = static_cast<size_t>(bundle::kChecksumBlock);
    for (size_t at = 0; at < section.bytes.size(); at += block)
      append(sums, hashOf(section.bytes, at,
                          std::min(block, section.bytes.size() - at)));
  }
  add(SectionKind::kChecksums, "", sums);
  std::string entries;
  for (const bundle::SectionEntry &entry : table)
    append(entries, entry);
  bundle::Header header{};
  std::memcpy(header.magic, bundle::kMagic, sizeof(header.magic));
  header.version = bundle::kFormatVersion;
  header.sectionCount = static_cast<uint32_t>(table.size());
  header.fileBytes = frame + body.size();
  header.tableOffset = sizeof(header);
  header.tableChecksum = hashOf(entries, 0, entries.size());
  std::string file;
  append(file, header);
  header.headerChecksum =
      hashOf(file, 0, offsetof(bundle::Header, headerChecksum));
  file.clear();
  append(file, header);
  file += entries;
  file.resize(frame);
  return file + body;
}

size_t BundleImage::offsetOf(SectionKind kind) const {
  size_t offset = aligned(sizeof(bundle::Header) +
                          (sections.size() + 1) * sizeof(bundle::SectionEntry));
  for (const Section &section : sections) {
    if (section.kind == kind)
      return offset;
    offset += aligned(section.bytes.size());
  }
  return offset; // checksums
}

TestModel::TestModel() {
  for (int64_t i = 0; i < kVocab * kColumns; ++i)
    table.push_back(static_cast<float>(i % 23) - 11);
  for (int64_t i = 0; i < kColumns; ++i) {
    mixWeight.push_back(static_cast<float>(i % 5) - 2);
    bias.push_back(static_cast<float>(i % 3) * 10 - 10);
  }
  for (int64_t i = 0; i < kColumns * kColumns; ++i)
    product.push_back(static_cast<float>(i % 7) - 3);

  const auto buffer = [](const char *name, const char *kind,
                         const char *element, int64_t columns, int64_t rows,
                         int64_t offset) {
    Json json{{"name", name},       {"kind", kind}, {"element", element},
              {"columns", columns}, {"rows", rows}, {"row_bytes", columns * 4}};
    if (json["kind"] == "work")
      json["offset"] = offset;
    return json;
  };
  const int64_t row = kColumns * 4;
  manifest["buffers"] = {
      buffer("ids", "input", "i32", 1, kMaxTokens, 0),
      buffer("positions", "input", "i32", 1, kMaxTokens, 0),
      buffer("logits", "output", "f32", kVocab, 1, 0),
      buffer("memory", "state", "f32", kColumns, 1, 0),
      buffer("x", "work", "f32", kColumns, kMaxTokens, 0),
      buffer("y", "work", "f32", kColumns, kMaxTokens, kMaxTokens * row),
      buffer("counts", "work", "i32", kColumns, 1, 2 * kMaxTokens * row),
      buffer("a", "work", "f32", 128, 1, 3 * kMaxTokens * row),
      buffer("b", "work", "f32", 128, 1, 4 * kMaxTokens * row)};
  manifest["arena_bytes"] = 5 * kMaxTokens * row;

  int64_t offset = 0;
  const auto weight = [&](const char *name, std::vector<int64_t> shape,
                          size_t count) {
    Json json{{"name", name},       {"element", "f32"},
              {"shape", shape},     {"offset", offset},
              {"bytes", count * 4}, {"tensors", Json::array()}};
    offset += static_cast<int64_t>(count) * 4;
    return json;
  };
  manifest["weights"] = {
      weight("table", {kVocab, kColumns}, table.size()),
      weight("mix", {kColumns}, mixWeight.size()),
      weight("product", {kColumns, kColumns}, product.size()),
      weight("bias", {kColumns}, bias.size())};
  const auto kernel = [](const char *name, bool prepare, const char *library) {
    return Json{{"name", name},
                {"has_prepare", prepare},
                {"library", library},
                {"ops", Json::array()},
                {"scratch_bytes", prepare ? 64 : 0}};
  };
  manifest["kernels"] = {
      kernel("embed", false, ""),    kernel("mix", true, ""),
      kernel("tick", false, ""),     kernel("chain", false, ""),
      kernel("head", false, ""),     kernel("", false, "gemm"),
      kernel("mix_dense", false, "")};

  const auto stage = [](const std::string &name, int64_t kernel,
                        const Json &args, int64_t units, const Json &more) {
    Json json{{"name", name},
              {"role", "other"},
              {"layer", -1},
              {"kernel", kernel},
              {"args", args},
              {"units", units},
              {"per_token", false},
              {"grain", 1},
              {"counts", -1},
              {"weight_bytes", 0},
              {"count_bytes", 0},
              {"after", Json::array()},
              {"reads", Json::array()},
              {"writes", Json::array()},
              {"sources", Json::array()}};
    json.update(more);
    return json;
  };
  const auto b = [](int64_t index) { return Json{{"buffer", index}}; };
  const auto w = [](int64_t index) { return Json{{"weight", index}}; };
  const Json embed =
      stage("embed", 0, {b(0), b(1), w(0), b(4)}, 1, {{"per_token", true}});
  const auto decode = [&](bool dense) {
    Json stages = {embed};
    stages.push_back(
        dense ? stage("layers.0.fc1", 6, {b(4), w(1), b(5)}, kColumns,
                      {{"after", {0}}, {"layer", 0}, {"weight_bytes", 8256}})
              : stage("layers.0.fc1", 1, {b(4), w(1), b(5)}, kColumns,
                      {{"after", {0}},
                       {"layer", 0},
                       {"counts", 6},
                       {"weight_bytes", 100},
                       {"count_bytes", 2}}));
    stages.push_back(stage("tick", 2, {b(3), b(3)}, kColumns, {{"grain", 3}}));
    for (int64_t i = 0; i < kChains; ++i)
      stages.push_back(stage("chain." + std::to_string(i), 3,
                             {b(7 + i % 2), b(8 - i % 2)}, kChainUnits,
                             {{"after", {2 + i}}, {"grain", 1 + i % 9}}));
    stages.push_back(stage("head", 4, {b(5), b(3), b(2)}, kVocab,
                           {{"after", {2 + kChains}}, {"grain", 1000}}));
    return Json{{"max_tokens", 1},
                {"inputs", {{"ids", 0}, {"positions", 1}}},
                {"outputs", {{"logits", 2}}},
                {"stages", stages}};
  };
  manifest["entries"]["decode"] = decode(false);
  manifest["entries"]["decode_dense"] = decode(true);
  manifest["entries"]["prefill"] = {
      {"max_tokens", kMaxTokens},
      {"inputs", {{"ids", 0}, {"positions", 1}}},
      {"outputs", {{"logits", 2}}},
      {"stages",
       {embed,
        stage("product", 5, {b(4), w(2), w(3), b(5)}, 1,
              {{"after", {0}},
               {"gemm",
                {{"n", kColumns},
                 {"k", kColumns},
                 {"layout", "out_in"},
                 {"x", 4},
                 {"weight", 2},
                 {"bias", 3},
                 {"residual", 4},
                 {"activation", "relu"},
                 {"out", 5}}}}),
        stage("tick", 2, {b(3), b(3)}, kColumns, {{"grain", 5}}),
        stage("head", 4, {b(5), b(3), b(2)}, kVocab, {{"after", {1, 2}}})}}};
  manifest["selections"] = {{{"layer", 0},
                             {"stage", 1},
                             {"dense_stage", 1},
                             {"activations", 5},
                             {"input", 4},
                             {"epsilon", 1e-5},
                             {"neurons", kColumns},
                             {"hidden", kColumns},
                             {"fc1", 2},
                             {"bias1", 3},
                             {"gamma", -1},
                             {"beta", -1},
                             {"copy", -1},
                             {"bits", 0},
                             {"kappa", 0.0},
                             {"rule", "skip"},
                             {"lookahead", "here"},
                             {"selected", 6}}};
  manifest["format"] = 1;
  manifest["producer"] = "test";
  manifest["build"] = {{"version", "0"}, {"llvm", "0"}, {"commit", "0"}};
  manifest["options"] = {{"sparsity", "exact"}};
  manifest["model"] = {{"family", "test"},
                       {"name", "made-up"},
                       {"source", "nowhere"},
                       {"vocab_size", kVocab},
                       {"hidden_size", kColumns},
                       {"layers", 1},
                       {"heads", 1},
                       {"head_dim", kColumns},
                       {"ffn_dim", {kColumns}},
                       {"max_seq", kMaxSeq},
                       {"dtype", "f32"},
                       {"sparsity", "exact"},
                       {"synthetic", false},
                       {"bos_token_id", 2},
                       {"eos_token_ids", {2}},
                       {"pad_token_id", 1},
                       {"parameters", 7000}};
  manifest["target"] = {
      {"device", "cpu"},
      {"variants", {{{"name", "base"}, {"features", Json::array()}}}}};
}

void TestModel::targetCuda() {
  manifest["kernels"] = {{{"name", "step"},
                          {"has_prepare", false},
                          {"library", ""},
                          {"ops", Json::array()},
                          {"scratch_bytes", 0},
                          {"launch",
                           {{"entry", "step"},
                            {"blocks", 1},
                            {"tokens_per_block", 0},
                            {"blocks_per_sm", 0},
                            {"threads", 32},
                            {"shared_bytes", 0},
                            {"overlaps", true}}}}};
  const Json step = {
      {"name", "step"},
      {"role", "other"},
      {"layer", -1},
      {"kernel", 0},
      {"args", {{{"buffer", 0}}, {{"buffer", 1}}, {{"buffer", 2}}}},
      {"units", 1},
      {"per_token", false},
      {"grain", 1},
      {"counts", -1},
      {"weight_bytes", 0},
      {"count_bytes", 0},
      {"after", Json::array()},
      {"reads", Json::array()},
      {"writes", Json::array()},
      {"sources", {"an.onnx.node"}}};
  for (const char *entry : {"decode", "prefill"})
    manifest["entries"][entry]["stages"] = {step};
  manifest["entries"].erase("decode_dense");
  manifest["selections"] = Json::array();
  manifest["target"] = {
      {"device", "cuda"},
      {"variants", {{{"name", "sm_90"}, {"features", Json::array()}}}}};
}

std::string TestModel::weights() const {
  std::string bytes;
  for (const std::vector<float> *data : {&table, &mixWeight, &product, &bias})
    bytes.append(reinterpret_cast<const char *>(data->data()),
                 data->size() * sizeof(float));
  return bytes;
}

int64_t TestModel::buffer(const std::string &name) const {
  for (size_t i = 0; i < manifest["buffers"].size(); ++i)
    if (manifest["buffers"][i]["name"] == name)
      return static_cast<int64_t>(i);
  ADD_FAILURE() << "no buffer " << name;
  return 0;
}

int64_t TestModel::stage(const std::string &entry,
                         const std::string &name) const {
  const Json &stages = manifest["entries"][entry]["stages"];
  for (size_t i = 0; i < stages.size(); ++i)
    if (stages[i]["name"] == name)
      return static_cast<int64_t>(i);
  ADD_FAILURE() << "no stage " << name;
  return 0;
}

BundleImage TestModel::image() const {
  return image(readFile(FORESIGHT_TEST_KERNELS));
}

BundleImage TestModel::image(const std::string &code) const {
  BundleImage made{{{SectionKind::kManifest, "", manifest.dump()}}};
  for (const Json &variant : manifest["target"]["variants"])
    made.sections.push_back({SectionKind::kCode, variant["name"], code});
  made.sections.push_back({SectionKind::kTokenizer, "", "{}"});
  made.sections.push_back({SectionKind::kWeights, "", weights()});
  return made;
}

std::string TestModel::write(const std::string &name) const {
  const std::string path = temporaryPath(name);
  writeFile(path, image().bytes());
  return path;
}

float TestModel::embedded(int32_t id, int64_t position, int64_t c) const {
  return table[static_cast<size_t>(id * kColumns + c)] +
         static_cast<float>(position);
}

float TestModel::mixed(int32_t id, int64_t position, int64_t c) const {
  float sum = 0;
  for (int64_t i = 0; i < kColumns; ++i)
    sum += embedded(id, position, i);
  return embedded(id, position, c) + sum * mixWeight[static_cast<size_t>(c)];
}

float TestModel::projected(int32_t id, int64_t position, int64_t c) const {
  float sum = 0;
  for (int64_t k = 0; k < kColumns; ++k)
    sum += embedded(id, position, k) *
           product[static_cast<size_t>(c * kColumns + k)];
  return std::max(0.0f, sum + bias[static_cast<size_t>(c)]) +
         embedded(id, position, c);
}

std::string temporaryPath(const std::string &name) {
  struct Folder {
    Folder() {
      std::string pattern =
          (std::filesystem::temp_directory_path() / "foresight-XXXXXX")
              .string();
      if (!mkdtemp(pattern.data()))
        ADD_FAILURE() << "no temporary folder";
      path = pattern;
    }
    ~Folder() {
      std::error_code ignored;
      std::filesystem::remove_all(path, ignored);
    }
    std::filesystem::path path;
  };
  static const Folder folder;
  return (folder.path / name).string();
}

void writeFile(const std::string &path, const std::string &bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

} // namespace foresight::test
