//===- UploadTest.cpp - How fast weights come to the GPU ------------------===//
#include "TestBundle.h"

#include "foresight/runtime/CudaDevice.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>

using namespace foresight;
using namespace foresight::test;

namespace {

/// The number that follows `words`; 0 if there is none.
double numberBehind(const std::string &text, const std::string &words) {
  const size_t at = text.find(words);
  return at == std::string::npos
             ? 0
             : std::strtod(text.c_str() + at + words.size(), nullptr);
}

/// Weights of a made-up model, most of them padding, that lie in the page
/// cache: the share of the link's own speed is printed and checked loosely,
/// since others may use the machine.
TEST(UploadGpu, WeightsComeAtTheSpeedOfTheLink) {
  TestModel model;
  model.targetCuda();
  BundleImage image = model.image(".version 7.8\n.target sm_90\n"
                                  ".address_size 64\n"
                                  ".visible .entry step() { ret; }\n");
  // Of a large model, pinning memory is a smaller share.
  const char *said = std::getenv("FORESIGHT_UPLOAD_GIB");
  const size_t bytes = (said ? std::strtoull(said, nullptr, 10) : 4ull) << 30;
  for (BundleImage::Section &section : image.sections)
    if (section.kind == bundle::SectionKind::kWeights)
      section.bytes.resize(bytes);
  const std::string path = temporaryPath("upload.fsb");
  writeFile(path, image.bytes());
  auto bundle = Bundle::open(path);
  ASSERT_TRUE(bundle.ok()) << bundle.error().message;
  auto device = createCudaDevice({.measure = true});
  ASSERT_TRUE(device.ok()) << device.error().message;
  double share = 0;
  for (int turn = 0; turn < 3; ++turn) {
    auto program = (*device)->load(*bundle);
    ASSERT_TRUE(program.ok()) << program.error().message;
    const std::string text = (*program)->description();
    std::printf("%s\n", text.c_str());
    const double copied = numberBehind(text, "copied at ");
    const double link = numberBehind(text, "GB/s, link ");
    ASSERT_GT(copied, 0) << text;
    ASSERT_GT(link, 0) << text;
    share = std::max(share, copied / link);
  }
  std::filesystem::remove(path);
  std::printf("%.0f %% of the link\n", share * 100);
  EXPECT_GT(share, 0.2);
}

} // namespace
