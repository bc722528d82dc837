//===- PackingTest.cpp - The weights section of a bundle ------------------===//

#include "foresight/Target/Packing/Packing.h"

#include "SafetensorsWriter.h"
#include "TempFolder.h"
#include "Transpose.h"

#include "foresight/Dialect/Foresight.h"
#include "foresight/Import/HuggingFace/ImportHuggingFace.h"
#include "foresight/abi/BundleFormat.h"
#include "foresight/lowbit/Balance.h"
#include "foresight/lowbit/Pack.h"
#include "foresight/support/Float.h"
#include "foresight/support/Safetensors.h"
#include "foresight/support/Synthetic.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/MLIRContext.h"
#include "mlir/Parser/Parser.h"

#include <chrono>
#include <cmath>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <mutex>

using namespace mlir;
using namespace foresight;
using namespace foresight::test;
using testing::HasSubstr;

namespace {

class PackingTest : public testing::Test {
protected:
  PackingTest() { context.loadDialect<ForesightDialect, func::FuncDialect>(); }

  /// A module of `weights`, each of which is used.
  OwningOpRef<ModuleOp> parse(const std::string &weights) {
    std::string text = weights + "\nfunc.func @use() {\n";
    auto module = parseSourceString<ModuleOp>(weights, &context);
    if (!module)
      return nullptr;
    for (WeightOp weight : module->getOps<WeightOp>()) {
      std::string type;
      llvm::raw_string_ostream(type) << weight.getType();
      text += "  %" + weight.getSymName().str() + " = foresight.get_weight @" +
              weight.getSymName().str() + " : " + type + "\n";
    }
    return parseSourceString<ModuleOp>(text + "  return\n}\n", &context);
  }

  /// The bytes of the section, checked to come in whole blocks.
  static std::vector<std::byte> write(const Packing &packing,
                                      unsigned threads = 2) {
    std::vector<std::byte> section(packing.bytes(), std::byte{0xee});
    std::mutex mutex;
    uint64_t sum = 0;
    auto sink = [&](uint64_t offset, std::span<const std::byte> bytes) {
      std::lock_guard<std::mutex> lock(mutex);
      EXPECT_EQ(offset % bundle::kChecksumBlock, 0u);
      EXPECT_EQ(bytes.size(),
                std::min(bundle::kChecksumBlock, packing.bytes() - offset));
      std::copy(bytes.begin(), bytes.end(), section.begin() + offset);
      sum += bytes.size();
      return Status();
    };
    PackingOptions options;
    options.threads = threads;
    Status status = packing.write(sink, options);
    EXPECT_TRUE(status.ok()) << status.error().message;
    EXPECT_EQ(sum, packing.bytes());
    return section;
  }

  static Error errorOf(const Packing &packing) {
    Status status = packing.write(
        [](uint64_t, std::span<const std::byte>) -> Status { return {}; });
    EXPECT_FALSE(status.ok());
    return status.ok() ? Error{} : status.error();
  }

  /// An `#foresight.external` of a tensor.
  static std::string externalOf(const Safetensors &file,
                                const std::string &name,
                                const std::string &more = "") {
    const TensorInfo &tensor = *file.find(name);
    return "#foresight.external<\"" + tensor.file->path() +
           "\", offset = " + std::to_string(tensor.offset) +
           ", bytes = " + std::to_string(tensor.bytes) + ", " +
           std::string(elementName(tensor.type)) + more + ">";
  }

