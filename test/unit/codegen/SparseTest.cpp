//===- SparseTest.cpp - Score, select, multiply ---------------------------===//

#include "../Format.h"
#include "KernelHarness.h"

#include "foresight/lowbit/Reference.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

using namespace foresight;
using namespace foresight::testing;
using Floats = std::vector<float>;

namespace {

struct Case {
  std::string variant;
  int bits;
  int64_t d, f;
  Element element;
  double kappa;
};

class SparseTest : public ::testing::TestWithParam<Case> {
protected:
  void SetUp() override {
    const Case &c = GetParam();
    for (const CpuVariant &v : runnableVariants())
      if (v.name == c.variant)
        variant = findCpuVariant(v.name);
    if (!variant)
      GTEST_SKIP() << "this machine does not run " << c.variant;
  }

  /// fc1 dense, fc1 of the selected, and LayerNorm alone.
  std::string text() {
    const Case &c = GetParam();
    std::string x = str("tensor<1x%ldxf32>", c.d),
                h = str("tensor<1x%ldxf32>", c.f), e = nameOf(c.element),
                w = str("tensor<%ldx%ldx%s>", c.f, c.d, e.c_str()),
                v = str("tensor<%ldx%s>", c.d, e.c_str()),
                b = str("tensor<%ldx%s>", c.f, e.c_str()),
                copy =
                    str("!foresight.low_bit<%ld x %ld, %d>", c.f, c.d, c.bits),
                set = str("!foresight.index_set<%ld of %ld>", c.f, c.f);
    std::string norm = "%n = foresight.layer_norm %x gamma(%g : " + v +
                       ") beta(%b : " + v + ") epsilon = 1.0e-5 : " + x +
                       " -> " + x + "\n";
    std::string relu = "{activation = #foresight.activation<relu>}";
    std::string plain =
        "%n0 = foresight.layer_norm %x epsilon = 1.0e-5 : " + x + " -> " + x +
        "\n";
    std::string args = "(%x: " + x + ", %g: " + v + ", %b: " + v +
                       ", %w: " + w + ", %b1: " + b;
    return "foresight.kernel @dense" + args + ") {\n" + norm +
           "%h = foresight.linear %n, %w bias(%b1 : " + b + ") " + relu +
           " : " + x + ", " + w + " -> " + h + "\nforesight.yield %h : " + h +
           "\n}\nforesight.kernel @norm(%x: " + x + ") {\n" + plain +
           "foresight.yield %n0 : " + x + "\n}\nforesight.kernel @sparse" +
           args + ", %copy: " + copy + ") {\n" + plain + norm +
           "%s, %t = foresight.predict %n0, %copy : " + x + ", " + copy +
           " -> " + h +
           "\n%set = foresight.select_certified %s, %n0, %copy kappa = " +
           str("%f", c.kappa) + " after(%t) : " + h + ", " + x + ", " + copy +
           " -> " + set +
           "\n%h = foresight.gather_linear %n, %w bias(%b1 : " + b +
           ") rows(%set) " + relu + " : " + x + ", " + w + ", " + set + " -> " +
           h + "\nforesight.yield %h : " + h + "\n}";
  }

