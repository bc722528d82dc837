//===- ScheduleOps.cpp - Stages, kernels, launches, buffers ---------------===//

#include "foresight/Dialect/Foresight.h"

using namespace mlir;
using namespace foresight;

namespace {

/// `name? after(%t0, %t1)`: the tokens an op waits for.
ParseResult parseAfter(OpAsmParser &parser, OperationState &state,
                       SmallVectorImpl<OpAsmParser::UnresolvedOperand> &after) {
  if (failed(parser.parseOptionalKeyword("after")))
    return success();
  if (parser.parseOperandList(after, OpAsmParser::Delimiter::Paren))
    return failure();
  return parser.resolveOperands(after, TokenType::get(parser.getContext()),
                                state.operands);
}

void printAfter(OpAsmPrinter &p, OperandRange after) {
  if (!after.empty())
    p << " after(" << after << ")";
}

/// Attributes that are printed elsewhere, and those that say nothing.
template <typename OpTy>
SmallVector<StringRef> elided(OpTy op, ArrayRef<StringRef> printed) {
  SmallVector<StringRef> names(printed);
  names.push_back(OpTy::getOperandSegmentSizeAttr());
  if (op.getRole() == "other")
    names.push_back("role");
  if (static_cast<int64_t>(op.getLayer()) == -1)
    names.push_back("layer");
  return names;
}

void setSegments(OpAsmParser &parser, OperationState &state, StringRef name,
                 size_t after, size_t inputs) {
  state.addAttribute(
      name, parser.getBuilder().getDenseI32ArrayAttr(
                {static_cast<int32_t>(after), static_cast<int32_t>(inputs)}));
}

} // namespace

//===----------------------------------------------------------------------===//
// stage
//   %r, %done = foresight.stage "name" after(%t) (%arg = %value : type, ...)
//       -> (type, ...) library "gemm" attributes {...} { ... }
//===----------------------------------------------------------------------===//

ParseResult StageOp::parse(OpAsmParser &parser, OperationState &state) {
  StringAttr name;
  SmallVector<OpAsmParser::UnresolvedOperand> after, inputs;
  SmallVector<OpAsmParser::Argument> args;
  SmallVector<Type> results;
  if (parser.parseAttribute(name, "name", state.attributes) ||
      parseAfter(parser, state, after))
    return failure();
  auto parseInput = [&]() -> ParseResult {
    OpAsmParser::UnresolvedOperand operand;
    OpAsmParser::Argument arg;
    if (parser.parseArgument(arg) || parser.parseEqual() ||
        parser.parseOperand(operand) || parser.parseColonType(arg.type))
      return failure();
    if (parser.resolveOperand(operand, arg.type, state.operands))
      return failure();
    args.push_back(arg);
    return success();
  };
  if (parser.parseCommaSeparatedList(OpAsmParser::Delimiter::Paren, parseInput))
    return failure();
  if (parser.parseOptionalArrowTypeList(results))
    return failure();
  if (succeeded(parser.parseOptionalKeyword("library"))) {
    StringAttr library;
    if (parser.parseAttribute(library, "library", state.attributes))
      return failure();
  }
  if (parser.parseOptionalAttrDictWithKeyword(state.attributes))
    return failure();
  Region *body = state.addRegion();
  if (parser.parseRegion(*body, args))
    return failure();
  StageOp::ensureTerminator(*body, parser.getBuilder(), state.location);
  setSegments(parser, state, StageOp::getOperandSegmentSizeAttr(), after.size(),
              args.size());
  state.addTypes(results);
  state.addTypes(TokenType::get(parser.getContext()));
  return success();
}

void StageOp::print(OpAsmPrinter &p) {
  p << " " << getNameAttr();
  printAfter(p, getAfter());
  p << " (";
  llvm::interleaveComma(
      llvm::zip(getBody().getArguments(), getInputs()), p, [&](auto pair) {
        auto [arg, operand] = pair;
        p << arg << " = " << operand << " : " << arg.getType();
      });
  p << ")";
  if (!getResults().empty())
    p << " -> (" << getResults().getTypes() << ")";
  if (getLibraryAttr())
    p << " library " << getLibraryAttr();
  p.printOptionalAttrDictWithKeyword((*this)->getAttrs(),
                                     elided(*this, {"name", "library"}));
  p << " ";
  p.printRegion(getBody(), /*printEntryBlockArgs=*/false);
}

