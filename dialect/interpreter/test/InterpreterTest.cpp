//===- InterpreterTest.cpp - Ops against values computed by hand ----------===//

#include "foresight/Interpreter/Interpreter.h"

#include "mlir/IR/Diagnostics.h"
#include "mlir/Parser/Parser.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include <cmath>
#include <fstream>

using namespace mlir;
using namespace foresight;
using namespace foresight::interpreter;
using testing::DoubleNear;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pointwise;

namespace {

Matrix matrix(int64_t rows, int64_t columns, std::vector<double> values) {
  Matrix m(rows, columns);
  m.data = std::move(values);
  return m;
}

class InterpreterTest : public testing::Test {
protected:
  InterpreterTest() {
    context.loadDialect<ForesightDialect, func::FuncDialect>();
  }

  /// Runs @f of a module; an empty list if it fails.
  SmallVector<Data> run(const std::string &text,
                        const std::vector<Data> &arguments,
                        Weights::Provider provider = {}) {
    ScopedDiagnosticHandler handler(&context, [&](Diagnostic &diagnostic) {
      errors += diagnostic.str() + "\n";
    });
    module = parseSourceString<ModuleOp>(text, &context);
    EXPECT_TRUE(module) << errors;
    if (!module)
      return {};
    Weights weights(std::move(provider));
    Interpreter interpreter(*module, weights);
    func::FuncOp function = findEntry(*module, "f");
    FailureOr<SmallVector<Data>> results;
    if (orders == 0)
      results = interpreter.run(function, arguments);
    for (int order = 0; order < orders; ++order) {
      results = interpreter.runScheduled(function, arguments, order);
      if (failed(results))
        break;
    }
    return succeeded(results) ? *results : SmallVector<Data>();
  }

  /// Runs a function body that returns one matrix.
  void expectMatrix(const std::string &text, const std::vector<Data> &arguments,
                    const std::vector<double> &expected,
                    double tolerance = 1e-12) {
    SmallVector<Data> results = run(text, arguments);
    ASSERT_EQ(results.size(), 1u) << errors;
    const auto *m = results[0].getIf<Matrix>();
    ASSERT_TRUE(m);
    EXPECT_THAT(m->data, Pointwise(DoubleNear(tolerance), expected));
  }

  void expectError(const std::string &text, const std::vector<Data> &arguments,
                   const std::string &message) {
    EXPECT_TRUE(run(text, arguments).empty());
    EXPECT_THAT(errors, HasSubstr(message));
  }

  MLIRContext context;
  OwningOpRef<ModuleOp> module;
  std::string errors;
  /// Above 0: run by buffers, in that many orders.
  int orders = 0;
};

const Matrix kX = matrix(1, 2, {1, -2});
const Matrix kW = matrix(3, 2, {1, 1, 2, 0, 0, -1});
const Matrix kBias = matrix(1, 3, {0.5, 0, -1});

TEST_F(InterpreterTest, GatherRowsAddsItsOffset) {
  expectMatrix(R"(
func.func @f(%t: tensor<4x2xf32>, %ids: tensor<2xi32>) -> tensor<2x2xf32> {
  %r = foresight.gather_rows %t[%ids] {offset = 1 : i64} : tensor<4x2xf32>, tensor<2xi32> -> tensor<2x2xf32>
  return %r : tensor<2x2xf32>
})",
               {matrix(4, 2, {0, 1, 2, 3, 4, 5, 6, 7}), Ids{{2, 0}}},
               {6, 7, 2, 3});
}

TEST_F(InterpreterTest, GatherRowsRefusesIdsOutsideItsTable) {
  expectError(R"(
func.func @f(%t: tensor<4x2xf32>, %ids: tensor<1xi32>) -> tensor<1x2xf32> {
  %r = foresight.gather_rows %t[%ids] : tensor<4x2xf32>, tensor<1xi32> -> tensor<1x2xf32>
  return %r : tensor<1x2xf32>
})",
              {Matrix(4, 2), Ids{{4}}},
              "reads row 4 (id 4, offset 0) of a table with 4 rows");
}

