//===- ProductTest.cpp - Products of rows and columns, whole rows ---------===//

#include "../Format.h"
#include "KernelHarness.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

using namespace foresight;
using namespace foresight::testing;
using Floats = std::vector<float>;
using Doubles = std::vector<double>;

namespace {

Doubles layerNorm(const float *x, int64_t n, const Floats &gamma,
                  const Floats &beta) {
  double mean = 0, variance = 0;
  for (int64_t k = 0; k < n; ++k)
    mean += x[k];
  mean /= n;
  for (int64_t k = 0; k < n; ++k)
    variance += (x[k] - mean) * (x[k] - mean);
  variance /= n;
  Doubles y(n);
  for (int64_t k = 0; k < n; ++k)
    y[k] = (x[k] - mean) / std::sqrt(variance + 1e-5) *
               (gamma.empty() ? 1 : gamma[k]) +
           (beta.empty() ? 0 : beta[k]);
  return y;
}

/// Rounds every value to the element type.
Floats rounded(Element element, Floats values) {
  for (float &v : values)
    v = roundTo(element, v);
  return values;
}

/// `sum_k x[k] w[i,k] + b[i]`.
Doubles product(const Doubles &x, const Floats &w, const Floats &b,
                int64_t rows) {
  int64_t columns = static_cast<int64_t>(x.size());
  Doubles y(rows);
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t k = 0; k < columns; ++k)
      y[i] += x[k] * w[i * columns + k];
    if (!b.empty())
      y[i] += b[i];
  }
  return y;
}

void expectNear(const Doubles &expected, const float *actual, double tolerance,
                const std::string &what) {
  for (size_t i = 0; i < expected.size(); ++i)
    ASSERT_NEAR(expected[i], actual[i],
                tolerance * (1 + std::fabs(expected[i])))
        << what << " column " << i;
}

void expectZeroPadding(const float *row, int64_t columns) {
  for (int64_t k = columns; k < padded(columns); ++k)
    ASSERT_EQ(row[k], 0.0f) << "padding at " << k;
}

/// A result row full of what an arena may hold.
Memory makeDirtyRows(int64_t rows, int64_t columns) {
  Memory memory = makeRows(rows, columns);
  std::memset(memory.data(), 0xff, memory.size());
  return memory;
}

class ProductTest
    : public ::testing::TestWithParam<std::tuple<std::string, int, Element>> {
protected:
  void SetUp() override {
    const CpuVariant *wanted = findCpuVariant(std::get<0>(GetParam()));
    for (const CpuVariant &v : runnableVariants())
      if (v.name == wanted->name)
        variant = wanted;
    if (!variant)
      GTEST_SKIP() << "this machine does not run " << wanted->name;
    element = std::get<2>(GetParam());
    // d, f of the shapes.
    const int64_t shapes[][2] = {
        {48, 100}, {384, 1536}, {80, 33}, {130, 517}, {2100, 230}};
    d = shapes[std::get<1>(GetParam())][0];
    f = shapes[std::get<1>(GetParam())][1];
    e = nameOf(element);
  }

  std::unique_ptr<Kernels> compile(const std::string &text) {
    std::string error;
    auto kernels = Kernels::compile(text, *variant, error);
    EXPECT_TRUE(kernels) << error << text;
    return kernels;
  }

  std::string rows(int64_t n) { return str("tensor<1x%ldxf32>", n); }
  std::string matrix(int64_t r, int64_t c) {
    return str("tensor<%ldx%ldx%s>", r, c, e.c_str());
  }
  std::string vector(int64_t n) { return str("tensor<%ldx%s>", n, e.c_str()); }

  const CpuVariant *variant = nullptr;
  Element element;
  int64_t d, f;
  std::string e;
};