LogicalResult StageOp::verify() {
  Block &block = getBody().front();
  if (block.getNumArguments() != getInputs().size())
    return emitOpError() << "has " << getInputs().size()
                         << " inputs but its region has "
                         << block.getNumArguments() << " arguments";
  for (auto [arg, input] : llvm::zip(block.getArguments(), getInputs()))
    if (arg.getType() != input.getType())
      return emitOpError() << "region argument " << arg.getArgNumber()
                           << " has type " << arg.getType()
                           << " but the input has type " << input.getType();
  if (getLibraryAttr() && getLibraryAttr().getValue() != "gemm")
    return emitOpError() << "is computed by library " << getLibraryAttr()
                         << ", but only \"gemm\" is known";
  Operation *yield = block.getTerminator();
  if (yield->getOperandTypes() != getResults().getTypes())
    return emitOpError() << "yields (" << yield->getOperandTypes()
                         << ") but its results have types ("
                         << getResults().getTypes() << ")";
  return success();
}

//===----------------------------------------------------------------------===//
// kernel
//===----------------------------------------------------------------------===//

ParseResult KernelOp::parse(OpAsmParser &parser, OperationState &state) {
  StringAttr name;
  if (parser.parseSymbolName(name, SymbolTable::getSymbolAttrName(),
                             state.attributes))
    return failure();
  SmallVector<OpAsmParser::Argument> args;
  if (parser.parseArgumentList(args, OpAsmParser::Delimiter::Paren,
                               /*allowType=*/true))
    return failure();
  if (succeeded(parser.parseOptionalKeyword("library"))) {
    StringAttr library;
    if (parser.parseAttribute(library, "library", state.attributes))
      return failure();
  }
  if (parser.parseOptionalAttrDictWithKeyword(state.attributes))
    return failure();
  Region *body = state.addRegion();
  if (parser.parseRegion(*body, args))
    return failure();
  KernelOp::ensureTerminator(*body, parser.getBuilder(), state.location);
  return success();
}

void KernelOp::print(OpAsmPrinter &p) {
  p << " ";
  p.printSymbolName(getSymName());
  p << "(";
  llvm::interleaveComma(getBody().getArguments(), p, [&](BlockArgument arg) {
    p << arg << ": " << arg.getType();
  });
  p << ")";
  if (getLibraryAttr())
    p << " library " << getLibraryAttr();
  p.printOptionalAttrDictWithKeyword(
      (*this)->getAttrs(), {SymbolTable::getSymbolAttrName(), "library"});
  p << " ";
  p.printRegion(getBody(), /*printEntryBlockArgs=*/false);
}

LogicalResult KernelOp::verify() {
  if (getLibraryAttr() && getLibraryAttr().getValue() != "gemm")
    return emitOpError() << "is computed by library " << getLibraryAttr()
                         << ", but only \"gemm\" is known";
  if (getBody().front().getTerminator()->getNumOperands() == 0)
    return emitOpError() << "yields nothing: a kernel must have a result";
  return success();
}

//===----------------------------------------------------------------------===//
// launch
//   %r, %done = foresight.launch "name" @kernel after(%t) (%x, %w : types) outs
//   [@b] -> (types)
//===----------------------------------------------------------------------===//