TEST_F(InterpreterTest, LayerNormUsesTheBiasedVariance) {
  // Mean 2, deviations -1 and 1: variance 1, with epsilon 3 the factor is 1/2.
  expectMatrix(
      R"(
func.func @f(%x: tensor<1x2xf32>, %g: tensor<2xf32>, %b: tensor<2xf32>) -> tensor<1x2xf32> {
  %r = foresight.layer_norm %x gamma(%g : tensor<2xf32>) beta(%b : tensor<2xf32>) epsilon = 3.0 : tensor<1x2xf32> -> tensor<1x2xf32>
  return %r : tensor<1x2xf32>
})",
      {matrix(1, 2, {1, 3}), matrix(1, 2, {2, 4}), matrix(1, 2, {10, 20})},
      {9, 22});
}

TEST_F(InterpreterTest, LayerNormWithoutGammaAndBeta) {
  expectMatrix(R"(
func.func @f(%x: tensor<1x2xf32>) -> tensor<1x2xf32> {
  %r = foresight.layer_norm %x epsilon = 0.0 : tensor<1x2xf32> -> tensor<1x2xf32>
  return %r : tensor<1x2xf32>
})",
               {matrix(1, 2, {1, 3})}, {-1, 1});
}

TEST_F(InterpreterTest, LinearMultipliesByRows) {
  expectMatrix(R"(
func.func @f(%x: tensor<1x2xf32>, %w: tensor<3x2xf32>, %b: tensor<3xf32>) -> tensor<1x3xf32> {
  %r = foresight.linear %x, %w bias(%b : tensor<3xf32>) : tensor<1x2xf32>, tensor<3x2xf32> -> tensor<1x3xf32>
  return %r : tensor<1x3xf32>
})",
               {kX, kW, kBias}, {-0.5, 2, 1});
}

TEST_F(InterpreterTest, LinearAppliesItsActivation) {
  expectMatrix(R"(
func.func @f(%x: tensor<1x2xf32>, %w: tensor<3x2xf32>, %b: tensor<3xf32>) -> tensor<1x3xf32> {
  %r = foresight.linear %x, %w bias(%b : tensor<3xf32>) {activation = #foresight.activation<relu>} : tensor<1x2xf32>, tensor<3x2xf32> -> tensor<1x3xf32>
  return %r : tensor<1x3xf32>
})",
               {kX, kW, kBias}, {0, 2, 1});
}

TEST_F(InterpreterTest, ColumnLinearAddsRowsOfItsInputs) {
  // 1 * [1, 1] - 2 * [2, 0] + 3 * [0, -1] + bias
  expectMatrix(R"(
func.func @f(%x: tensor<1x3xf32>, %w: tensor<3x2xf32>, %b: tensor<2xf32>) -> tensor<1x2xf32> {
  %r = foresight.column_linear %x, %w bias(%b : tensor<2xf32>) {skip_zeros} : tensor<1x3xf32>, tensor<3x2xf32> -> tensor<1x2xf32>
  return %r : tensor<1x2xf32>
})",
               {matrix(1, 3, {1, -2, 3}), kW, matrix(1, 2, {10, 20})}, {7, 18});
}

TEST_F(InterpreterTest, ColumnLinearAddsMembersOnly) {
  expectMatrix(
      R"(
func.func @f(%x: tensor<2x3xf32>, %w: tensor<3x2xf32>, %s: !foresight.index_set<3 of 3>) -> tensor<2x2xf32> {
  %r = foresight.column_linear %x, %w rows(%s : !foresight.index_set<3 of 3>) : tensor<2x3xf32>, tensor<3x2xf32> -> tensor<2x2xf32>
  return %r : tensor<2x2xf32>
})",
      {matrix(2, 3, {1, -2, 3, 1, -2, 3}), kW, IndexSets{3, {{0, 2}, {}}}},
      {1, -2, 0, 0});
}

TEST_F(InterpreterTest, MlpIsTwoProducts) {
  // Hidden: relu([-0.5, 2, 1]) = [0, 2, 1].
  const std::string mlp = R"(
func.func @f(%x: tensor<1x2xf32>, %w: tensor<3x2xf32>, %b: tensor<3xf32>, %c: tensor<2xf32>) -> tensor<1x2xf32> {
  %r = foresight.mlp %x, %w bias(%b : tensor<3xf32>) <relu> %w bias(%c : tensor<2xf32>) : tensor<1x2xf32>, tensor<3x2xf32>, tensor<3x2xf32> -> tensor<1x2xf32>
  return %r : tensor<1x2xf32>
})";
  expectMatrix(mlp, {kX, kW, kBias, matrix(1, 2, {10, 20})}, {14, 19});
}

