//===- DensePtxTest.cpp - Products and attention of a token, to PTX -------===//
//
// Real shapes, for the oldest chip and a newer one: registers hold everything,
// and as many blocks fit a multiprocessor as the plan says.
//
//===----------------------------------------------------------------------===//

#include "PtxHarness.h"

using namespace mlir;
using namespace foresight;
using llvm::formatv;

namespace {

struct Product {
  int64_t columns, rows;
  const char *element;
  bool isNormed;
};

class ProductPtxTest : public PtxTestOf<Product> {
protected:
  ProductPtxTest() {
    const Product &p = GetParam();
    std::string x = formatv("tensor<1x{0}xf32>", p.columns);
    std::string y = formatv("tensor<1x{0}xf32>", p.rows);
    std::string w =
        formatv("tensor<{0}x{1}x{2}>", p.rows, p.columns, p.element);
    std::string b = formatv("tensor<{0}xf32>", p.rows);
    std::string text = formatv(
        "foresight.kernel @product(%x: {0}, %w: {1}, %b: {2}) {{\n", x, w, b);
    if (p.isNormed)
      text += formatv("%n = foresight.layer_norm %x epsilon = 1.0e-5 : {0} -> "
                      "{0}\n",
                      x);
    text += formatv("%y = foresight.linear %{0}, %w bias(%b : {1}) : {2}, {3} "
                    "-> {4}\nforesight.yield %y : {4}\n}",
                    p.isNormed ? "n" : "x", b, x, w, y);
    parse(text);
  }
};

TEST_P(ProductPtxTest, AssemblesWithoutSpills) { expectAssembles(); }

/// A block more would leave another multiprocessor with one less.
TEST_P(ProductPtxTest, ExactlyThePlannedBlocksFitAMultiprocessor) {
  ASSERT_TRUE(module);
  GpuLaunch launch = launchOf(90);
  EXPECT_LE(launch.sharedBytes, 227 * kKiB);
  if (launch.blocksPerSm == 0)
    return;
  int64_t block = launch.sharedBytes + kKiB;
  EXPECT_LE(launch.blocksPerSm * block, 228 * kKiB);
  EXPECT_GT((launch.blocksPerSm + 1) * block, 228 * kKiB);
}

/// Weights would keep x waiting.
TEST_P(ProductPtxTest, TheInputGoesInFrontOfHalfTheRing) {
  ASSERT_TRUE(module);
  RingFills fills = ringFills(*module, "product");
  EXPECT_GE(fills.all, 1);
  EXPECT_EQ(fills.before, (fills.all + 1) / 2);
}

TEST_P(ProductPtxTest, FitsSmallerChipsWhereItsInputDoes) {
  ASSERT_TRUE(module);
  if (GetParam().columns * 4 <= 80 * kKiB)
    EXPECT_LE(launchOf(80).sharedBytes, 99 * kKiB);
}

INSTANTIATE_TEST_SUITE_P(Shapes, ProductPtxTest,
                         testing::Values(Product{384, 1536, "f16", true},
                                         Product{1536, 384, "f16", false},
                                         Product{100, 60, "f32", true},
                                         Product{4096, 12288, "f16", true},
                                         Product{16384, 4096, "f16", false},
                                         Product{7168, 28672, "f16", true},
                                         Product{28672, 7168, "bf16", false},
                                         Product{9216, 50272, "f16", true},
                                         Product{36864, 9216, "f16", false}),
                         [](const auto &info) {
                           return formatv("{0}_to_{1}_{2}", info.param.columns,
                                          info.param.rows, info.param.element)
                               .str();
                         });

struct Attention {
  int64_t heads, headDim, capacity, blocks;
  const char *element;
};

class DecodeAttentionPtxTest : public PtxTestOf<Attention> {
protected:
  DecodeAttentionPtxTest() {
    const Attention &a = GetParam();
    std::string row = formatv("tensor<1x{0}xf32>", a.heads * a.headDim);
    std::string cache = formatv("!foresight.kv_cache<{0} x {1}, {2}, {3}>",
                                a.heads, a.headDim, a.capacity, a.element);
    parse(
        formatv("foresight.kernel @attention(%q: {0}, %k: {0}, %v: {0}, %kv: "
                "{1}, %p: tensor<1xi32>) {{\n%kv1 = foresight.kv_append %kv, "
                "%k, %v at %p : {1}, {0}, tensor<1xi32>\n%a = "
                "foresight.attention %q, %kv1 at %p scale = 0.125 : {0}, {1}, "
                "tensor<1xi32> -> {0}\nforesight.yield %a, %kv1 : {0}, {1}\n}",
                row, cache)
            .str());
  }
};

TEST_P(DecodeAttentionPtxTest, AssemblesWithoutSpills) { expectAssembles(); }

TEST_P(DecodeAttentionPtxTest, SplitsWhatIsLong) {
  ASSERT_TRUE(module);
  EXPECT_EQ(launchOf(90).blocks, GetParam().heads * GetParam().blocks);
}

INSTANTIATE_TEST_SUITE_P(Shapes, DecodeAttentionPtxTest,
                         testing::Values(Attention{6, 64, 512, 2, "f16"},
                                         Attention{4, 16, 64, 1, "f32"},
                                         Attention{5, 80, 2048, 8, "bf16"},
                                         Attention{32, 128, 2048, 8, "f16"},
                                         Attention{72, 128, 2048, 4, "f16"}),
                         [](const auto &info) {
                           return formatv("{0}_heads_of_{1}_{2}",
                                          info.param.heads, info.param.headDim,
                                          info.param.element)
                               .str();
                         });

} // namespace
