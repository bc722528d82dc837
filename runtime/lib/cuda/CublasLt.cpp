//===- CublasLt.cpp - Prompt products by cuBLASLt -------------------------===//
//
// The library is column-major. A row-major [rows, columns] with a stride is a
// column-major [columns, rows] with the same leading dimension, so it is asked
// for y^T = W x^T.
//
//===----------------------------------------------------------------------===//
#include "CublasLt.h"

#include "Memory.h"

#include <array>
#include <dlfcn.h>
#include <map>

namespace foresight::cuda {
namespace {

// The library's own numbers.
constexpr int kCompute32F = 68, kReal32F = 0, kReal16F = 2, kReal16BF = 14;
constexpr int kTransposeA = 3, kEpilogue = 7, kBiasPointer = 8, kBiasStep = 10;
constexpr int kLayoutCount = 5, kLayoutStep = 6;
constexpr int kOpN = 0, kOpT = 1;
constexpr int kEpilogueDefault = 1, kEpilogueRelu = 2, kEpilogueBias = 4;
constexpr int kMaxWorkspace = 1;
constexpr int64_t kWorkspaceBytes = 32 << 20;

using Handle = void *;
using Descriptor = void *;

struct Algorithm {
  uint64_t data[8];
};

struct Heuristic {
  Algorithm algorithm;
  size_t workspaceBytes;
  int state;
  float waves;
  int reserved[4];
};

struct Functions {
  int (*create)(Handle *);
  int (*destroy)(Handle);
  int (*descCreate)(Descriptor *, int, int);
  int (*descDestroy)(Descriptor);
  int (*descSet)(Descriptor, int, const void *, size_t);
  int (*layoutCreate)(Descriptor *, int, uint64_t, uint64_t, int64_t);
  int (*layoutDestroy)(Descriptor);
  int (*layoutSet)(Descriptor, int, const void *, size_t);
  int (*preferenceCreate)(Descriptor *);
  int (*preferenceDestroy)(Descriptor);
  int (*preferenceSet)(Descriptor, int, const void *, size_t);
  int (*heuristic)(Handle, Descriptor, Descriptor, Descriptor, Descriptor,
                   Descriptor, Descriptor, int, Heuristic *, int *);
  int (*multiply)(Handle, Descriptor, const void *, const void *, Descriptor,
                  const void *, Descriptor, const void *, const void *,
                  Descriptor, void *, Descriptor, const Algorithm *, void *,
                  size_t, Stream);
};

int dataType(Element element) {
  return element == Element::F32   ? kReal32F
         : element == Element::F16 ? kReal16F
                                   : kReal16BF;
}

class Library final : public CublasLt {
public:
  Status load(const Driver &driver);
  ~Library() override {
    if (handle)
      f.destroy(handle);
  }
  Status multiply(const Product &product, Stream stream) override;

private:
  struct Plan {
    Descriptor desc = nullptr, a = nullptr, b = nullptr, c = nullptr,
               d = nullptr, preference = nullptr;
  };
  void release(Plan &plan) const {
    for (Descriptor layout : {plan.a, plan.b, plan.c, plan.d})
      if (layout)
        f.layoutDestroy(layout);
    if (plan.desc)
      f.descDestroy(plan.desc);
    if (plan.preference)
      f.preferenceDestroy(plan.preference);
  }
  Status check(int status, const char *doing) const {
    if (status == 0)
      return {};
    return makeError(ErrorCode::Internal, "cuBLASLt cannot ", doing,
                     ": status ", status);
  }
  Status build(const Product &p, Plan &plan);
  Status repeat(const Product &p, Plan &plan);

