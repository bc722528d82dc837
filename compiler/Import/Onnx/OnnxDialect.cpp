//===- OnnxDialect.cpp - The onnx-level IR --------------------------------===//

#include "foresight/Import/Onnx/Onnx.h"

#include "foresight/Dialect/Foresight.h"

#include "mlir/IR/DialectImplementation.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace foresight::onnx;

#include "foresight/Import/Onnx/OnnxDialect.cpp.inc"

#define GET_TYPEDEF_CLASSES
#include "foresight/Import/Onnx/OnnxTypes.cpp.inc"

#define GET_OP_CLASSES
#include "foresight/Import/Onnx/OnnxOps.cpp.inc"

void OnnxDialect::initialize() {
  addTypes<
#define GET_TYPEDEF_LIST
#include "foresight/Import/Onnx/OnnxTypes.cpp.inc"
      >();
  addOperations<
#define GET_OP_LIST
#include "foresight/Import/Onnx/OnnxOps.cpp.inc"
      >();
}

StringRef foresight::onnx::nameOf(Location loc) {
  if (auto name = dyn_cast<NameLoc>(loc))
    return name.getName().getValue();
  return {};
}

int64_t foresight::onnx::bytesOf(Type element, int64_t count) {
  unsigned bits = element.isInteger(1) ? 8 : element.getIntOrFloatBitWidth();
  return bits < 8 ? (count * bits + 7) / 8 : count * (bits / 8);
}

std::string foresight::onnx::describe(NodeOp node) {
  std::string domain =
      node.getDomain() ? node.getDomain()->str() + "." : std::string();
  StringRef name = nameOf(node.getLoc());
  return "node '" + (name.empty() ? "without a name" : name.str()) + "' (" +
         domain + node.getOpType().str() + ")";
}

//===----------------------------------------------------------------------===//
// Ops
//===----------------------------------------------------------------------===//

void GraphOp::getAsmBlockArgumentNames(Region &region,
                                       OpAsmSetValueNameFn setName) {
  for (auto [arg, name] : llvm::zip(region.getArguments(), getInputs()))
    if (auto text = dyn_cast<StringAttr>(name))
      setName(arg, text.getValue());
}

/// A name of a file as a name of a value: paths become dotted.
static std::string valueName(StringRef name) {
  std::string text;
  for (char c : name.ltrim('/'))
    text += llvm::isAlnum(c) || c == '_' || c == '.' ? c : c == '/' ? '.' : '_';
  return text;
}

void ConstantOp::getAsmResultNames(OpAsmSetValueNameFn setName) {
  setName(getResult(), valueName(getName()));
}

void NodeOp::getAsmResultNames(OpAsmSetValueNameFn setName) {
  std::string name = valueName(nameOf(getLoc()));
  if (!name.empty() && !getOutputs().empty())
    setName(getOutputs().front(), name);
}

static LogicalResult verifyNames(Operation *op, ArrayAttr names, size_t count,
                                 StringRef what) {
  for (Attribute name : names)
    if (!isa<StringAttr>(name))
      return op->emitOpError() << "names must be strings, found " << name;
  if (names.size() != count)
    return op->emitOpError() << "has " << count << " " << what << " but "
                             << names.size() << " names";
  return success();
}

LogicalResult GraphOp::verify() {
  if (getOpset() <= 0)
    return emitOpError() << "opset must be positive, found " << getOpset();
  Block &block = getBody().front();
  if (block.empty() || !isa<OutputOp>(block.back()))
    return emitOpError() << "must end with onnx.output";
  return verifyNames(*this, getInputs(), block.getNumArguments(), "inputs");
}

LogicalResult ConstantOp::verify() {
  auto type = cast<RankedTensorType>(getType());
  if (!type.hasStaticShape())
    return emitOpError() << "'" << getName() << "' must have a static shape";
  if (auto dense = dyn_cast<ElementsAttr>(getSource())) {
    if (dense.getType() != type)
      return emitOpError() << "'" << getName() << "' has type " << type
                           << " but its elements have " << dense.getType();
    return success();
  }
  auto external = dyn_cast<foresight::ExternalAttr>(getSource());
  if (!external)
    return emitOpError() << "'" << getName()
                         << "' must be dense or #foresight.external, found "
                         << getSource();
  int64_t bytes = bytesOf(external.getElement(), type.getNumElements());
  if (external.getElement() != type.getElementType() ||
      external.getTransposed())
    return emitOpError() << "'" << getName() << "' of type " << type
                         << " cannot be " << external;
  if (external.getBytes() != bytes)
    return emitOpError() << "'" << getName() << "' has " << bytes
                         << " bytes but " << external.getBytes()
                         << " are in the file";
  return success();
}

LogicalResult NodeOp::verify() {
  size_t regions = getBodies().size();
  ArrayAttr branches = getBranchesAttr();
  if (!branches)
    return regions == 0
               ? success()
               : LogicalResult(emitOpError() << "has subgraphs without names");
  for (Region &body : getBodies()) {
    if (body.front().getNumArguments() != 0)
      return emitOpError() << "a subgraph takes no arguments";
    if (body.front().empty() || !isa<OutputOp>(body.front().back()))
      return emitOpError() << "a subgraph must end with onnx.output";
  }
  return verifyNames(*this, branches, regions, "subgraphs");
}

LogicalResult OutputOp::verify() {
  return verifyNames(*this, getNames(), getValues().size(), "values");
}