TEST_F(InterpreterTest, SparseMlpOfSomeNeurons) {
  expectMatrix(R"(
func.func @f(%x: tensor<1x2xf32>, %w: tensor<3x2xf32>, %b: tensor<3xf32>, %s: !foresight.index_set<3 of 3>) -> tensor<1x2xf32> {
  %r = foresight.sparse_mlp %x, %w bias(%b : tensor<3xf32>) <relu> %w rows(%s : !foresight.index_set<3 of 3>) : tensor<1x2xf32>, tensor<3x2xf32>, tensor<3x2xf32> -> tensor<1x2xf32>
  return %r : tensor<1x2xf32>
})",
               {kX, kW, kBias, IndexSets{3, {{0, 1}}}}, {4, 0});
}

TEST_F(InterpreterTest, GatherLinearIsZeroElsewhere) {
  expectMatrix(R"(
func.func @f(%x: tensor<1x2xf32>, %w: tensor<3x2xf32>, %b: tensor<3xf32>, %s: !foresight.index_set<3 of 3>) -> tensor<1x3xf32> {
  %r = foresight.gather_linear %x, %w bias(%b : tensor<3xf32>) rows(%s) : tensor<1x2xf32>, tensor<3x2xf32>, !foresight.index_set<3 of 3> -> tensor<1x3xf32>
  return %r : tensor<1x3xf32>
})",
               {kX, kW, kBias, IndexSets{3, {{0, 2}}}}, {-0.5, 0, 1});
}

TEST_F(InterpreterTest, ActivationsHaveTheirUsualValues) {
  auto apply = [](const std::string &name) {
    return "func.func @f(%x: tensor<1x2xf32>) -> tensor<1x2xf32> {\n"
           "  %r = foresight.activate %x <" +
           name + "> : tensor<1x2xf32>\n  return %r : tensor<1x2xf32>\n}";
  };
  const Data x = matrix(1, 2, {1, -1});
  expectMatrix(apply("none"), {x}, {1, -1});
  expectMatrix(apply("relu"), {x}, {1, 0});
  expectMatrix(apply("gelu"), {x}, {0.841344746068543, -0.158655253931457});
  expectMatrix(apply("gelu_tanh"), {x},
               {0.841191990607477, -0.158808009392523});
}

TEST_F(InterpreterTest, AddAndLastRow) {
  expectMatrix(R"(
func.func @f(%x: tensor<?x2xf32>, %y: tensor<?x2xf32>) -> tensor<1x2xf32> {
  %s = foresight.add %x, %y : tensor<?x2xf32>
  %r = foresight.last_row %s : tensor<?x2xf32> -> tensor<1x2xf32>
  return %r : tensor<1x2xf32>
})",
               {matrix(2, 2, {1, 2, 3, 4}), matrix(2, 2, {10, 20, 30, 40})},
               {33, 44});
}

const char *const kAppend = R"(
func.func @f(%kv: !foresight.kv_cache<2 x 1, 3, f16>, %k: tensor<2x2xf32>, %v: tensor<2x2xf32>, %at: tensor<2xi32>) -> !foresight.kv_cache<2 x 1, 3, f16> {
  %r = foresight.kv_append %kv, %k, %v at %at : !foresight.kv_cache<2 x 1, 3, f16>, tensor<2x2xf32>, tensor<2xi32>
  return %r : !foresight.kv_cache<2 x 1, 3, f16>
})";

KvCache emptyCache() {
  return KvCache{2, 1, 3, std::vector<double>(6), std::vector<double>(6)};
}

TEST_F(InterpreterTest, KvAppendWritesEveryHeadRounded) {
  SmallVector<Data> results =
      run(kAppend, {emptyCache(), matrix(2, 2, {1, 2, 3, 1.0001}),
                    matrix(2, 2, {5, 6, 7, 8}), Ids{{0, 2}}});
  ASSERT_EQ(results.size(), 1u) << errors;
  // 1.0001 is 1 in f16. Heads lie one behind the other.
  EXPECT_THAT(results[0].getIf<KvCache>()->keys, ElementsAre(1, 0, 3, 2, 0, 1));
  EXPECT_THAT(results[0].getIf<KvCache>()->values,
              ElementsAre(5, 0, 7, 6, 0, 8));
}

