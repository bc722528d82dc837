//===- DeviceTest.h - What every device must do -----------------*- C++ -*-===//
#ifndef FORESIGHT_RUNTIME_TEST_DEVICETEST_H
#define FORESIGHT_RUNTIME_TEST_DEVICETEST_H

#include "TestBundle.h"

#include "foresight/runtime/Device.h"

#include <gtest/gtest.h>

#include <functional>
#include <memory>

namespace foresight::test {

/// A device that the conformance suite runs on: DeviceTest.cpp has the tests,
/// one line of INSTANTIATE_TEST_SUITE_P adds a device.
struct DeviceUnderTest {
  std::string name;
  std::function<Result<std::unique_ptr<Device>>()> create;
};

class DeviceTest : public testing::TestWithParam<DeviceUnderTest> {
protected:
  void SetUp() override {
    auto created = GetParam().create();
    ASSERT_TRUE(created.ok()) << created.error().message;
    device = std::move(*created);
  }

  /// Loads `model`; null after a test failure.
  Program *load();

  /// Bytes of a buffer as values.
  template <typename T>
  std::vector<T> values(const std::string &buffer, size_t count) {
    std::vector<T> result(count);
    const Status status = program->read(
        model.buffer(buffer), 0, std::as_writable_bytes(std::span(result)));
    EXPECT_TRUE(status.ok()) << status.error().message;
    return result;
  }
  template <typename T>
  void set(const std::string &buffer, const std::vector<T> &data) {
    const Status status =
        program->write(model.buffer(buffer), 0, std::as_bytes(std::span(data)));
    EXPECT_TRUE(status.ok()) << status.error().message;
  }
  void setInputs(const std::vector<int32_t> &ids, int32_t position);
  int64_t entry(const char *name) const {
    return program->manifest().entryIndex(name);
  }

  TestModel model;
  std::unique_ptr<Device> device;
  std::unique_ptr<Bundle> bundle;
  std::unique_ptr<Program> program;
};

} // namespace foresight::test
#endif
