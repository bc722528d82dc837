//===- ExecutableTest.cpp - Outputs as files ------------------------------===//

#include <sstream>

#include "Harness.h"

#include "foresight/support/Json.h"

using namespace foresight;
using namespace foresight::test;

namespace {

const char *const kModel = "examples/opt-mini/model.onnx";

TEST(Executable, RunsAloneInAnEmptyFolderAndEnvironment) {
  TemporaryFolder folder;
  ProcessResult compile = run({tool("foresight-compile"), source(kModel),
                               "--emit=exe", "-q", "-o", folder / "opt-mini"});
  ASSERT_EQ(compile.exitCode, 0) << compile.errors;
  ProcessOptions alone;
  alone.folder = folder.path();
  alone.emptyEnvironment = true;
  ProcessResult exe = run({"./opt-mini", "run", "--prompt", "The history of",
                           "--max-new-tokens", "16"},
                          alone);
  EXPECT_EQ(exe.exitCode, 0) << exe.errors;
  ProcessResult bundle =
      run({tool("foresight"), "run", compiled({source(kModel)}), "--prompt",
           "The history of", "--max-new-tokens", "16"});
  EXPECT_EQ(bundle.exitCode, 0) << bundle.errors;
  EXPECT_EQ(exe.output, bundle.output);
  EXPECT_GT(exe.output.size(), 20u);
}

TEST(Bundles, OfTheSameInputAreTheSameBytes) {
  for (const char *sparsity : {"--sparsity=none", "--sparsity=predicted"}) {
    TemporaryFolder folder;
    for (const char *name : {"a", "b"}) {
      ProcessResult result = run({tool("foresight-compile"), source(kModel),
                                  sparsity, "-q", "-o", folder / name});
      ASSERT_EQ(result.exitCode, 0) << result.errors;
    }
    EXPECT_TRUE(readFile(folder / "a") == readFile(folder / "b")) << sparsity;
  }
}

/// Every text that --emit writes is one that can be compiled on.
TEST(Emit, PhasesCanBeReadAgain) {
  TemporaryFolder folder;
  for (std::string phase : {"foresight", "scheduled"}) {
    std::string text = folder / (phase + ".mlir"), bundle = folder / "m.fsb";
    ProcessResult first = run({tool("foresight-compile"), source(kModel), "-q",
                               "--emit=" + phase, "-o", text});
    ASSERT_EQ(first.exitCode, 0) << first.errors;
    ProcessResult second =
        run({tool("foresight-compile"), text, "-q", "-o", bundle});
    EXPECT_EQ(second.exitCode, 0) << phase << ": " << second.errors;
    ProcessResult a = run({tool("foresight"), "run", bundle, "--ids", "2,5,9",
                           "--max-new-tokens", "8", "--output=ids"});
    ProcessResult b =
        run({tool("foresight"), "run", compiled({source(kModel)}), "--ids",
             "2,5,9", "--max-new-tokens", "8", "--output=ids"});
    EXPECT_EQ(a.exitCode, 0) << a.errors;
    EXPECT_EQ(a.output, b.output);
  }
}

TEST(Emit, TextGoesToStandardOutput) {
  const std::pair<const char *, const char *> phases[] = {
      {"onnx", "onnx.graph"},
      {"foresight", "func.func @step"},
      {"scheduled", "foresight.launch"},
      {"llvm", "define"}};
  for (auto [phase, part] : phases) {
    ProcessResult result = run({tool("foresight-compile"), source(kModel), "-q",
                                std::string("--emit=") + phase});
    EXPECT_EQ(result.exitCode, 0) << result.errors;
    EXPECT_NE(result.output.find(part), std::string::npos) << phase;
    EXPECT_EQ(result.errors, "");
  }
}

TEST(Emit, ObjectIsRelocatableElf) {
  TemporaryFolder folder;
  ProcessResult result =
      run({tool("foresight-compile"), source(kModel), "-q", "--emit=object",
           "--target=cpu:x86-64-v3", "-o", folder / "m.o"});
  ASSERT_EQ(result.exitCode, 0) << result.errors;
  std::string object = readFile(folder / "m.o");
  ASSERT_GT(object.size(), 64u);
  EXPECT_EQ(object.substr(0, 4), "\x7f"
                                 "ELF");
  EXPECT_EQ(object[16], 1) << "ET_REL";
}

TEST(Dump, HoldsEveryPhaseAndPass) {
  TemporaryFolder folder;
  ProcessResult result =
      run({tool("foresight-compile"), source(kModel), "-q",
           "--dump=" + (folder / "dump"), "-o", folder / "m.fsb"});
  ASSERT_EQ(result.exitCode, 0) << result.errors;
  for (const char *name : {"onnx.mlir", "foresight.mlir", "scheduled.mlir",
                           "manifest.json", "x86-64-v3.ll"})
    EXPECT_GT(readFile(folder.path() / "dump" / name).size(), 100u) << name;
  size_t passes = 0;
  for (const auto &entry :
       fs::recursive_directory_iterator(folder.path() / "dump"))
    passes += entry.path().extension() == ".mlir";
  EXPECT_GT(passes, 8u);
}

TEST(Synthetic, IsNamedInTheManifestAndInEveryOutput) {
  std::string bundle = compiled({"--shape=opt-mini", "--weights=synthetic:3"});
  ProcessResult inspect = run({tool("foresight"), "inspect", bundle});
  EXPECT_EQ(inspect.exitCode, 0) << inspect.errors;
  EXPECT_NE(
      (inspect.output + inspect.errors).find("synthetic weights: speed only"),
      std::string::npos);
  ProcessResult generate =
      run({tool("foresight"), "run", bundle, "--ids", "2,5,9", "--output=ids",
           "--max-new-tokens", "2"});
  EXPECT_EQ(generate.exitCode, 0) << generate.errors;
  EXPECT_NE(
      (generate.output + generate.errors).find("synthetic weights: speed only"),
      std::string::npos);
}

/// What the project promises beside the pages of mapped files.
TEST(Memory, OfACompileIsSmall) {
#if __has_feature(address_sanitizer)
  GTEST_SKIP() << "the sanitizer's own memory would count";
#endif
  TemporaryFolder folder;
  ProcessResult result = run({tool("foresight-compile"), source(kModel),
                              "--target=cpu", "-o", folder / "m.fsb"});
  ASSERT_EQ(result.exitCode, 0) << result.errors;
  const std::string said = "peak memory ";
  size_t at = result.errors.find(said);
  ASSERT_NE(at, std::string::npos) << result.errors;
  std::istringstream found(result.errors.substr(at + said.size()));
  double megabytes = 0;
  std::string unit, beyond;
  ASSERT_TRUE(found >> megabytes >> unit >> beyond) << result.errors;
  ASSERT_EQ(unit + " " + beyond, "MB beyond") << result.errors;
  EXPECT_GT(megabytes, 1);
  EXPECT_LT(megabytes, 300);
}

} // namespace