TEST_F(InterpreterTest, KvAppendRefusesPositionsOutsideItsCache) {
  expectError(kAppend, {emptyCache(), Matrix(2, 2), Matrix(2, 2), Ids{{2, 3}}},
              "is at position 3 of a cache with room for 3 tokens");
}

/// Two heads of one element; scores are 0 and ln 3 for head 0, equal for 1.
KvCache filledCache() {
  return KvCache{
      2, 1, 3, {0, std::log(3), 100, 1, 1, 100}, {4, 8, 100, 2, 6, 100}};
}

TEST_F(InterpreterTest, AttentionIsASoftmaxOverTheHistory) {
  // The second row of queries is at position 0 and sees its own token only.
  expectMatrix(R"(
func.func @f(%q: tensor<2x2xf32>, %kv: !foresight.kv_cache<2 x 1, 3, f32>, %at: tensor<2xi32>) -> tensor<2x2xf32> {
  %r = foresight.attention %q, %kv at %at scale = 0.5 : tensor<2x2xf32>, !foresight.kv_cache<2 x 1, 3, f32>, tensor<2xi32> -> tensor<2x2xf32>
  return %r : tensor<2x2xf32>
})",
               {matrix(2, 2, {2, 5, 2, 5}), filledCache(), Ids{{1, 0}}},
               {7, 4, 4, 2});
}

const char *const kBatch = R"(
func.func @f(%q: tensor<2x1xf32>, %kv: !foresight.kv_cache<1 x 1, 2, f32, sequences = 3>, %at: tensor<2xi32>, %in: tensor<2xi32>) -> (tensor<2x1xf32>, !foresight.kv_cache<1 x 1, 2, f32, sequences = 3>) {
  %n = foresight.kv_append %kv, %q, %q at %at in(%in : tensor<2xi32>) : !foresight.kv_cache<1 x 1, 2, f32, sequences = 3>, tensor<2x1xf32>, tensor<2xi32>
  %r = foresight.attention %q, %n at %at in(%in : tensor<2xi32>) scale = 0.0 : tensor<2x1xf32>, !foresight.kv_cache<1 x 1, 2, f32, sequences = 3>, tensor<2xi32> -> tensor<2x1xf32>
  return %r, %n : tensor<2x1xf32>, !foresight.kv_cache<1 x 1, 2, f32, sequences = 3>
})";

KvCache threeSequences() {
  return KvCache{1, 1, 2, {1, 2, 3, 4, 5, 6}, {10, 20, 30, 40, 50, 60}, 3};
}

/// A scale of 0 makes attention the mean of a sequence's values.
TEST_F(InterpreterTest, RowsOfABatchSeeTheirOwnSequences) {
  SmallVector<Data> results =
      run(kBatch,
          {matrix(2, 1, {7, 8}), threeSequences(), Ids{{1, 0}}, Ids{{2, 0}}});
  ASSERT_EQ(results.size(), 2u) << errors;
  EXPECT_THAT(results[0].getIf<Matrix>()->data, ElementsAre(28.5, 8));
  EXPECT_THAT(results[1].getIf<KvCache>()->keys, ElementsAre(8, 2, 3, 4, 5, 7));
}

TEST_F(InterpreterTest, ASequenceThatACacheLacksIsRefused) {
  expectError(kBatch,
              {Matrix(2, 1), threeSequences(), Ids{{1, 0}}, Ids{{2, 3}}},
              "is of sequence 3 of a cache that holds 3");
}