  MLIRContext context;
  TempFolder folder;
};

TEST_F(PackingTest, MatricesOfTheExampleAreTheBytesOfItsFiles) {
  const std::string path = FORESIGHT_SOURCE_DIR "/examples/opt-mini";
  auto module = importHuggingFace(context, path);
  ASSERT_TRUE(module.ok()) << module.error().message;
  auto packing = Packing::plan(**module);
  ASSERT_TRUE(packing.ok()) << packing.error().message;
  const std::vector<std::byte> section = write(*packing);
  auto file = Safetensors::openFolder(path);
  ASSERT_TRUE(file.ok());
  ASSERT_EQ(packing->weights().size(), file->tensors().size());
  for (const PackedWeight &weight : packing->weights()) {
    ASSERT_EQ(weight.tensors.size(), 1u);
    const TensorInfo &tensor = *file->find(weight.tensors[0]);
    EXPECT_EQ(weight.shape, tensor.shape);
    EXPECT_EQ(weight.offset % 64, 0u);
    if (weight.shape.size() == 2) { // rows of 384 and 1536 need no padding
      EXPECT_EQ(weight.element, "f16");
      ASSERT_EQ(weight.bytes, tensor.bytes);
      EXPECT_EQ(std::memcmp(section.data() + weight.offset, tensor.data(),
                            tensor.bytes),
                0)
          << weight.name;
      continue;
    }
    EXPECT_EQ(weight.element, "f32");
    std::vector<float> expected(weight.shape[0]);
    convertToFloat(tensor.type, tensor.data(), expected.data(),
                   expected.size());
    EXPECT_EQ(std::memcmp(section.data() + weight.offset, expected.data(),
                          expected.size() * 4),
              0)
        << weight.name;
  }
}

TEST_F(PackingTest, TransposesJoinsConvertsAndPads) {
  SafetensorsWriter writer;
  std::vector<float> values(3 * 70), more(2 * 70), bias = {1, 2, 3};
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = 1 + static_cast<float>(i) / 64;
  for (size_t i = 0; i < more.size(); ++i)
    more[i] = -1 - static_cast<float>(i) / 64;
  writer.add("a", {3, 70}, values);
  writer.add("b", {2, 70}, more);
  writer.add("bias", {3}, bias);
  folder.write("m.safetensors", writer.bytes());
  auto file = Safetensors::openFile(folder / "m.safetensors");
  ASSERT_TRUE(file.ok());
  auto module = parse(
      "foresight.weight @a : tensor<3x70xf16> = " + externalOf(*file, "a") +
      "\nforesight.weight @b : tensor<2x70xf16> = " + externalOf(*file, "b") +
      "\nforesight.weight @flipped : tensor<70x3xbf16> = " +
      externalOf(*file, "a", ", transposed = true") +
      "\nforesight.weight @turned : tensor<70x3xf16> = "
      "#foresight.derived<transpose, [@a]>"
      "\nforesight.weight @joined : tensor<5x70xf16> = "
      "#foresight.derived<concat_rows, [@a, @b]>"
      "\nforesight.weight @slice : tensor<2x70xf16> = "
      "#foresight.derived<slice_rows, [@a], first = 1>"
      "\nforesight.weight @flippedSlice : tensor<40x3xbf16> = "
      "#foresight.derived<slice_rows, [@flipped], first = 20>"
      "\nforesight.weight @back : tensor<3x40xbf16> = "
      "#foresight.derived<transpose, [@flippedSlice]>"
      "\nforesight.weight @biasSlice : tensor<2xf32> = "
      "#foresight.derived<slice_rows, [@bias], first = 1>"
      "\nforesight.weight @bias : tensor<3xf32> = " +
      externalOf(*file, "bias") +
      "\nforesight.weight @biases : tensor<6xf32> = "
      "#foresight.derived<concat_rows, [@bias, @bias]>");
  ASSERT_TRUE(module);
  auto packing = Packing::plan(*module);
  ASSERT_TRUE(packing.ok()) << packing.error().message;
  const std::vector<std::byte> section = write(*packing);

  auto at = [&](const std::string &name, int64_t row, int64_t column) {
    const PackedWeight &weight = packing->weights()[packing->indexOf(name)];
    if (weight.shape.size() == 1)
      return reinterpret_cast<const float *>(section.data() +
                                             weight.offset)[column];
    const int64_t stride = (weight.shape[1] + 31) / 32 * 32;
    EXPECT_EQ(weight.bytes,
              static_cast<uint64_t>(weight.shape[0] * stride * 2));
    const uint16_t bits = reinterpret_cast<const uint16_t *>(
        section.data() + weight.offset)[row * stride + column];
    return weight.element == "bf16" ? bfloatToFloat(bits) : halfToFloat(bits);
  };
  for (int64_t i = 0; i < 3; ++i) {
    for (int64_t j = 0; j < 70; ++j) {
      const float value = values[i * 70 + j];
      EXPECT_EQ(at("a", i, j), halfToFloat(floatToHalf(value)));
      EXPECT_EQ(at("turned", j, i), at("a", i, j));
      EXPECT_EQ(at("flipped", j, i), bfloatToFloat(floatToBfloat(value)));
      EXPECT_EQ(at("joined", i, j), at("a", i, j));
    }
    for (int64_t j = 0; j < 40; ++j) {
      EXPECT_EQ(at("flippedSlice", j, i), at("flipped", 20 + j, i));
      EXPECT_EQ(at("back", i, j), at("flipped", 20 + j, i));
    }
    for (int64_t j = 0; i > 0 && j < 70; ++j)
      EXPECT_EQ(at("slice", i - 1, j), at("a", i, j));
    if (i > 0)
      EXPECT_EQ(at("biasSlice", 0, i - 1), bias[i]);
    EXPECT_EQ(at("biases", 0, i), bias[i]);
    EXPECT_EQ(at("biases", 0, 3 + i), bias[i]);
    for (int64_t j = 70; j < 96; ++j) // padding
      EXPECT_EQ(at("a", i, j), 0);
  }
  EXPECT_EQ(at("joined", 4, 69), at("b", 1, 69));
  EXPECT_EQ(at("biases", 0, 31), 0);
  EXPECT_EQ(packing->weights()[packing->indexOf("joined")].tensors.size(), 2u);
  EXPECT_EQ(packing->weights()[packing->indexOf("biases")].tensors.size(), 1u);
}

TEST_F(PackingTest, TransposesAnyShape) {
  for (int64_t width : {2, 4})
    for (auto [rows, columns] :
         {std::pair{1, 1}, {8, 8}, {7, 9}, {64, 33}, {3, 100}, {100, 3}}) {
      std::vector<std::byte> in(rows * columns * width), out(in.size());
      for (size_t i = 0; i < in.size(); ++i)
        in[i] = static_cast<std::byte>(i * 7 + i / 256);
      packing::transpose(in.data(), columns * width, out.data(), rows * width,
                         rows, columns, width);
      for (int64_t r = 0; r < rows; ++r)
        for (int64_t c = 0; c < columns; ++c)
          ASSERT_EQ(std::memcmp(&in[(r * columns + c) * width],
                                &out[(c * rows + r) * width], width),
                    0);
    }
}

/// Three matrices that together cross several blocks, and their copies.
constexpr const char *kLarge = R"(
foresight.weight @w : tensor<3001x700xf16> = #foresight.synthetic<
    seed = 3, mean = 0.0 : f64, deviation = 0.02 : f64>
foresight.weight @bias : tensor<3001xf32> = #foresight.synthetic<
    seed = 4, mean = -1.0 : f64, deviation = 0.1 : f64>
foresight.weight @gamma : tensor<700xf32> = #foresight.synthetic<
    seed = 5, mean = 1.0 : f64, deviation = 0.1 : f64>
foresight.weight @beta : tensor<700xf32> = #foresight.synthetic<
    seed = 6, mean = 0.0 : f64, deviation = 0.1 : f64>
foresight.weight @copy8 : !foresight.low_bit<3001 x 700, 8> =
    #foresight.derived<low_bit, [@w, @bias, @gamma, @beta]>
foresight.weight @copy5 : !foresight.low_bit<3001 x 700, 5> =
    #foresight.derived<low_bit, [@w, @none, @none, @none]>
foresight.weight @copy3 : !foresight.low_bit<3001 x 700, 3> =
    #foresight.derived<low_bit, [@w, @none, @gamma, @none, @balance]>
foresight.weight @balance : tensor<700xf32> =
    #foresight.derived<balance, [@w, @gamma]>
foresight.weight @turned : tensor<700x3001xf16> =
    #foresight.derived<transpose, [@w]>
)";

