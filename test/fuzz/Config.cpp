//===- Config.cpp - Fuzzes config.json ------------------------------------===//
//
// The input is the config of a shape (`--shape=config.json`) and that of a
// Hugging Face folder with a small checkpoint.
//
//===----------------------------------------------------------------------===//

#include "Fuzz.h"
#include "SafetensorsWriter.h"
#include "TempFolder.h"

#include "foresight/Import/HuggingFace/ImportHuggingFace.h"
#include "foresight/Import/Shape/ImportShape.h"

#include "mlir/IR/MLIRContext.h"
#include "mlir/IR/Verifier.h"

using namespace foresight;
using namespace foresight::fuzz;

static void check(const Result<mlir::OwningOpRef<mlir::ModuleOp>> &module,
                  const std::string &folder) {
  if (!module.ok())
    expectError(module.error(), folder,
                {ErrorCode::BadInput, ErrorCode::Unsupported});
  else
    expect(mlir::succeeded(mlir::verify(**module)), "the step verifies");
}

/// A folder whose checkpoint has a one-layer model of hidden size 2.
static const test::TempFolder &modelFolder() {
  static const test::TempFolder folder;
  [[maybe_unused]] static const bool made = [] {
    test::SafetensorsWriter weights;
    const auto add = [&](const std::string &name, std::vector<int64_t> shape) {
      int64_t count = 1;
      for (const int64_t size : shape)
        count *= size;
      weights.add("model.decoder." + name, shape,
                  std::vector<float>(static_cast<size_t>(count), 0.5f));
    };
    add("embed_tokens.weight", {3, 2});
    add("embed_positions.weight", {6, 2});
    const std::string layer = "layers.0.";
    for (const char *name : {"q_proj", "k_proj", "v_proj", "out_proj"}) {
      add(layer + "self_attn." + name + ".weight", {2, 2});
      add(layer + "self_attn." + name + ".bias", {2});
    }
    for (const std::string &name :
         {layer + "self_attn_layer_norm", layer + "final_layer_norm",
          std::string("final_layer_norm")}) {
      add(name + ".weight", {2});
      add(name + ".bias", {2});
    }
    add(layer + "fc1.weight", {4, 2});
    add(layer + "fc1.bias", {4});
    add(layer + "fc2.weight", {2, 4});
    add(layer + "fc2.bias", {2});
    folder.write("model.safetensors", weights.bytes());
    return true;
  }();
  return folder;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  mlir::MLIRContext context(mlir::MLIRContext::Threading::DISABLED);
  context.getDiagEngine().registerHandler([](mlir::Diagnostic &) {});
  const test::TempFolder &folder = modelFolder();
  folder.write("config.json", std::string(textOf(data, size)));
  check(importHuggingFace(context, folder.str()), folder.str());
  ShapeOptions shape;
  shape.shape = folder.str();
  check(importShape(context, shape), folder.str());
  return 0;
}