  Functions f{};
  Handle handle = nullptr;
  DeviceMemory workspace;
  /// The library's choice for a shape: asking takes longer than multiplying.
  std::map<std::array<int64_t, 7>, Algorithm> chosen;
};

Status Library::load(const Driver &driver) {
  void *library = nullptr;
  for (const char *name : {"libcublasLt.so.13", "libcublasLt.so.12",
                           "/usr/local/cuda/lib64/libcublasLt.so.13",
                           "/usr/local/cuda/lib64/libcublasLt.so.12"})
    if ((library = dlopen(name, RTLD_NOW)))
      break;
  if (!library)
    return makeError(ErrorCode::Resource,
                     "cuBLASLt (libcublasLt.so.13 or .12) is not installed; "
                     "prompts on a GPU need it");
  const char *missing = nullptr;
  const auto need = [&](const char *name, auto &function) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(
        dlsym(library, name));
    if (!function && !missing)
      missing = name;
  };
  need("cublasLtCreate", f.create);
  need("cublasLtDestroy", f.destroy);
  need("cublasLtMatmulDescCreate", f.descCreate);
  need("cublasLtMatmulDescDestroy", f.descDestroy);
  need("cublasLtMatmulDescSetAttribute", f.descSet);
  need("cublasLtMatrixLayoutCreate", f.layoutCreate);
  need("cublasLtMatrixLayoutDestroy", f.layoutDestroy);
  need("cublasLtMatrixLayoutSetAttribute", f.layoutSet);
  need("cublasLtMatmulPreferenceCreate", f.preferenceCreate);
  need("cublasLtMatmulPreferenceDestroy", f.preferenceDestroy);
  need("cublasLtMatmulPreferenceSetAttribute", f.preferenceSet);
  need("cublasLtMatmulAlgoGetHeuristic", f.heuristic);
  need("cublasLtMatmul", f.multiply);
  if (missing)
    return makeError(ErrorCode::Resource, "cuBLASLt lacks ", missing);
  FORESIGHT_CHECK(check(f.create(&handle), "start"));
  FORESIGHT_TRY(workspace, DeviceMemory::allocate(driver, kWorkspaceBytes));
  return {};
}

Status Library::build(const Product &p, Plan &plan) {
  const int type = dataType(p.element);
  const auto n = static_cast<uint64_t>(p.n), k = static_cast<uint64_t>(p.k),
             t = static_cast<uint64_t>(p.tokens);
  FORESIGHT_CHECK(
      check(f.descCreate(&plan.desc, kCompute32F, kReal32F), "describe"));
  const int operation = p.inOut ? kOpN : kOpT;
  FORESIGHT_CHECK(
      check(f.descSet(plan.desc, kTransposeA, &operation, sizeof(operation)),
            "transpose"));
  int epilogue = p.bias ? kEpilogueBias : kEpilogueDefault;
  if (p.activation == Activation::Relu)
    epilogue = p.bias ? kEpilogueBias | kEpilogueRelu : kEpilogueRelu;
  FORESIGHT_CHECK(check(
      f.descSet(plan.desc, kEpilogue, &epilogue, sizeof(epilogue)), "fuse"));
  if (p.bias)
    FORESIGHT_CHECK(check(
        f.descSet(plan.desc, kBiasPointer, &p.bias, sizeof(p.bias)), "fuse"));
  FORESIGHT_CHECK(check(f.layoutCreate(&plan.a, type, p.inOut ? n : k,
                                       p.inOut ? k : n, p.weightStride),
                        "describe a weight"));
  FORESIGHT_CHECK(
      check(f.layoutCreate(&plan.b, type, k, t, p.xStride), "describe x"));
  const int yType = dataType(p.yElement);
  FORESIGHT_CHECK(
      check(f.layoutCreate(&plan.c, yType, n, t,
                           p.residual ? p.residualStride : p.yStride),
            "describe a residual"));
  FORESIGHT_CHECK(
      check(f.layoutCreate(&plan.d, yType, n, t, p.yStride), "describe y"));
  if (p.count > 1)
    FORESIGHT_CHECK(repeat(p, plan));
  FORESIGHT_CHECK(check(f.preferenceCreate(&plan.preference), "choose"));
  const auto bytes = static_cast<size_t>(kWorkspaceBytes);
  return check(
      f.preferenceSet(plan.preference, kMaxWorkspace, &bytes, sizeof(bytes)),
      "choose");
}

Status Library::repeat(const Product &p, Plan &plan) {
  const auto count = static_cast<int32_t>(p.count);
  for (auto [layout, step] :
       {std::pair(plan.a, p.weightStep), std::pair(plan.b, int64_t(0)),
        std::pair(plan.c, p.yStep), std::pair(plan.d, p.yStep)}) {
    FORESIGHT_CHECK(
        check(f.layoutSet(layout, kLayoutCount, &count, sizeof(count)),
              "repeat a product"));
    FORESIGHT_CHECK(check(f.layoutSet(layout, kLayoutStep, &step, sizeof(step)),
                          "repeat a product"));
  }
  return p.bias ? check(f.descSet(plan.desc, kBiasStep, &p.biasStep,
                                  sizeof(p.biasStep)),
                        "repeat a bias")
                : Status();
}

Status Library::multiply(const Product &p, Stream stream) {
  Plan plan;
  Status built = build(p, plan);
  if (built.ok()) {
    const std::array<int64_t, 7> key{
        p.n,
        p.k,
        p.tokens,
        int64_t(p.inOut),
        p.count,
        int64_t(p.element) * 8 + int64_t(p.yElement),
        int64_t(p.activation) * 4 + (p.bias != 0) * 2 + (p.residual != 0)};
    auto found = chosen.find(key);
    if (found == chosen.end()) {
      Heuristic best{};
      int count = 0;
      built = check(f.heuristic(handle, plan.desc, plan.a, plan.b, plan.c,
                                plan.d, plan.preference, 1, &best, &count),
                    "find a way to multiply");
      if (built.ok() && count == 0)
        built =
            makeError(ErrorCode::Internal, "cuBLASLt has no way to multiply ",
                      p.tokens, " x ", p.k, " by ", p.k, " x ", p.n);
      if (built.ok())
        found = chosen.emplace(key, best.algorithm).first;
    }
    if (built.ok()) {
      const float one = 1, beta = p.residual ? 1 : 0;
      // NOLINTNEXTLINE(performance-no-int-to-ptr): the driver's are numbers.
      const auto at = [](Pointer p) { return reinterpret_cast<void *>(p); };
      built = check(
          f.multiply(handle, plan.desc, &one, at(p.weight), plan.a, at(p.x),
                     plan.b, &beta, at(p.residual ? p.residual : p.y), plan.c,
                     at(p.y), plan.d, &found->second, at(workspace.data()),
                     static_cast<size_t>(kWorkspaceBytes), stream),
          "multiply");
    }
  }
  release(plan);
  return built;
}

} // namespace

Result<std::unique_ptr<CublasLt>> CublasLt::open(const Driver &driver) {
  auto library = std::make_unique<Library>();
  FORESIGHT_CHECK(library->load(driver));
  return std::unique_ptr<CublasLt>(std::move(library));
}

} // namespace foresight::cuda