TEST_F(InterpreterTest, AttentionOfSomeHeadsAndTokens) {
  // Row 0: head 1 only, all tokens. Row 1: both heads, its own token only.
  expectMatrix(R"(
func.func @f(%q: tensor<2x2xf32>, %kv: !foresight.kv_cache<2 x 1, 3, f32>, %at: tensor<2xi32>, %h: !foresight.index_set<2 of 2>, %s: !foresight.index_set<3 of 3>) -> tensor<2x2xf32> {
  %r = foresight.attention %q, %kv at %at heads(%h : !foresight.index_set<2 of 2>) tokens(%s : !foresight.index_set<3 of 3>) scale = 0.5 : tensor<2x2xf32>, !foresight.kv_cache<2 x 1, 3, f32>, tensor<2xi32> -> tensor<2x2xf32>
  return %r : tensor<2x2xf32>
})",
               {matrix(2, 2, {2, 5, 2, 5}), filledCache(), Ids{{1, 1}},
                IndexSets{2, {{1}, {0, 1}}}, IndexSets{3, {{0, 2}, {}}}},
               {0, 4, 8, 6});
}

TEST_F(InterpreterTest, LowRankPredictionIsTwoProducts) {
  expectMatrix(R"(
func.func @f(%x: tensor<1x2xf32>, %a: tensor<1x2xf32>, %b: tensor<3x1xf32>) -> tensor<1x3xf32> {
  %r, %t = foresight.predict %x, %a, %b : tensor<1x2xf32>, tensor<1x2xf32>, tensor<3x1xf32> -> tensor<1x3xf32>
  return %r : tensor<1x3xf32>
})",
               {kX, matrix(1, 2, {3, 1}), matrix(3, 1, {1, 0, -2})},
               {1, 0, -2});
}

const char *const kSelect = R"(
func.func @f(%s: tensor<1x5xf32>) -> (!foresight.index_set<5 of 5>, !foresight.index_set<3 of 5>) {
  %a = foresight.select_threshold %s threshold = 1.0 : tensor<1x5xf32> -> !foresight.index_set<5 of 5>
  %b = foresight.select_topk %s : tensor<1x5xf32> -> !foresight.index_set<3 of 5>
  return %a, %b : !foresight.index_set<5 of 5>, !foresight.index_set<3 of 5>
})";

TEST_F(InterpreterTest, SelectionsByThresholdAndRank) {
  // Equal to the threshold is below it; of equal scores the first is taken.
  SmallVector<Data> results = run(kSelect, {matrix(1, 5, {1, 3, 2, 2, 2})});
  ASSERT_EQ(results.size(), 2u) << errors;
  EXPECT_THAT(results[0].getIf<IndexSets>()->rows[0], ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(results[1].getIf<IndexSets>()->rows[0], ElementsAre(1, 2, 3));
}

TEST_F(InterpreterTest, SelectTopkRanksNanLast) {
  SmallVector<Data> results =
      run(kSelect, {matrix(1, 5, {NAN, -3, NAN, -9, -5})});
  ASSERT_EQ(results.size(), 2u) << errors;
  EXPECT_THAT(results[1].getIf<IndexSets>()->rows[0], ElementsAre(1, 3, 4));
}

const char *const kCertified = R"(
func.func @f(%x: tensor<1x2xf32>) -> (tensor<1x3xf32>, !foresight.index_set<3 of 3>, !foresight.index_set<3 of 3>) {
  %c = foresight.get_weight @copy : !foresight.low_bit<3 x 2, 2>
  %s, %t = foresight.predict %x, %c : tensor<1x2xf32>, !foresight.low_bit<3 x 2, 2> -> tensor<1x3xf32>
  %a = foresight.select_certified %s, %x, %c kappa = 1.0 after(%t) : tensor<1x3xf32>, tensor<1x2xf32>, !foresight.low_bit<3 x 2, 2> -> !foresight.index_set<3 of 3>
  %b = foresight.select_certified %s, %x, %c kappa = 0.0 after(%t) : tensor<1x3xf32>, tensor<1x2xf32>, !foresight.low_bit<3 x 2, 2> -> !foresight.index_set<3 of 3>
  return %s, %a, %b : tensor<1x3xf32>, !foresight.index_set<3 of 3>, !foresight.index_set<3 of 3>
}
foresight.weight @w : tensor<3x2xf32> = dense<[[1.0, 3.0], [1.0, 1.0], [1.0, 2.0]]> : tensor<3x2xf32>
foresight.weight @b : tensor<3xf32> = dense<[0.0, -1.0, -1.0]> : tensor<3xf32>
foresight.weight @g : tensor<2xf32> = dense<[1.0, -1.0]> : tensor<2xf32>
foresight.weight @copy : !foresight.low_bit<3 x 2, 2> = #foresight.derived<low_bit, [@w, @b, @g, @none]>
)";

