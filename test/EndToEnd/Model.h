//===- Model.h - A bundle that a test runs ----------------------*- C++ -*-===//
#ifndef FORESIGHT_TEST_ENDTOEND_MODEL_H
#define FORESIGHT_TEST_ENDTOEND_MODEL_H

#include "foresight/runtime/CpuDevice.h"
#include "foresight/runtime/CudaDevice.h"
#include "foresight/runtime/Session.h"
#include "foresight/support/Safetensors.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

namespace foresight::test {

/// A bundle loaded into this process with one sequence. What fails throws, and
/// so fails the test.
class Model {
public:
  explicit Model(const std::string &path);

  const Manifest &manifest() const { return bundle->manifest(); }
  Session &session() { return *sequence; }
  const Bundle &file() const { return *bundle; }

  std::span<const float> prompt(std::span<const int32_t> ids);
  std::span<const float> decode(int32_t id);
  /// The prompt and `count` tokens after it, each the likeliest.
  std::vector<int32_t> greedy(std::vector<int32_t> ids, int64_t count);
  /// Mean negative log likelihood of ids[1..], decoding token by token.
  double negativeLogLikelihood(std::span<const int32_t> ids);

private:
  std::unique_ptr<Bundle> bundle;
  std::unique_ptr<Device> device;
  std::unique_ptr<Program> program;
  std::unique_ptr<Session> sequence;
};

int32_t argmax(std::span<const float> logits);

/// Integers and floats of an `expected.safetensors`.
class Expected {
public:
  explicit Expected(const std::string &path);
  std::vector<int32_t> ids(const std::string &name) const;
  std::vector<float> floats(const std::string &name) const;

private:
  const TensorInfo &tensor(const std::string &name, ElementType type) const;
  Safetensors file;
};

/// Decodes `ids` token by token and expects each row of `logits` (a row a
/// token) within `tolerance`.
void expectLogits(Model &model, const std::vector<int32_t> &ids,
                  const std::vector<float> &logits, float tolerance);

} // namespace foresight::test
#endif
