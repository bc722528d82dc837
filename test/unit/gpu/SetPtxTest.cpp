//===- SetPtxTest.cpp - Kernels of a set that goes between them, to PTX ---===//
//
// Scores beside attention, gathered rows and gathered columns of every width.
//
//===----------------------------------------------------------------------===//

#include "PtxHarness.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

using namespace mlir;
using namespace foresight;

namespace {

struct Case {
  int64_t columns, neurons, rank;
  const char *element;
};

class SetModules {
protected:
  SetModules() { context.loadDialect<ForesightDialect, func::FuncDialect>(); }

  /// With `launches` between the one of attention and that of fc1.
  OwningOpRef<ModuleOp> parse(const Case &c, llvm::StringRef launches) {
    auto row = [](int64_t n) {
      return llvm::formatv("tensor<1x{0}xf32>", n).str();
    };
    std::string x = row(c.columns), h = row(c.neurons), r = row(c.rank);
    std::string w =
        llvm::formatv("tensor<{0}x{1}x{2}>", c.neurons, c.columns, c.element);
    std::string copy =
        llvm::formatv("!foresight.low_bit<{0} x {1}, 8>", c.neurons, c.rank);
    std::string set =
        llvm::formatv("!foresight.index_set<{0} of {0}>", c.neurons);
    int64_t dim = c.columns / 2;
    std::string cache = llvm::formatv("!foresight.kv_cache<2 x {0}, 64, {1}>",
                                      std::min<int64_t>(dim, 64), c.element);
    std::string q = row(2 * std::min<int64_t>(dim, 64));
    return parseSourceString<ModuleOp>(
        "foresight.kernel @attention(%q: " + q + ", %k: " + q + ", %v: " + q +
            ", %kv: " + cache + ", %p: tensor<1xi32>, %r: " + r +
            ", %copy: " + copy +
            ") {\n%n = foresight.kv_append %kv, %k, %v at %p : " + cache +
            ", " + q + ", tensor<1xi32>\n" +
            "%a = foresight.attention %q, %n at %p scale = 0.125 : " + q +
            ", " + cache + ", tensor<1xi32> -> " + q +
            "\n%s, %t = foresight.predict %r, %copy : " + r + ", " + copy +
            " -> " + h +
            "\n%set = foresight.select_certified %s, %r, %copy kappa = 0.0 "
            "after(%t) : " +
            h + ", " + r + ", " + copy + " -> " + set +
            "\nforesight.yield %n, %a, %set : " + cache + ", " + q + ", " +
            set + "\n}\nforesight.kernel @fc1(%x: " + x + ", %set: " + set +
            ", %w: " + w + ") {\n%n = foresight.layer_norm %x epsilon = " +
            "1.0e-5 : " + x + " -> " + x +
            "\n%h = foresight.gather_linear %n, %w rows(%set) {activation = "
            "#foresight.activation<relu>} : " +
            x + ", " + w + ", " + set + " -> " + h + "\nforesight.yield %h : " +
            h + "\n}\nforesight.kernel @fc2(%h: " + h + ", %set: " + set +
            ", %w: " + w + ", %x: " + x +
            ") {\n%y = foresight.column_linear %h, %w rows(%set : " + set +
            ") : " + h + ", " + w + " -> " + x + "\n%z = foresight.add %x, " +
            "%y : " + x + "\nforesight.yield %z : " + x + "\n}\n" +
            "foresight.kernel @norm(%x: " + x +
            ") {\n%n = foresight.activate %x <relu> : " + x +
            "\nforesight.yield %n : " + x + "\n}\n" +
            "foresight.kernel @plain(%q: " + q + ", %kv: " + cache +
            ", %p: tensor<1xi32>) {\n" +
            "%n = foresight.kv_append %kv, %q, %q at %p : " + cache + ", " + q +
            ", tensor<1xi32>\n" +
            "%a = foresight.attention %q, %n at %p scale = 0.125 : " + q +
            ", " + cache + ", tensor<1xi32> -> " + q +
            "\nforesight.yield %n, %a : " + cache + ", " + q + "\n}\n" +
            "func.func @decode(%x: " + x + ", %q: " + q + ", %kv: " + cache +
            ", %p: tensor<1xi32>, %r: " + r + ", %copy: " + copy +
            ", %w: " + w + ") -> " + h +
            " {\n%s:4 = foresight.launch \"a\" @attention (%q, %q, %q, %kv, "
            "%p, %r, %copy : " +
            q + ", " + q + ", " + q + ", " + cache + ", tensor<1xi32>, " + r +
            ", " + copy + ") outs [] -> (" + cache + ", " + q + ", " + set +
            ")\n" + launchText(launches, x, q, cache) +
            "%h:2 = foresight.launch \"f\" @fc1 after(%s#3) (%x, %s#2, %w : " +
            x + ", " + set + ", " + w + ") outs [] -> (" + h + ")\nreturn " +
            "%h#0 : " + h + "\n}\n",
        &context);
  }