  const CpuVariant *variant = nullptr;
};

TEST_P(SparseTest, KeepsWhatTheReferenceKeepsAndComputesItAsDense) {
  const Case &c = GetParam();
  std::string error;
  auto kernels = Kernels::compile(text(), *variant, error);
  ASSERT_TRUE(kernels) << error;

  Floats gamma = randomValues(1, c.d), beta = randomValues(2, c.d, 0.1f),
         w = randomValues(3, c.f * c.d), b1 = randomValues(4, c.f);
  for (float &v : w)
    v = roundTo(c.element, v);
  // Biases spread from surely off to surely on.
  for (int64_t i = 0; i < c.f; ++i)
    b1[i] = (b1[i] - 0.6f) * 1.2f * std::sqrt(float(c.d));
  Memory copy(lowbit::record(c.f, c.d, c.bits).bytes);
  std::span<std::byte> bytes(copy.as<std::byte>(), copy.size());
  lowbit::Packer packer(c.f, c.d, c.bits, gamma, beta, bytes);
  for (int64_t i = 0; i < c.f; ++i)
    packer.pack(i, std::span(w).subspan(i * c.d, c.d), b1[i]);
  lowbit::RecordView record(bytes.data(), c.f, c.d, c.bits);
  Memory gm = makeVector(gamma), bm = makeVector(beta),
         wm = makeMatrix(c.element, c.f, c.d, w), b1m = makeVector(b1);

  int64_t keptOverall = 0;
  for (int seed = 0; seed < 5; ++seed) {
    Floats x = randomValues(10 + seed, c.d, 2);
    x[seed] = 9;
    if (seed == 4)
      x[3] = std::nanf("");
    Memory xm = makeRows(1, c.d, x), normed = makeRows(1, c.d),
           dense = makeRows(1, c.f);
    kernels->run("norm", {xm.data(), normed.data()}, {1, 0});
    kernels->run(
        "dense",
        {xm.data(), gm.data(), bm.data(), wm.data(), b1m.data(), dense.data()},
        {1, 0});
    lowbit::Activations reference =
        lowbit::quantiseActivations(std::span(normed.as<float>(), c.d), c.bits);
    std::vector<int32_t> expected =
        lowbit::select(record, reference, static_cast<float>(c.kappa));

    for (int64_t cut : {0, 1, 3}) {
      Memory out = makeRows(1, c.f), counts(4 * kernels->unitsOf("sparse", 1));
      std::memset(out.data(), 0xff, out.size());
      kernels->run("sparse",
                   {xm.data(), gm.data(), bm.data(), wm.data(), b1m.data(),
                    copy.data(), out.data(), counts.data()},
                   {1, 0}, cut);
      // A neuron right at the bound may fall either way: only orders of f32
      // sums differ from the reference.
      int64_t kept = 0;
      for (int64_t u = 0; u < kernels->unitsOf("sparse", 1); ++u)
        kept += counts.as<int32_t>()[u];
      EXPECT_NEAR(kept, int64_t(expected.size()), 1);
      keptOverall += kept;
      int64_t differ = 0;
      for (int64_t i = 0; i < padded(c.f); ++i) {
        float got = out.as<float>()[i];
        bool member =
            std::binary_search(expected.begin(), expected.end(), int32_t(i));
        float want = member ? dense.as<float>()[i] : 0.0f;
        if (std::memcmp(&got, &want, 4) != 0 &&
            !(std::isnan(got) && std::isnan(want)))
          ++differ;
        if (c.kappa == 1 && i < c.f && dense.as<float>()[i] > 0) {
          ASSERT_EQ(got, dense.as<float>()[i]) << "an active neuron was lost";
        }
      }
      EXPECT_LE(differ, 1) << "seed " << seed << " cut " << cut;
    }
  }
  // The case is worth something only if the test decides both ways.
  EXPECT_GT(keptOverall, 5);
  EXPECT_LT(keptOverall, 15 * c.f);
}

std::vector<Case> cases() {
  std::vector<Case> result;
  for (const char *variant : {"x86-64-v3", "x86-64-v4"}) {
    for (int bits = 2; bits <= 8; ++bits)
      result.push_back({variant, bits, 384, 160, Element::F16, 0.25});
    result.push_back({variant, 4, 48, 100, Element::BF16, 1});
    result.push_back({variant, 6, 200, 77, Element::F32, 1});
    result.push_back({variant, 8, 384, 256, Element::F16, 1});
    result.push_back({variant, 3, 130, 33, Element::F16, 0.1});
  }
  return result;
}

INSTANTIATE_TEST_SUITE_P(All, SparseTest, ::testing::ValuesIn(cases()),
                         [](const auto &info) {
                           std::string name = info.param.variant;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name + "_" + std::to_string(info.param.bits) +
                                  "bits_" + std::to_string(info.param.d) + "x" +
                                  std::to_string(info.param.f);
                         });

} // namespace