ParseResult LaunchOp::parse(OpAsmParser &parser, OperationState &state) {
  StringAttr name;
  FlatSymbolRefAttr kernel;
  ArrayAttr outs;
  SmallVector<OpAsmParser::UnresolvedOperand> after, inputs;
  SmallVector<Type> inputTypes, results;
  if (parser.parseAttribute(name, "name", state.attributes) ||
      parser.parseAttribute(kernel, "kernel", state.attributes) ||
      parseAfter(parser, state, after))
    return failure();
  llvm::SMLoc loc = parser.getCurrentLocation();
  if (parser.parseLParen())
    return failure();
  if (failed(parser.parseOptionalRParen())) {
    if (parser.parseOperandList(inputs) ||
        parser.parseColonTypeList(inputTypes) || parser.parseRParen())
      return failure();
  }
  if (parser.resolveOperands(inputs, inputTypes, loc, state.operands) ||
      parser.parseKeyword("outs") ||
      parser.parseAttribute(outs, "outs", state.attributes) ||
      parser.parseOptionalArrowTypeList(results) ||
      parser.parseOptionalAttrDict(state.attributes))
    return failure();
  setSegments(parser, state, LaunchOp::getOperandSegmentSizeAttr(),
              after.size(), inputs.size());
  state.addTypes(results);
  state.addTypes(TokenType::get(parser.getContext()));
  return success();
}

void LaunchOp::print(OpAsmPrinter &p) {
  p << " " << getNameAttr() << " " << getKernelAttr();
  printAfter(p, getAfter());
  p << " (";
  if (!getInputs().empty())
    p << getInputs() << " : " << getInputs().getTypes();
  p << ") outs " << getOutsAttr();
  if (!getResults().empty())
    p << " -> (" << getResults().getTypes() << ")";
  p.printOptionalAttrDict((*this)->getAttrs(),
                          elided(*this, {"name", "kernel", "outs"}));
}

LogicalResult LaunchOp::verify() {
  // Empty until foresight-plan-buffers has run.
  if (!getOuts().empty() && getOuts().size() != getResults().size())
    return emitOpError() << "has " << getResults().size()
                         << " results but names " << getOuts().size()
                         << " buffers";
  return success();
}

LogicalResult LaunchOp::verifySymbolUses(SymbolTableCollection &symbolTable) {
  auto kernel =
      symbolTable.lookupNearestSymbolFrom<KernelOp>(*this, getKernelAttr());
  if (!kernel)
    return emitOpError() << "names " << getKernelAttr()
                         << ", which is not a foresight.kernel of this module";
  if (kernel.getBody().getArgumentTypes() != getInputs().getTypes())
    return emitOpError() << "has inputs of types (" << getInputs().getTypes()
                         << ") but " << getKernelAttr() << " takes ("
                         << kernel.getBody().getArgumentTypes() << ")";
  TypeRange yielded =
      kernel.getBody().front().getTerminator()->getOperandTypes();
  if (yielded != getResults().getTypes())
    return emitOpError() << "has results of types (" << getResults().getTypes()
                         << ") but " << getKernelAttr() << " yields ("
                         << yielded << ")";
  for (Attribute out : getOuts())
    if (!symbolTable.lookupNearestSymbolFrom<BufferOp>(
            *this, cast<FlatSymbolRefAttr>(out)))
      return emitOpError()
             << "names " << out
             << ", which is not a foresight.buffer of this module";
  return success();
}

//===----------------------------------------------------------------------===//
// buffer
//===----------------------------------------------------------------------===//

LogicalResult BufferOp::verify() {
  StringRef kind = getKind();
  if (kind != "input" && kind != "output" && kind != "state" && kind != "work")
    return emitOpError() << "kind must be \"input\", \"output\", \"state\" or "
                            "\"work\", found "
                         << getKindAttr();
  if (static_cast<int64_t>(getRows()) <= 0 ||
      static_cast<int64_t>(getRowBytes()) <= 0)
    return emitOpError() << "must have rows and bytes, found " << getRows()
                         << " rows of " << getRowBytes() << " bytes";
  if (!getOffset())
    return success();
  if (kind != "work")
    return emitOpError() << "has an offset in the arena, where only work "
                            "buffers lie, but is of kind "
                         << getKindAttr();
  if (static_cast<int64_t>(*getOffset()) < 0 || *getOffset() % 64 != 0)
    return emitOpError() << "must lie at a multiple of 64 bytes, found "
                         << *getOffset();
  return success();
}