TEST_F(PackingTest, LowBitCopiesAreTheRecordsOfThePacker) {
  auto module = parse(kLarge);
  ASSERT_TRUE(module);
  auto packing = Packing::plan(*module);
  ASSERT_TRUE(packing.ok()) << packing.error().message;
  ASSERT_GT(packing->bytes(), 2 * bundle::kChecksumBlock);
  const std::vector<std::byte> section = write(*packing);

  constexpr int64_t rows = 3001, columns = 700;
  std::vector<float> w(rows * columns), bias(rows), gamma(columns),
      beta(columns);
  Synthetic{3, 0, 0.02f}.fill(0, w.data(), w.size());
  for (float &value : w)
    value = halfToFloat(floatToHalf(value));
  Synthetic{4, -1, 0.1f}.fill(0, bias.data(), bias.size());
  Synthetic{5, 1, 0.1f}.fill(0, gamma.data(), gamma.size());
  Synthetic{6, 0, 0.1f}.fill(0, beta.data(), beta.size());
  std::vector<float> sample;
  for (const lowbit::RowRange &group : lowbit::sampleRows(rows))
    sample.insert(sample.end(), w.begin() + group.begin * columns,
                  w.begin() + group.end * columns);
  const std::vector<float> balance =
      lowbit::balanceColumns(sample, columns, gamma);
  const PackedWeight &packed = packing->weights()[packing->indexOf("balance")];
  EXPECT_EQ(packed.element, "f32");
  EXPECT_EQ(std::memcmp(section.data() + packed.offset, balance.data(),
                        columns * sizeof(float)),
            0);

  for (int bits : {8, 5, 3}) {
    std::vector<std::byte> expected(lowbit::record(rows, columns, bits).bytes);
    using Numbers = std::span<const float>;
    const Numbers none;
    lowbit::Packer packer(rows, columns, bits,
                          bits == 5 ? none : Numbers(gamma),
                          bits == 8 ? Numbers(beta) : none, expected,
                          bits == 3 ? Numbers(balance) : none);
    for (int64_t i = 0; i < rows; ++i)
      packer.pack(i, std::span(w).subspan(i * columns, columns),
                  bits == 8 ? bias[i] : 0);
    const PackedWeight &copy =
        packing->weights()[packing->indexOf("copy" + std::to_string(bits))];
    EXPECT_EQ(copy.element, "low_bit");
    EXPECT_EQ(copy.bits, bits);
    ASSERT_EQ(copy.bytes, expected.size());
    EXPECT_EQ(std::memcmp(section.data() + copy.offset, expected.data(),
                          expected.size()),
              0)
        << bits << " bits";
  }
}