TEST_F(InterpreterTest, CertifiedSelectionAddsTheErrorOfTheCopy) {
  // 2 bits are 0.5 and 1.5 times a scale: rows 0 and 1 are exact, row 2 is
  // scale * [0.5, -1.5] with the best scale 1.4 and error |[0.3, 0.1]|.
  SmallVector<Data> results = run(kCertified, {matrix(1, 2, {1, 0})});
  ASSERT_EQ(results.size(), 3u) << errors;
  // The copy's slack is in its scores: they err upwards, never downwards.
  auto justAbove = [](double score) {
    return testing::AllOf(testing::Ge(score - 1e-7), testing::Le(score + 3e-5));
  };
  EXPECT_THAT(results[0].getIf<Matrix>()->data,
              ElementsAre(justAbove(1), justAbove(0), justAbove(-0.3)));
  // Bounds: 1, 0 (slack leaves it just above), -0.3 + 0.316.
  EXPECT_EQ(results[1].getIf<IndexSets>()->rows[0].front(), 0);
  EXPECT_EQ(results[1].getIf<IndexSets>()->rows[0].back(), 2);
  EXPECT_EQ(results[2].getIf<IndexSets>()->rows[0].front(), 0);
  EXPECT_NE(results[2].getIf<IndexSets>()->rows[0].back(), 2);
}

TEST_F(InterpreterTest, StagesSeeTheirArguments) {
  expectMatrix(R"(
func.func @f(%x: tensor<1x2xf32>, %w: tensor<3x2xf32>) -> tensor<1x2xf32> {
  %h, %t = foresight.stage "a" (%y = %x : tensor<1x2xf32>, %v = %w : tensor<3x2xf32>) -> (tensor<1x3xf32>) {
    %r = foresight.linear %y, %v : tensor<1x2xf32>, tensor<3x2xf32> -> tensor<1x3xf32>
    foresight.yield %r : tensor<1x3xf32>
  }
  %z, %u = foresight.stage "b" after(%t) (%v = %w : tensor<3x2xf32>, %y = %h : tensor<1x3xf32>) -> (tensor<1x2xf32>) {
    %r = foresight.column_linear %y, %v : tensor<1x3xf32>, tensor<3x2xf32> -> tensor<1x2xf32>
    foresight.yield %r : tensor<1x2xf32>
  }
  return %z : tensor<1x2xf32>
})",
               {kX, kW}, {3, -3});
}

TEST_F(InterpreterTest, LaunchesRunTheirKernel) {
  expectMatrix(R"(
foresight.kernel @twice(%a: tensor<1x2xf32>) {
  %r = foresight.add %a, %a : tensor<1x2xf32>
  foresight.yield %r : tensor<1x2xf32>
}
func.func @f(%x: tensor<1x2xf32>) -> tensor<1x2xf32> {
  %a, %t = foresight.launch "a" @twice (%x : tensor<1x2xf32>) outs [] -> (tensor<1x2xf32>)
  %b, %u = foresight.launch "b" @twice after(%t) (%a : tensor<1x2xf32>) outs [] -> (tensor<1x2xf32>)
  return %b : tensor<1x2xf32>
})",
               {kX}, {4, -8});
}

/// Two launches of a work buffer each, then their sum. `second` waits for what
/// its `after` says; its buffer lies at `offset`.
std::string scheduled(const std::string &after, int offset,
                      const std::string &sumAfter = "%t, %u") {
  return R"(
foresight.buffer @x "input" : tensor<?x2xf32> rows = 1 row_bytes = 128
foresight.buffer @a "work" : tensor<?x2xf32> rows = 1 row_bytes = 128 offset = 0
foresight.buffer @b "work" : tensor<?x2xf32> rows = 1 row_bytes = 128 offset = )" +
         std::to_string(offset) + R"(
