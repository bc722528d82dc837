//===- BatchPtxTest.cpp - Kernels of a batch, to PTX ----------------------===//
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
  int64_t rows, columns, outputs, products;
  const char *element;
  bool hasResidual;
};

class BatchProductPtxTest : public PtxTestOf<Product> {
protected:
  BatchProductPtxTest() {
    const Product &p = GetParam();
    std::string x = formatv("tensor<?x{0}x{1}>", p.columns, p.element);
    std::string y = formatv("tensor<?x{0}xf32>", p.outputs);
    std::string w =
        formatv("tensor<{0}x{1}x{2}>", p.outputs, p.columns, p.element);
    std::string b = formatv("tensor<{0}xf32>", p.outputs);
    std::string arguments = "%x: " + x, body, yielded, types;
    for (int64_t i = 0; i < p.products; ++i) {
      arguments += formatv(", %w{0}: {1}, %b{0}: {2}, %r{0}: {3}", i, w, b, y);
      body += formatv("%y{0} = foresight.linear %x, %w{0} bias(%b{0} : {1}) : "
                      "{2}, {3} -> {4}\n",
                      i, b, x, w, y);
      if (p.hasResidual)
        body += formatv("%s{0} = foresight.add %y{0}, %r{0} : {1}\n", i, y);
      yielded +=
          formatv("{0}%{1}{2}", i ? ", " : "", p.hasResidual ? "s" : "y", i);
      types += (i ? ", " : "") + y;
    }
    parse(formatv("foresight.kernel @product({0}) attributes "
                  "{{foresight.max_tokens = {1} : i64} {{\n{2}foresight.yield "
                  "{3} : {4}\n}",
                  arguments, p.rows, body, yielded, types));
  }
};

TEST_P(BatchProductPtxTest, AssemblesWithoutSpills) { expectAssembles(); }

/// A block has all that its multiprocessor has, so that no other finds room.
TEST_P(BatchProductPtxTest, OneBlockFitsAMultiprocessor) {
  GpuLaunch launch = launchOf(90);
  EXPECT_LE(launch.sharedBytes, 227 * kKiB);
  if (launch.blocksPerSm == 0)
    return;
  EXPECT_EQ(launch.blocksPerSm, 1);
  EXPECT_GT(2 * (launch.sharedBytes + kKiB), 228 * kKiB);
  EXPECT_LE(launchOf(80).sharedBytes, 99 * kKiB);
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, BatchProductPtxTest,
    testing::Values(Product{2, 4096, 4096, 3, "f16", false},
                    Product{8, 4096, 16384, 1, "f16", false},
                    Product{8, 16384, 4096, 1, "f16", true},
                    Product{16, 7168, 50272, 1, "bf16", false},
                    Product{32, 4096, 4096, 3, "f16", false},
                    Product{32, 36864, 9216, 1, "bf16", true},
                    Product{3, 100, 60, 1, "f16", true}),
    [](const auto &info) {
      return formatv("{0}_rows_{1}_to_{2}", info.param.rows, info.param.columns,
                     info.param.outputs)
          .str();
    });

struct Attention {
  int64_t rows, heads, headDim, capacity, blocks;
  const char *element;
};

class BatchAttentionPtxTest : public PtxTestOf<Attention> {
protected:
  BatchAttentionPtxTest() {
    const Attention &a = GetParam();
    std::string row =
        formatv("tensor<?x{0}x{1}>", a.heads * a.headDim, a.element);
    std::string cache =
        formatv("!foresight.kv_cache<{0} x {1}, {2}, {3}, sequences = {4}>",
                a.heads, a.headDim, a.capacity, a.element, a.rows);
    parse(formatv(
        "foresight.kernel @attention(%q: {0}, %k: {0}, %v: {0}, %kv: {1}, %p: "
        "tensor<?xi32>, %s: tensor<?xi32>) attributes {{foresight.max_tokens = "
        "{2} : i64} {{\n%kv1 = foresight.kv_append %kv, %k, %v at %p in(%s : "
        "tensor<?xi32>) : {1}, {0}, tensor<?xi32>\n%a = foresight.attention "
        "%q, %kv1 at %p in(%s : tensor<?xi32>) scale = 0.125 : {0}, {1}, "
        "tensor<?xi32> -> {0}\nforesight.yield %a, %kv1 : {0}, {1}\n}",
        row, cache, a.rows));
  }
};

TEST_P(BatchAttentionPtxTest, AssemblesWithoutSpills) { expectAssembles(); }

TEST_P(BatchAttentionPtxTest, ARowHasItsOwnBlocks) {
  EXPECT_EQ(launchOf(90).blocks, GetParam().heads * GetParam().blocks);
  EXPECT_EQ(launchOf(90).tokensPerBlock, 1);
}

INSTANTIATE_TEST_SUITE_P(Shapes, BatchAttentionPtxTest,
                         testing::Values(Attention{3, 6, 64, 512, 2, "f16"},
                                         Attention{4, 4, 16, 64, 1, "f32"},
                                         Attention{8, 32, 128, 2048, 2, "f16"},
                                         Attention{32, 72, 128, 2048, 1,
                                                   "bf16"}),
                         [](const auto &info) {
                           return formatv("{0}_rows_{1}_heads_of_{2}",
                                          info.param.rows, info.param.heads,
                                          info.param.headDim)
                               .str();
                         });

} // namespace