TEST_F(PackingTest, BytesDoNotDependOnTheNumberOfThreads) {
  auto module = parse(kLarge);
  ASSERT_TRUE(module);
  auto packing = Packing::plan(*module);
  ASSERT_TRUE(packing.ok()) << packing.error().message;
  const std::vector<std::byte> one = write(*packing, 1);
  EXPECT_EQ(one, write(*packing, 2));
  EXPECT_EQ(one, write(*packing, 5));
}

TEST_F(PackingTest, EqualContentIsStoredOnce) {
  // A head stored a second time, transposed, as exporters do.
  SafetensorsWriter writer;
  std::vector<float> embed(40 * 32), head(32 * 40), other(40 * 32);
  for (int64_t v = 0; v < 40; ++v)
    for (int64_t k = 0; k < 32; ++k) {
      embed[v * 32 + k] = static_cast<float>(v * 32 + k);
      head[k * 40 + v] = embed[v * 32 + k];
      other[v * 32 + k] = embed[v * 32 + k];
    }
  other.back() += 1;
  writer.add("embed", {40, 32}, embed);
  writer.add("head", {32, 40}, head);
  writer.add("other", {40, 32}, other);
  folder.write("m.safetensors", writer.bytes());
  auto file = Safetensors::openFile(folder / "m.safetensors");
  ASSERT_TRUE(file.ok());
  auto module = parse("foresight.weight @embed : tensor<40x32xf32> = " +
                      externalOf(*file, "embed") +
                      "\nforesight.weight @head : tensor<40x32xf32> = " +
                      externalOf(*file, "head", ", transposed = true") +
                      "\nforesight.weight @other : tensor<40x32xf32> = " +
                      externalOf(*file, "other"));
  ASSERT_TRUE(module);
  auto packing = Packing::plan(*module);
  ASSERT_TRUE(packing.ok()) << packing.error().message;
  const auto &weights = packing->weights();
  EXPECT_EQ(weights[0].offset, weights[1].offset);
  EXPECT_NE(weights[0].offset, weights[2].offset);
  EXPECT_EQ(packing->savedBytes(), 40u * 32 * 4);
  EXPECT_EQ(packing->bytes(), 2u * 40 * 32 * 4);
}

