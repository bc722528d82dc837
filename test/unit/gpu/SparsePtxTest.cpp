//===- SparsePtxTest.cpp - Kernels that leave rows out, to PTX ------------===//
//
// Every width, number of bits and element type goes to PTX; where CUDA's
// assembler is installed it must keep all values in registers.
//
//===----------------------------------------------------------------------===//

#include "../Format.h"
#include "PtxHarness.h"

#include "foresight/lowbit/Layout.h"

using namespace mlir;
using namespace foresight;

namespace {

struct Case {
  int64_t columns, neurons;
  int bits;
  const char *element;
};

class SparsePtxTest : public testing::TestWithParam<Case> {
protected:
  SparsePtxTest() { context.loadDialect<ForesightDialect>(); }

  /// fc1 of the neurons that a copy keeps, fc2 of those that are active; and
  /// the copy itself made from what is synthetic.
  std::string text() {
    const Case &c = GetParam();
    std::string x = str("tensor<1x%ldxf32>", c.columns),
                h = str("tensor<1x%ldxf32>", c.neurons),
                w = str("tensor<%ldx%ldx%s>", c.neurons, c.columns, c.element),
                v = str("tensor<%ldxf32>", c.columns),
                b = str("tensor<%ldxf32>", c.neurons),
                copy = str("!foresight.low_bit<%ld x %ld, %d>", c.neurons,
                           c.columns, c.bits),
                set = str("!foresight.index_set<%ld of %ld>", c.neurons,
                          c.neurons);
    std::string rule = " = #foresight.synthetic<seed = 1, mean = 0.0 : f64, "
                       "deviation = 1.0 : f64>\n";
    return "foresight.weight @w : " + w + rule + "foresight.weight @b1 : " + b +
           rule + "foresight.weight @g : " + v + rule +
           "foresight.weight @b : " + v + rule +
           "foresight.weight @copy : " + copy +
           " = #foresight.derived<low_bit, [@w, @b1, @g, @b]>\n" +
           "foresight.kernel @fc1(%x: " + x + ", %g: " + v + ", %b: " + v +
           ", %copy: " + copy + ", %w: " + w + ", %b1: " + b + ") {\n" +
           "%n = foresight.layer_norm %x gamma(%g : " + v + ") beta(%b : " + v +
           ") epsilon = 1.0e-5 : " + x + " -> " + x + "\n" +
           "%n0 = foresight.layer_norm %x epsilon = 1.0e-5 : " + x + " -> " +
           x + "\n%s, %t = foresight.predict %n0, %copy : " + x + ", " + copy +
           " -> " + h +
           "\n%set = foresight.select_certified %s, %n0, %copy kappa = 1.0 "
           "after(%t) : " +
           h + ", " + x + ", " + copy + " -> " + set +
           "\n%h = foresight.gather_linear %n, %w bias(%b1 : " + b +
           ") rows(%set) {activation = #foresight.activation<relu>} : " + x +
           ", " + w + ", " + set + " -> " + h + "\nforesight.yield %h : " + h +
           "\n}\nforesight.kernel @fc2(%h: " + h + ", %w: " + w + ", %b: " + v +
           ", %r: " + x +
           ") {\n%y = foresight.column_linear %h, %w bias(%b : " + v +
           ") {skip_zeros} : " + h + ", " + w + " -> " + x +
           "\n%z = foresight.add %r, %y : " + x +
           "\nforesight.yield %z : " + x + "\n}\n";
  }

  MLIRContext context;
};

TEST_P(SparsePtxTest, AssemblesWithoutSpills) {
  const Case &c = GetParam();
  auto module = parseSourceString<ModuleOp>(text(), &context);
  ASSERT_TRUE(module);
  OwningOpRef<ModuleOp> code;
  ASSERT_TRUE(succeeded(lowerToGpu(*module, code)));
  std::string error, ptx;
  FailureOr<CudaVariant> variant = cudaVariant("cuda:sm_90", error);
  ASSERT_TRUE(succeeded(variant)) << error;
  ASSERT_TRUE(succeeded(emitPtx(*code, *variant, ptx)));
  std::string quantise = str("foresight_quantise_%s_%d(", c.element, c.bits);
  for (const std::string &entry :
       {std::string("fc1("), std::string("fc2("), quantise})
    EXPECT_NE(ptx.find(".entry " + entry), std::string::npos) << entry;
  // Integer products, and copies that need no registers.
  EXPECT_NE(ptx.find("dp4a.u32.s32"), std::string::npos);
  EXPECT_NE(ptx.find("cp.async.cg.shared.global"), std::string::npos);
  expectNoSpills(ptx, *variant);
}

TEST_P(SparsePtxTest, CountsWhatIsReadBesidesTheCopy) {
  const Case &c = GetParam();
  auto module = parseSourceString<ModuleOp>(text(), &context);
  ASSERT_TRUE(module);
  auto padded = [](int64_t n) { return (n + 31) / 32 * 32; };
  int64_t element = StringRef(c.element) == "f32" ? 4 : 2;
  FailureOr<GpuLaunch> fc1 =
      analyzeGpuKernel(module->lookupSymbol<KernelOp>("fc1"));
  ASSERT_TRUE(succeeded(fc1));
  EXPECT_TRUE(fc1->hasCounts);
  EXPECT_EQ(fc1->countBytes, padded(c.columns) * element);
  EXPECT_EQ(fc1->weightBytes,
            lowbit::record(c.neurons, c.columns, c.bits).bytes +
                4 * (2 * padded(c.columns) + padded(c.neurons)));
  EXPECT_LE(fc1->units, c.neurons);
  EXPECT_LE(fc1->sharedBytes, 227 << 10);
  FailureOr<GpuLaunch> fc2 =
      analyzeGpuKernel(module->lookupSymbol<KernelOp>("fc2"));
  ASSERT_TRUE(succeeded(fc2));
  EXPECT_TRUE(fc2->hasCounts);
  EXPECT_EQ(fc2->countBytes * fc2->units, padded(c.columns) * element);
  EXPECT_EQ(fc2->weightBytes, 4 * padded(c.columns));
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, SparsePtxTest,
    testing::Values(Case{384, 1536, 3, "f16"}, Case{50, 70, 5, "f32"},
                    Case{768, 3072, 6, "bf16"}, Case{2048, 8192, 7, "f16"},
                    Case{2048, 8192, 2, "f16"}, Case{2560, 10240, 4, "f32"},
                    Case{2560, 10240, 7, "f16"}, Case{5120, 20480, 8, "f16"},
                    Case{9216, 36864, 6, "f16"}, Case{12288, 49152, 7, "f16"}),
    [](const auto &info) {
      return str("d%ld_bits%d_%s", info.param.columns, info.param.bits,
                 info.param.element);
    });

} // namespace
