//===- NumbersTest.cpp - Formats, synthetic numbers, hashes ---------------===//

#include "foresight/support/ElementType.h"
#include "foresight/support/Float.h"
#include "foresight/support/Hash.h"
#include "foresight/support/Synthetic.h"

#include <cmath>
#include <cstring>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <numeric>
#include <vector>

using namespace foresight;

namespace {

TEST(FloatTest, EveryHalfSurvivesTheWayToF32AndBack) {
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const float value = halfToFloat(static_cast<uint16_t>(bits));
    if (std::isnan(value))
      EXPECT_TRUE(std::isnan(halfToFloat(floatToHalf(value))));
    else
      EXPECT_EQ(floatToHalf(value), bits) << value;
  }
}

TEST(FloatTest, RoundsToNearestEven) {
  EXPECT_EQ(floatToHalf(1.0f + 0x1p-11f), 0x3c00);            // tie, down
  EXPECT_EQ(floatToHalf(1.0f + 3 * 0x1p-11f), 0x3c02);        // tie, up
  EXPECT_EQ(floatToHalf(1.0f + 0x1p-11f + 0x1p-20f), 0x3c01); // above the tie
  EXPECT_EQ(floatToHalf(65519.9f), 0x7bff);
  EXPECT_EQ(floatToHalf(65520.0f), 0x7c00);
  EXPECT_EQ(floatToHalf(0x1p-25f), 0);
  EXPECT_EQ(floatToHalf(-0x1.8p-25f), 0x8001);
  EXPECT_EQ(floatToBfloat(1.0f + 0x1p-8f), 0x3f80);
  EXPECT_EQ(floatToBfloat(1.0f + 3 * 0x1p-8f), 0x3f82);
  EXPECT_TRUE(std::isnan(bfloatToFloat(floatToBfloat(NAN))));
}

TEST(FloatTest, ArraysConvertLikeSingleNumbers) {
  std::vector<uint16_t> bits(65536 + 3);
  std::iota(bits.begin(), bits.end(), uint16_t{0});
  std::vector<float> values(bits.size());
  halfToFloat(bits.data(), values.data(), bits.size());
  for (size_t i = 0; i < bits.size(); ++i)
    EXPECT_EQ(std::bit_cast<uint32_t>(values[i]),
              std::bit_cast<uint32_t>(halfToFloat(bits[i])))
        << i;
  // Values between halves as well.
  for (float &value : values)
    value = std::isfinite(value) ? value * 1.00049f : value;
  std::vector<uint16_t> rounded(values.size());
  floatToHalf(values.data(), rounded.data(), values.size());
  for (size_t i = 0; i < values.size(); ++i)
    EXPECT_EQ(rounded[i], floatToHalf(values[i])) << values[i];
}

TEST(ElementTypeTest, ConvertsFromAnyAddress) {
  const float values[] = {1.5f, -2.25f, 3};
  for (ElementType type :
       {ElementType::F32, ElementType::F16, ElementType::BF16}) {
    alignas(8) std::byte bytes[16], shifted[17];
    convertFromFloat(values, type, bytes, 3);
    std::memcpy(shifted + 1, bytes, 12);
    float back[3];
    convertToFloat(type, shifted + 1, back, 3);
    EXPECT_THAT(back, testing::ElementsAreArray(values));
  }
}

TEST(SyntheticTest, AnyRangeIsPartOfTheWhole) {
  const Synthetic source{7, 0.5f, 2};
  std::vector<float> whole(1003), part(500);
  source.fill(0, whole.data(), whole.size());
  for (uint64_t first : {0, 1, 2, 3, 101}) {
    source.fill(first, part.data(), part.size());
    EXPECT_TRUE(std::equal(part.begin(), part.end(), whole.begin() + first))
        << first;
  }
}

TEST(SyntheticTest, HasTheMomentsOfANormal) {
  std::vector<float> values(1 << 20);
  Synthetic{42, 1, 3}.fill(1234567, values.data(), values.size());
  double mean = 0, square = 0, fourth = 0;
  int64_t below = 0;
  for (float value : values) {
    const double z = (value - 1) / 3;
    mean += z;
    square += z * z;
    fourth += z * z * z * z;
    below += z < -1.4395; // the 7.5 % quantile
  }
  const auto count = static_cast<double>(values.size());
  EXPECT_NEAR(mean / count, 0, 0.005);
  EXPECT_NEAR(square / count, 1, 0.01);
  EXPECT_NEAR(fourth / count, 3, 0.05);
  EXPECT_NEAR(static_cast<double>(below) / count, 0.075, 0.001);
}

TEST(SyntheticTest, SeedsGiveUnrelatedNumbers) {
  std::vector<float> a(1 << 16), b(1 << 16);
  Synthetic{1, 0, 1}.fill(0, a.data(), a.size());
  Synthetic{2, 0, 1}.fill(0, b.data(), b.size());
  double product = 0;
  for (size_t i = 0; i < a.size(); ++i)
    product += a[i] * b[i];
  EXPECT_LT(std::fabs(product) / std::sqrt(a.size()), 5);
}

TEST(SyntheticTest, QuantilesInvertTheDistribution) {
  for (double p : {1e-6, 0.075, 0.5, 0.9, 1 - 1e-6})
    EXPECT_NEAR(0.5 * std::erfc(-normalQuantile(p) / std::sqrt(2.0)), p, 1e-12);
}

TEST(HashTest, PiecesHashLikeTheWhole) {
  std::vector<std::byte> bytes(5000);
  for (size_t i = 0; i < bytes.size(); ++i)
    bytes[i] = static_cast<std::byte>(i * 7);
  for (size_t size : {0, 1, 16, 240, 241, 5000}) {
    const std::span<const std::byte> all(bytes.data(), size);
    Hasher hasher;
    for (size_t at = 0; at < size; at += 97)
      hasher.update(all.subspan(at, std::min<size_t>(97, size - at)));
    EXPECT_EQ(hasher.digest64(), hash64(all)) << size;
    EXPECT_EQ(hasher.digest128(), hash128(all)) << size;
  }
}

} // namespace