  /// A launch a letter: n(orm) or p(lain attention).
  static std::string launchText(llvm::StringRef launches, const std::string &x,
                                const std::string &q,
                                const std::string &cache) {
    std::string text;
    for (auto [i, letter] : llvm::enumerate(launches))
      if (letter == 'n')
        text += llvm::formatv("%n{0}:2 = foresight.launch \"n{0}\" @norm "
                              "after(%s#3) (%x : {1}) outs [] -> ({1})\n",
                              i, x);
      else
        text += llvm::formatv(
            "%p{0}:3 = foresight.launch \"p{0}\" @plain after(%s#3) (%q, %kv, "
            "%p : {1}, {2}, tensor<1xi32>) outs [] -> ({2}, {1})\n",
            i, q, cache);
    return text;
  }

  /// Whether fc1 reads its set before it waits.
  bool isReadEarly(llvm::StringRef launches) {
    OwningOpRef<ModuleOp> module = parse({64, 96, 16, "f16"}, launches), code;
    std::string error, ptx;
    if (!module || failed(lowerToGpu(*module, code)) ||
        failed(emitPtx(*code, *cudaVariant("cuda:sm_90", error), ptx)))
      ADD_FAILURE() << error;
    size_t entry = ptx.find(".entry " + gpuEntryName("fc1"));
    size_t read = ptx.find("ld.relaxed.gpu", entry);
    size_t wait = ptx.find("griddepcontrol.wait", entry);
    EXPECT_NE(read, std::string::npos);
    EXPECT_NE(wait, std::string::npos);
    return read < wait;
  }

  MLIRContext context;
};

class SetPtxTest : public SetModules, public testing::TestWithParam<Case> {
protected:
  OwningOpRef<ModuleOp> parse() { return SetModules::parse(GetParam(), ""); }
};

TEST_P(SetPtxTest, AssemblesWithoutSpills) {
  OwningOpRef<ModuleOp> module = parse();
  ASSERT_TRUE(module);
  OwningOpRef<ModuleOp> code;
  ASSERT_TRUE(succeeded(lowerToGpu(*module, code)));
  for (const char *chip : {"cuda:sm_80", "cuda:sm_90"}) {
    std::string error, ptx;
    FailureOr<CudaVariant> variant = cudaVariant(chip, error);
    ASSERT_TRUE(succeeded(variant)) << error;
    ASSERT_TRUE(succeeded(emitPtx(*code, *variant, ptx)));
    EXPECT_NE(ptx.find("redux.sync.or.b32"), std::string::npos);
    expectNoSpills(ptx, *variant);
  }
}

TEST_P(SetPtxTest, ScoresRideInBlocksOfTheirOwn) {
  const Case &c = GetParam();
  OwningOpRef<ModuleOp> module = parse();
  ASSERT_TRUE(module);
  FailureOr<GpuLaunch> attention =
      analyzeGpuKernel(module->lookupSymbol<KernelOp>("attention"));
  ASSERT_TRUE(succeeded(attention));
  EXPECT_GT(attention->blocks, 2);
  EXPECT_GE(attention->weightBytes, c.neurons * c.rank);
  for (const char *name : {"fc1", "fc2"}) {
    FailureOr<GpuLaunch> launch =
        analyzeGpuKernel(module->lookupSymbol<KernelOp>(name));
    ASSERT_TRUE(succeeded(launch));
    EXPECT_TRUE(launch->hasCounts);
    EXPECT_EQ(launch->units, 1);
    EXPECT_GE(launch->countBytes, c.columns * 2);
  }
}

class SetOrderTest : public SetModules, public testing::Test {};

TEST_F(SetOrderTest, SetsAreReadEarlyWhereTheirMakerHasEnded) {
  // The maker is in front, and need not have ended.
  EXPECT_FALSE(isReadEarly(""));
  // What is in front let fc1 start behind its own wait.
  EXPECT_TRUE(isReadEarly("n"));
  EXPECT_TRUE(isReadEarly("nn"));
  // Attention lets fc1 start first: the kernel before it may still run.
  EXPECT_FALSE(isReadEarly("p"));
  EXPECT_TRUE(isReadEarly("pn"));
  EXPECT_TRUE(isReadEarly("np"));
}

INSTANTIATE_TEST_SUITE_P(Shapes, SetPtxTest,
                         testing::Values(Case{384, 1536, 64, "f16"},
                                         Case{50, 70, 16, "f32"},
                                         Case{2048, 8192, 128, "bf16"},
                                         Case{2560, 10240, 100, "f32"},
                                         Case{4096, 16384, 256, "f16"},
                                         Case{7168, 28672, 256, "f16"},
                                         Case{9216, 36864, 1024, "f16"}),
                         [](const auto &info) {
                           return llvm::formatv(
                                      "d{0}_r{1}_{2}", info.param.columns,
                                      info.param.rank, info.param.element)
                               .str();
                         });

} // namespace