TEST_P(ProductTest, NormAndThreeLinearsShareAKernel) {
  std::string m = matrix(d, d), v = vector(d), r = rows(d);
  auto kernels = compile(
      "foresight.kernel @qkv(%x: " + r + ", %g: " + v + ", %b: " + v +
      ", %wq: " + m + ", %wk: " + m + ", %bk: " + v + ", %wv: " + matrix(f, d) +
      ") {\n%n = foresight.layer_norm %x gamma(%g : " + v + ") beta(%b : " + v +
      ") epsilon = 1.0e-5 : " + r + " -> " + r +
      "\n%q = foresight.linear %n, %wq : " + r + ", " + m + " -> " + r +
      "\n%k = foresight.linear %n, %wk bias(%bk : " + v + ") : " + r + ", " +
      m + " -> " + r + "\n%v = foresight.linear %n, %wv : " + r + ", " +
      matrix(f, d) + " -> " + rows(f) + "\nforesight.yield %q, %k, %v : " + r +
      ", " + r + ", " + rows(f) + "\n}");
  ASSERT_TRUE(kernels);
  Floats x = randomValues(1, d, 3), gamma = randomValues(2, d),
         beta = randomValues(3, d), bk = randomValues(4, d);
  Floats wq = rounded(element, randomValues(5, d * d)),
         wk = rounded(element, randomValues(6, d * d)),
         wv = rounded(element, randomValues(7, f * d));
  x[0] = 40; // an outlier, as real models have
  Memory xm = makeRows(1, d, x), gm = makeVector(gamma), bm = makeVector(beta),
         wqm = makeMatrix(element, d, d, wq),
         wkm = makeMatrix(element, d, d, wk), bkm = makeVector(bk),
         wvm = makeMatrix(element, f, d, wv);
  Floats first;
  for (int64_t cut : {0, 1, 2, 5}) {
    Memory q = makeDirtyRows(1, d), k = makeDirtyRows(1, d),
           o = makeDirtyRows(1, f);
    kernels->run("qkv",
                 {xm.data(), gm.data(), bm.data(), wqm.data(), wkm.data(),
                  bkm.data(), wvm.data(), q.data(), k.data(), o.data()},
                 {1, 0}, cut);
    Doubles n = layerNorm(x.data(), d, gamma, beta);
    expectNear(product(n, wq, {}, d), q.as<float>(), 1e-4, "q");
    expectNear(product(n, wk, bk, d), k.as<float>(), 1e-4, "k");
    expectNear(product(n, wv, {}, f), o.as<float>(), 1e-4, "v");
    expectZeroPadding(q.as<float>(), d);
    expectZeroPadding(k.as<float>(), d);
    expectZeroPadding(o.as<float>(), f);
    Floats all(o.as<float>(), o.as<float>() + f);
    if (first.empty())
      first = all;
    EXPECT_EQ(first, all) << "cut " << cut;
  }
}

