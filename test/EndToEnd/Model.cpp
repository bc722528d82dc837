//===- Model.cpp - A bundle that a test runs ------------------------------===//

#include "Model.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <stdexcept>

using namespace foresight;

namespace foresight::test {

namespace {

template <typename T> T must(Result<T> result) {
  if (!result.ok())
    throw std::runtime_error(result.error().message);
  return std::move(*result);
}

} // namespace

Model::Model(const std::string &path) {
  bundle = std::make_unique<Bundle>(must(Bundle::open(path)));
  device = must(bundle->manifest().device == "cuda" ? createCudaDevice()
                                                    : createCpuDevice());
  program = must(device->load(*bundle));
  sequence = std::make_unique<Session>(must(Session::create(*program)));
}

std::span<const float> Model::prompt(std::span<const int32_t> ids) {
  return must(sequence->prompt(ids));
}

std::span<const float> Model::decode(int32_t id) {
  return must(sequence->decode(id));
}

int32_t argmax(std::span<const float> logits) {
  return static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) -
                              logits.begin());
}

std::vector<int32_t> Model::greedy(std::vector<int32_t> ids, int64_t count) {
  EXPECT_TRUE(sequence->reset().ok());
  std::span<const float> logits = prompt(ids);
  for (int64_t i = 0; i < count; ++i) {
    int32_t next = argmax(logits);
    ids.push_back(next);
    if (i + 1 < count)
      logits = decode(next);
  }
  return ids;
}

double Model::negativeLogLikelihood(std::span<const int32_t> ids) {
  EXPECT_TRUE(sequence->reset().ok());
  double total = 0;
  for (size_t i = 0; i + 1 < ids.size(); ++i) {
    std::span<const float> logits = decode(ids[i]);
    double most = *std::max_element(logits.begin(), logits.end());
    double sum = 0;
    for (float logit : logits)
      sum += std::exp(logit - most);
    total += most + std::log(sum) - logits[ids[i + 1]];
  }
  return total / (ids.size() - 1);
}

Expected::Expected(const std::string &path)
    : file(must(Safetensors::openFile(path))) {}

const TensorInfo &Expected::tensor(const std::string &name,
                                   ElementType type) const {
  const TensorInfo *found = file.find(name);
  if (!found || found->type != type)
    throw std::runtime_error("no tensor " + name);
  return *found;
}

std::vector<int32_t> Expected::ids(const std::string &name) const {
  const TensorInfo &info = tensor(name, ElementType::I64);
  std::vector<int64_t> wide(info.bytes / sizeof(int64_t));
  std::memcpy(wide.data(), info.data(), info.bytes);
  return {wide.begin(), wide.end()};
}

std::vector<float> Expected::floats(const std::string &name) const {
  const TensorInfo &info = tensor(name, ElementType::F32);
  std::vector<float> values(info.bytes / sizeof(float));
  std::memcpy(values.data(), info.data(), info.bytes);
  return values;
}

void expectLogits(Model &model, const std::vector<int32_t> &ids,
                  const std::vector<float> &logits, float tolerance) {
  ASSERT_TRUE(model.session().reset().ok());
  size_t vocabulary = model.manifest().model.vocabSize;
  ASSERT_EQ(logits.size(), ids.size() * vocabulary);
  for (size_t t = 0; t < ids.size(); ++t) {
    std::span<const float> row = model.decode(ids[t]);
    ASSERT_EQ(row.size(), vocabulary);
    float worst = 0;
    for (size_t i = 0; i < vocabulary; ++i) {
      float error = std::fabs(row[i] - logits[t * vocabulary + i]);
      worst = error >= worst ? error : worst; // a NaN stays 0 here:
      ASSERT_FALSE(std::isnan(row[i])) << "token " << t << ", logit " << i;
    }
    EXPECT_LE(worst, tolerance) << "at token " << t;
  }
}

} // namespace foresight::test