foresight.buffer @y "output" : tensor<?x2xf32> rows = 1 row_bytes = 128
foresight.kernel @sum(%a: tensor<1x2xf32>, %b: tensor<1x2xf32>) {
  %r = foresight.add %a, %b : tensor<1x2xf32>
  foresight.yield %r : tensor<1x2xf32>
}
func.func @f(%x: tensor<1x2xf32> {foresight.buffer = @x}) -> tensor<1x2xf32> {
  %a, %t = foresight.launch "first" @sum (%x, %x : tensor<1x2xf32>, tensor<1x2xf32>) outs [@a] -> (tensor<1x2xf32>)
  %b, %u = foresight.launch "second" @sum )" +
         after +
         R"( (%x, %a : tensor<1x2xf32>, tensor<1x2xf32>) outs [@b] -> (tensor<1x2xf32>)
  %y, %v = foresight.launch "third" @sum after()" +
         sumAfter +
         R"() (%a, %b : tensor<1x2xf32>, tensor<1x2xf32>) outs [@y] -> (tensor<1x2xf32>)
  return %y : tensor<1x2xf32>
})";
}

TEST_F(InterpreterTest, SchedulesRunInOrdersThatTokensAllow) {
  orders = 8;
  expectMatrix(scheduled("after(%t)", 128), {kX}, {5, -10});
}

TEST_F(InterpreterTest, MissingTokensAreFound) {
  orders = 8;
  expectError(scheduled("", 128), {kX},
              "'second' reads the result of 'first' from @a, which holds "
              "nothing or was written over in an order that the tokens allow");
}

TEST_F(InterpreterTest, OverlappingBuffersAreFound) {
  orders = 1;
  expectError(
      scheduled("after(%t)", 64), {kX},
      "'third' reads the result of 'first' from @a, which holds nothing");
}

TEST_F(InterpreterTest, BuffersThatHoldAnotherValueAreFound) {
  orders = 1;
  std::string text = scheduled("after(%t)", 128);
  text.replace(text.find("outs [@b]"), 9, "outs [@a]");
  expectError(text, {kX},
              "'third' reads the result of 'first' from @a, which holds the "
              "result of 'second'");
}

TEST_F(InterpreterTest, DerivedWeightsAreMadeFromTheirSources) {
  const std::string text = R"(
func.func @f() -> (tensor<2x1xf32>, tensor<2x2xf32>) {
  %t = foresight.get_weight @t : tensor<2x1xf32>
  %c = foresight.get_weight @c : tensor<2x2xf32>
  return %t, %c : tensor<2x1xf32>, tensor<2x2xf32>
}
foresight.weight @w : tensor<1x2xf32> = dense<[[1.0, 2.0]]> : tensor<1x2xf32>
foresight.weight @t : tensor<2x1xf32> = #foresight.derived<transpose, [@w]>
foresight.weight @c : tensor<2x2xf32> = #foresight.derived<concat_rows, [@w, @w]>
)";
  SmallVector<Data> results = run(text, {});
  ASSERT_EQ(results.size(), 2u) << errors;
  EXPECT_EQ(results[0].getIf<Matrix>()->rows, 2);
  EXPECT_THAT(results[0].getIf<Matrix>()->data, ElementsAre(1, 2));
  EXPECT_THAT(results[1].getIf<Matrix>()->data, ElementsAre(1, 2, 1, 2));
}

TEST_F(InterpreterTest, WeightsAreRoundedToTheirType) {
  const std::string text = R"(
func.func @f() -> (tensor<2xf16>, tensor<2xbf16>) {
  %a = foresight.get_weight @a : tensor<2xf16>
  %b = foresight.get_weight @b : tensor<2xbf16>
  return %a, %b : tensor<2xf16>, tensor<2xbf16>
}
foresight.weight @a : tensor<2xf16> = #foresight.synthetic<seed = 1, mean = 0.0 : f64, deviation = 1.0 : f64>
foresight.weight @b : tensor<2xbf16> = #foresight.synthetic<seed = 1, mean = 0.0 : f64, deviation = 1.0 : f64>
)";
  SmallVector<Data> results = run(text, {}, [](WeightOp) {
    return std::vector<double>{1 + 0x1p-9, 1 + 0x1p-11 + 0x1p-20};
  });
  ASSERT_EQ(results.size(), 2u) << errors;
  EXPECT_THAT(results[0].getIf<Matrix>()->data,
              ElementsAre(1 + 0x1p-9, 1 + 0x1p-10));
  EXPECT_THAT(results[1].getIf<Matrix>()->data, ElementsAre(1, 1));
}