TEST_P(ProductTest, ColumnsGiveEqualBitsDenseAndListed) {
  auto text = [&](const char *name, const char *attrs) {
    return std::string("foresight.kernel @") + name + "(%h: " + rows(f) +
           ", %w: " + matrix(f, d) + ", %b: " + vector(d) + ", %r: " + rows(d) +
           ") {\n%y = foresight.column_linear %h, %w bias(%b : " + vector(d) +
           ")" + attrs + " : " + rows(f) + ", " + matrix(f, d) + " -> " +
           rows(d) + "\n%o = foresight.add %r, %y : " + rows(d) +
           "\nforesight.yield %o : " + rows(d) + "\n}\n";
  };
  auto kernels = compile(text("dense", "") + text("skip", " {skip_zeros}"));
  ASSERT_TRUE(kernels);
  Floats w = rounded(element, randomValues(1, f * d)), b = randomValues(2, d),
         r = randomValues(3, d);
  Memory wm = makeMatrix(element, f, d, w), bm = makeVector(b),
         rm = makeRows(1, d, r);
  // Zero at first, then as the last call left it.
  Memory shared(kernels->info("skip").sharedBytes);
  for (double density : {0.0, 0.07, 0.5, 1.0}) {
    Floats h = randomValues(4, f), coin = randomValues(5, f);
    int64_t active = 0;
    for (int64_t i = 0; i < f; ++i) {
      if ((coin[i] + 1) / 2 >= density)
        h[i] = i % 2 ? 0.0f : -0.0f;
      active += h[i] != 0;
    }
    Doubles expected(d);
    for (int64_t c = 0; c < d; ++c) {
      for (int64_t i = 0; i < f; ++i)
        expected[c] += double(h[i]) * w[i * d + c];
      expected[c] += double(b[c]) + r[c];
    }
    Memory hm = makeRows(1, f, h), dense = makeDirtyRows(1, d),
           counts(4 * kernels->unitsOf("skip", 1));
    kernels->run("dense",
                 {hm.data(), wm.data(), bm.data(), rm.data(), dense.data(),
                  shared.data()},
                 {1, 0}, 1);
    expectNear(expected, dense.as<float>(), 1e-4, "dense");
    expectZeroPadding(dense.as<float>(), d);
    for (int64_t cut : {0, 1, 3}) {
      Memory listed = makeDirtyRows(1, d);
      kernels->run("skip",
                   {hm.data(), wm.data(), bm.data(), rm.data(), listed.data(),
                    shared.data(), counts.data()},
                   {1, 0}, cut);
      EXPECT_EQ(0, std::memcmp(dense.data(), listed.data(), 4 * padded(d)))
          << "density " << density;
      int64_t bytes = 0;
      for (int64_t u = 0; u < kernels->unitsOf("skip", 1); ++u)
        bytes += counts.as<int32_t>()[u] * kernels->info("skip").countBytes;
      EXPECT_EQ(bytes, active * padded(d) * bytesOf(element));
    }
  }
}

TEST_P(ProductTest, EpilogueActivatesAndAdds) {
  for (const char *activation : {"relu", "gelu", "gelu_tanh"}) {
    std::string attrs =
        str(" {activation = #foresight.activation<%s>}", activation);
    auto kernels =
        compile("foresight.kernel @k(%x: " + rows(d) + ", %w: " + matrix(f, d) +
                ", %b: " + vector(f) + ", %r: " + rows(f) +
                ") {\n%y = foresight.linear %x, %w bias(%b : " + vector(f) +
                ")" + attrs + " : " + rows(d) + ", " + matrix(f, d) + " -> " +
                rows(f) + "\n%o = foresight.add %y, %r : " + rows(f) +
                "\nforesight.yield %o : " + rows(f) + "\n}");
    ASSERT_TRUE(kernels);
    Floats x = randomValues(1, d), b = randomValues(2, f, 3),
           r = randomValues(3, f);
    Floats w = rounded(element, randomValues(4, f * d, 0.3f));
    Memory xm = makeRows(1, d, x), wm = makeMatrix(element, f, d, w),
           bm = makeVector(b), rm = makeRows(1, f, r),
           out = makeDirtyRows(1, f);
    kernels->run("k", {xm.data(), wm.data(), bm.data(), rm.data(), out.data()},
                 {1, 0}, 2);
    Doubles y = product(Doubles(x.begin(), x.end()), w, b, f);
    for (int64_t i = 0; i < f; ++i) {
      double v = y[i];
      std::string name = activation;
      if (name == "relu")
        v = v > 0 ? v : 0;
      else if (name == "gelu")
        v = 0.5 * v * (1 + std::erf(v / std::sqrt(2.0)));
      else
        v = 0.5 * v *
            (1 + std::tanh(std::sqrt(2 / M_PI) * (v + 0.044715 * v * v * v)));
      y[i] = v + r[i];
    }
    expectNear(y, out.as<float>(), 2e-5, activation);
    expectZeroPadding(out.as<float>(), f);
  }
}