TEST_F(PackingTest, ANumberThatIsNotFiniteIsFoundAndNamed) {
  const std::pair<float, const char *> cases[] = {
      {NAN, "is NaN at [1, 33]"},
      {INFINITY, "is infinite at [1, 33]"},
      {1e6f, "is 1e+06 at [1, 33], too large for f16"}};
  for (auto [value, message] : cases)
    for (bool transposed : {false, true}) {
      SafetensorsWriter writer;
      std::vector<float> values(3 * 70, 1.0f);
      values[70 + 33] = value;
      writer.add("layers.1.fc1.weight", {3, 70}, values);
      folder.write("m.safetensors", writer.bytes());
      auto file = Safetensors::openFile(folder / "m.safetensors");
      ASSERT_TRUE(file.ok());
      auto module = parse(std::string("foresight.weight @w : tensor<") +
                          (transposed ? "70x3" : "3x70") + "xf16> = " +
                          externalOf(*file, "layers.1.fc1.weight",
                                     transposed ? ", transposed = true" : "") +
                          " loc(\"layers.1.fc1.weight\")");
      ASSERT_TRUE(module);
      auto packing = Packing::plan(*module);
      ASSERT_TRUE(packing.ok()) << packing.error().message;
      const Error error = errorOf(*packing);
      EXPECT_EQ(error.code, ErrorCode::BadInput);
      EXPECT_THAT(error.message, HasSubstr(folder / "m.safetensors"));
      EXPECT_THAT(error.message, HasSubstr("'layers.1.fc1.weight'"));
      EXPECT_THAT(error.message, HasSubstr(message));
    }
}

TEST_F(PackingTest, RangesOutsideTheFileAreRefused) {
  const std::string path = folder.write("w.bin", std::string(100, '\0'));
  auto module =
      parse("foresight.weight @w : tensor<6x4xf32> = #foresight.external<\"" +
            path + "\", offset = 8, bytes = 96, f32>");
  ASSERT_TRUE(module);
  auto packing = Packing::plan(*module);
  ASSERT_FALSE(packing.ok());
  EXPECT_EQ(packing.error().code, ErrorCode::BadInput);
  EXPECT_THAT(packing.error().message,
              HasSubstr("96 bytes at offset 8 lie outside the file, which has "
                        "100 bytes"));
}

TEST_F(PackingTest, AnErrorOfTheSinkEndsTheWork) {
  auto module = parse(kLarge);
  ASSERT_TRUE(module);
  auto packing = Packing::plan(*module);
  ASSERT_TRUE(packing.ok());
  Status status =
      packing->write([](uint64_t, std::span<const std::byte>) -> Status {
        return makeError(ErrorCode::Resource, "disk full");
      });
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().message, "disk full");
}

TEST_F(PackingTest, AnEstimateIsOfAllBlocksAndChangesNothing) {
  // 84 MB: more blocks than are tried.
  auto module = parse("foresight.weight @w : tensor<10240x4096xf16> = "
                      "#foresight.synthetic<seed = 5, mean = 0.0 : f64, "
                      "deviation = 0.5 : f64>");
  ASSERT_TRUE(module);
  auto packing = Packing::plan(*module);
  ASSERT_TRUE(packing.ok()) << packing.error().message;
  const auto start = std::chrono::steady_clock::now();
  auto estimate = packing->estimateSeconds();
  const std::chrono::duration<double> spent =
      std::chrono::steady_clock::now() - start;
  ASSERT_TRUE(estimate.ok()) << estimate.error().message;
  // 16 of its 20 blocks were made.
  EXPECT_GT(*estimate, 0);
  EXPECT_LE(*estimate, spent.count() * 20 / 16);
  const std::vector<std::byte> section = write(*packing);
  EXPECT_EQ(section.size(), 10240u * 4096 * 2);
}

TEST_F(PackingTest, OnlyUsedWeightsArePacked) {
  auto module = parseSourceString<ModuleOp>(R"(
    foresight.weight @a : tensor<2x2xf32> = dense<1.0> : tensor<2x2xf32>
    foresight.weight @b : tensor<2x2xf32> = dense<2.0> : tensor<2x2xf32>
    func.func @f() -> tensor<2x2xf32> {
      %b = foresight.get_weight @b : tensor<2x2xf32>
      return %b : tensor<2x2xf32>
    })",
                                            &context);
  ASSERT_TRUE(module);
  auto packing = Packing::plan(*module);
  ASSERT_TRUE(packing.ok()) << packing.error().message;
  EXPECT_EQ(packing->indexOf("a"), -1);
  EXPECT_EQ(packing->indexOf("b"), 0);
  const std::vector<std::byte> section = write(*packing);
  EXPECT_EQ(reinterpret_cast<const float *>(section.data())[0], 2.0f);
}

} // namespace
