//===- LibraryProducts.cpp - Products of a prompt -------------------------===//
//
// A library stage as cuBLASLt wants it: x in the weight's type, what follows
// that it lacks, and products of the same x as one where their weights, biases
// and results lie at equal steps.
//
//===----------------------------------------------------------------------===//
#include "CudaProgram.h"

#include <algorithm>

namespace foresight::cuda {
namespace {

/// Threads of a block and elements of a thread of the entries that surround
/// library products: the compiler's promise.
constexpr unsigned kElementwiseThreads = 256;
constexpr int64_t kThreadElements = 4;

int64_t padded(int64_t columns) {
  return (columns + FORESIGHT_ROW_PAD - 1) / FORESIGHT_ROW_PAD *
         FORESIGHT_ROW_PAD;
}

int64_t bytesOf(Element element) { return element == Element::F32 ? 4 : 2; }

} // namespace

int64_t CudaProgram::castBytes() const {
  const Manifest &facts = manifest();
  int64_t bytes = 0;
  for (const EntryInfo &entry : facts.entries)
    for (const StageInfo &stage : entry.stages)
      if (stage.gemm &&
          facts.buffers[static_cast<size_t>(stage.gemm->x)].element ==
              Element::F32)
        bytes = std::max(bytes, entry.maxTokens * padded(stage.gemm->k) * 2);
  return bytes;
}

int64_t CudaProgram::biasBytes() const {
  const Manifest &facts = manifest();
  int64_t bytes = 0;
  for (const EntryInfo &entry : facts.entries)
    for (const StageInfo &stage : entry.stages)
      if (stage.gemm && stage.gemm->bias >= 0 &&
          facts.buffers[static_cast<size_t>(stage.gemm->out)].element !=
              Element::F32)
        bytes += padded(stage.gemm->n) * 2;
  return bytes;
}

/// The library adds a bias in the type of its result.
Status CudaProgram::narrowBiases() {
  const Manifest &facts = manifest();
  FORESIGHT_TRY(biases, DeviceMemory::allocate(driver, biasBytes()));
  Pointer next = biases.data();
  for (const EntryInfo &entry : facts.entries)
    for (const StageInfo &stage : entry.stages) {
      if (!stage.gemm || stage.gemm->bias < 0)
        continue;
      const Element element =
          facts.buffers[static_cast<size_t>(stage.gemm->out)].element;
      if (element == Element::F32 ||
          !narrowBias.emplace(stage.gemm->bias, next).second)
        continue;
      const WeightInfo &bias =
          facts.weights[static_cast<size_t>(stage.gemm->bias)];
      FORESIGHT_CHECK(
          queueElementwise(element == Element::F16 ? castF16 : castBf16,
                           weights.data() + static_cast<Pointer>(bias.offset),
                           next, padded(stage.gemm->n), stage.name));
      next += static_cast<Pointer>(padded(stage.gemm->n) * 2);
    }
  return finish("round biases");
}

Product CudaProgram::productOf(const StageInfo &stage, int64_t tokens) const {
  const Manifest &facts = manifest();
  const GemmInfo &gemm = *stage.gemm;
  const auto buffer = [&](int64_t i) -> const BufferInfo & {
    return facts.buffers[static_cast<size_t>(i)];
  };
  const auto weight = [&](int64_t i) -> const WeightInfo & {
    return facts.weights[static_cast<size_t>(i)];
  };
  const auto at = [&](int64_t i) {
    return weights.data() + static_cast<Pointer>(weight(i).offset);
  };
  Product p;
  p.n = gemm.n;
  p.k = gemm.k;
  p.tokens = std::min(tokens, buffer(gemm.out).rows);
  p.inOut = gemm.inOut;
  p.element = weight(gemm.weight).element;
  p.weight = at(gemm.weight);
  p.weightStride = padded(weight(gemm.weight).shape[1]);
  p.x = addresses[static_cast<size_t>(gemm.x)];
  p.xStride = buffer(gemm.x).rowBytes / bytesOf(buffer(gemm.x).element);
  p.y = addresses[static_cast<size_t>(gemm.out)];
  p.yElement = buffer(gemm.out).element;
  p.yStride = buffer(gemm.out).rowBytes / bytesOf(p.yElement);
  if (gemm.bias >= 0)
    p.bias =
        p.yElement == Element::F32 ? at(gemm.bias) : narrowBias.at(gemm.bias);
  p.activation = gemm.activation;
  if (gemm.residual >= 0) {
    p.residual = addresses[static_cast<size_t>(gemm.residual)];
    p.residualStride = buffer(gemm.residual).rowBytes / 4;
  }
  return p;
}

/// Neighbouring stages that multiply the same x by matrices of one shape.
void CudaProgram::joinProducts(const EntryInfo &info, Entry &entry) const {
  const auto sameShape = [](const Product &a, const Product &b) {
    return a.x == b.x && a.n == b.n && a.k == b.k && a.inOut == b.inOut &&
           a.element == b.element && a.yElement == b.yElement &&
           a.yStride == b.yStride && a.activation == b.activation &&
           CublasLt::supports(a.activation) && !a.residual && !b.residual &&
           (a.bias != 0) == (b.bias != 0);
  };
  const auto distances = [](const Product &a, const Product &b) {
    return std::array{a.weight - b.weight, a.bias - b.bias, a.y - b.y};
  };
  for (size_t first = 0; first < info.stages.size();) {
    size_t end = first + 1;
    const auto joins = [&](size_t i) {
      const StageInfo &stage = info.stages[i];
      if (!info.stages[first].gemm || !stage.gemm)
        return false;
      const Product a = productOf(info.stages[first], 1),
                    before = productOf(info.stages[i - 1], 1),
                    p = productOf(stage, 1);
      // None waits for another, and all steps are equal.
      return std::all_of(stage.after.begin(), stage.after.end(),
                         [&](int64_t s) { return s < int64_t(first); }) &&
             sameShape(a, p) && p.weight > before.weight && p.y > before.y &&
             (i == first + 1 ||
              distances(p, before) ==
                  distances(productOf(info.stages[first + 1], 1), a));
    };
    while (end < info.stages.size() && joins(end))
      ++end;
    for (size_t i = first; i < end; ++i)
      entry.stages[i].products = 0;
    entry.stages[first].products = int64_t(end - first);
    first = end;
  }
}

/// The product of a stage and of the `count` - 1 behind it.
Status CudaProgram::queueProduct(const EntryInfo &info, size_t index,
                                 int64_t count, int64_t tokens) {
  const StageInfo &stage = info.stages[index];
  Product p = productOf(stage, tokens);
  if (count > 1) {
    const Product next = productOf(info.stages[index + 1], tokens);
    const auto step = [](Pointer from, Pointer to, Element element) {
      return static_cast<int64_t>(to - from) / bytesOf(element);
    };
    p.count = count;
    p.weightStep = step(p.weight, next.weight, p.element);
    p.biasStep = step(p.bias, next.bias, p.yElement);
    p.yStep = step(p.y, next.y, p.yElement);
  }
  const Element xElement =
      manifest().buffers[static_cast<size_t>(stage.gemm->x)].element;
  if (p.element != xElement) {
    Function function = p.element == Element::F16 ? castF16 : castBf16;
    if (!function)
      return makeError(ErrorCode::BadBundle, "stage '", stage.name,
                       "' needs a cast that the bundle's code lacks");
    FORESIGHT_CHECK(queueElementwise(function, p.x, cast.data(),
                                     p.tokens * p.xStride, stage.name));
    p.x = cast.data();
  }
  Function after = nullptr;
  if (!CublasLt::supports(p.activation)) {
    after = p.activation == Activation::Gelu ? gelu : geluTanh;
    if (!after || p.residual)
      return makeError(ErrorCode::BadBundle, "stage '", stage.name,
                       "' needs an activation that the bundle's code lacks");
    p.activation = Activation::None;
  }
  if (Status done = products->multiply(p, stream); !done.ok())
    return makeError(done.error().code, "stage '", stage.name,
                     "': ", done.error().message);
  if (after)
    return queueElementwise(after, p.y, p.y, p.tokens * p.yStride, stage.name);
  return {};
}

Status CudaProgram::queueElementwise(Function function, Pointer from,
                                     Pointer to, int64_t count,
                                     const std::string &stage) {
  void *parameters[] = {&from, &to, &count};
  const int64_t perBlock = kElementwiseThreads * kThreadElements;
  LaunchConfig config{};
  config.gridX = static_cast<unsigned>((count + perBlock - 1) / perBlock);
  config.gridY = config.gridZ = config.blockY = config.blockZ = 1;
  config.blockX = kElementwiseThreads;
  config.stream = stream;
  return driver.check(driver.launch(&config, function, parameters, nullptr),
                      "launch what surrounds the product of stage '" + stage +
                          "'");
}

} // namespace foresight::cuda