TEST_P(ProductTest, WholeRowsOfManyTokens) {
  std::string t = str("tensor<?x%ldxf32>", d), ids = "tensor<?xi32>";
  std::string table = matrix(100, d), v = vector(d);
  auto kernels =
      compile("foresight.kernel @embed(%ids: " + ids + ", %pos: " + ids +
              ", %t: " + table + ", %p: " + table + ", %g: " + v +
              ") {\n%a = foresight.gather_rows %t[%ids] : " + table + ", " +
              ids + " -> " + t +
              "\n%b = foresight.gather_rows %p[%pos] {offset = 2} : " + table +
              ", " + ids + " -> " + t + "\n%c = foresight.add %a, %b : " + t +
              "\n%n = foresight.layer_norm %c gamma(%g : " + v +
              ") epsilon = 1.0e-5 : " + t + " -> " + t +
              "\nforesight.yield %c, %n : " + t + ", " + t +
              "\n}\n"
              "foresight.kernel @head(%x: " +
              t + ", %w: " + matrix(f, d) +
              ") {\n%l = foresight.last_row %x : " + t + " -> " + rows(d) +
              "\n%n = foresight.layer_norm %l epsilon = 1.0e-5 : " + rows(d) +
              " -> " + rows(d) + "\n%o = foresight.linear %n, %w : " + rows(d) +
              ", " + matrix(f, d) + " -> " + rows(f) +
              "\nforesight.yield %o, %n : " + rows(f) + ", " + rows(d) + "\n}");
  ASSERT_TRUE(kernels);
  constexpr int64_t kTokens = 7;
  Floats table0 = rounded(element, randomValues(1, 100 * d)),
         table1 = rounded(element, randomValues(2, 100 * d)),
         gamma = randomValues(3, d),
         w = rounded(element, randomValues(4, f * d));
  Memory t0 = makeMatrix(element, 100, d, table0),
         t1 = makeMatrix(element, 100, d, table1), g = makeVector(gamma),
         idm(4 * kTokens), pm(4 * kTokens), sum = makeDirtyRows(kTokens, d),
         norm = makeDirtyRows(kTokens, d);
  for (int32_t i = 0; i < kTokens; ++i) {
    idm.as<int32_t>()[i] = (i * 37 + 99) % 100;
    pm.as<int32_t>()[i] = 5 + i;
  }
  EXPECT_EQ(kernels->unitsOf("embed", kTokens), kTokens);
  kernels->run("embed",
               {idm.data(), pm.data(), t0.data(), t1.data(), g.data(),
                sum.data(), norm.data()},
               {kTokens, 5}, 2);
  for (int64_t i = 0; i < kTokens; ++i) {
    const float *row = sum.as<float>() + i * padded(d);
    int64_t id = idm.as<int32_t>()[i], p = pm.as<int32_t>()[i] + 2;
    for (int64_t k = 0; k < d; ++k)
      ASSERT_EQ(row[k], table0[id * d + k] + table1[p * d + k]);
    expectZeroPadding(row, d);
    const float *normed = norm.as<float>() + i * padded(d);
    expectNear(layerNorm(row, d, gamma, {}), normed, 1e-5, "norm");
    expectZeroPadding(normed, d);
  }

  Memory wm = makeMatrix(element, f, d, w), logits = makeDirtyRows(1, f),
         last = makeDirtyRows(1, d);
  kernels->run("head", {sum.data(), wm.data(), logits.data(), last.data()},
               {kTokens, 5}, 1);
  Doubles n = layerNorm(sum.as<float>() + (kTokens - 1) * padded(d), d, {}, {});
  expectNear(n, last.as<float>(), 1e-5, "last");
  expectNear(product(n, w, {}, f), logits.as<float>(), 1e-4, "logits");
}

INSTANTIATE_TEST_SUITE_P(
    All, ProductTest,
    ::testing::Combine(::testing::Values("x86-64-v3", "x86-64-v4"),
                       ::testing::Values(0, 1, 2, 3, 4),
                       ::testing::Values(Element::F32, Element::F16,
                                         Element::BF16)),
    [](const auto &info) {
      std::string name = std::get<0>(info.param);
      std::replace(name.begin(), name.end(), '-', '_');
      return name + "_" + std::to_string(std::get<1>(info.param)) + "_" +
             nameOf(std::get<2>(info.param));
    });

} // namespace