TEST_F(InterpreterTest, ExternalWeightsAreReadFromTheirFile) {
  const std::string path =
      testing::TempDir() + "/foresight-interpreter-weights.bin";
  const float values[] = {0, 1, 2, 3, 4, 5};
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char *>(values), sizeof(values));
  const std::string text = R"(
func.func @f() -> tensor<2x2xf32> {
  %a = foresight.get_weight @a : tensor<2x2xf32>
  return %a : tensor<2x2xf32>
}
foresight.weight @a : tensor<2x2xf32> = #foresight.external<")" +
                           path + R"(", offset = 8, bytes = 16, f32)";
  expectMatrix(text + ">", {}, {2, 3, 4, 5});
  expectMatrix(text + ", transposed = true>", {}, {2, 4, 3, 5});
  std::remove(path.c_str());
  expectError(text + ">", {}, path);
}

TEST_F(InterpreterTest, ArgumentsAreChecked) {
  const std::string text = R"(
func.func @f(%x: tensor<?x2xf32>) -> tensor<?x2xf32> {
  return %x : tensor<?x2xf32>
})";
  EXPECT_EQ(run(text, {Matrix(5, 2)}).size(), 1u);
  expectError(text, {Matrix(5, 3)}, "argument 0 has type 'tensor<?x2xf32>'");
  expectError(text, {}, "takes 1 arguments but 0 were given");
}

TEST_F(InterpreterTest, RandomArgumentsFitTheirUses) {
  const std::string text = R"(
func.func @f(%ids: tensor<?xi32>, %at: tensor<?xi32>, %t: tensor<5x2xf32>, %kv: !foresight.kv_cache<1 x 2, 4, f32>) -> tensor<?x2xf32> {
  %x = foresight.gather_rows %t[%ids] : tensor<5x2xf32>, tensor<?xi32> -> tensor<?x2xf32>
  %r, %done = foresight.stage "s" (%q = %x : tensor<?x2xf32>, %c = %kv : !foresight.kv_cache<1 x 2, 4, f32>, %p = %at : tensor<?xi32>) -> (tensor<?x2xf32>) {
    %a = foresight.attention %q, %c at %p scale = 1.0 : tensor<?x2xf32>, !foresight.kv_cache<1 x 2, 4, f32>, tensor<?xi32> -> tensor<?x2xf32>
    foresight.yield %a : tensor<?x2xf32>
  }
  return %r : tensor<?x2xf32>
})";
  module = parseSourceString<ModuleOp>(text, &context);
  ASSERT_TRUE(module);
  func::FuncOp function = findEntry(*module, "f");
  for (uint64_t seed = 0; seed < 20; ++seed) {
    auto arguments = randomArguments(function, {.seed = seed, .tokens = 3});
    ASSERT_TRUE(succeeded(arguments));
    const std::vector<int32_t> &at = (*arguments)[1].getIf<Ids>()->values;
    EXPECT_EQ(at[1], at[0] + 1);
    EXPECT_EQ(at[2], at[0] + 2);
    Weights weights;
    EXPECT_TRUE(
        succeeded(Interpreter(*module, weights).run(function, *arguments)));
    auto again = randomArguments(function, {.seed = seed, .tokens = 3});
    EXPECT_EQ(compare((*arguments)[2], (*again)[2]).largest, 0);
  }
}

TEST(DataTest, CompareSaysWhere) {
  const Difference d =
      compare(matrix(2, 2, {1, 2, 3, 4}), matrix(2, 2, {1, 2, 3.5, 4}));
  EXPECT_EQ(d.largest, 0.5);
  EXPECT_EQ(d.where, "[1, 0]");
  EXPECT_EQ(compare(matrix(1, 1, {NAN}), matrix(1, 1, {NAN})).largest, 0);
  EXPECT_EQ(compare(matrix(1, 1, {NAN}), matrix(1, 1, {1})).largest, HUGE_VAL);
  EXPECT_FALSE(compare(Matrix(1, 2), Matrix(2, 1)).comparable);
  EXPECT_EQ(compare(IndexSets{4, {{1, 2}}}, IndexSets{4, {{1, 3}}}).largest, 1);
  EXPECT_FALSE(compare(Matrix(1, 2), Ids{{1}}).comparable);
}

} // namespace
