//===- Register.h - Everything the MLIR tools know --------------*- C++ -*-===//
//
// The dialects and passes of foresight-opt and foresight-lsp-server. A library
// with passes exposes one register... function, called in Register.cpp.
//
//===----------------------------------------------------------------------===//
#ifndef FORESIGHT_TOOLS_COMMON_REGISTER_H
#define FORESIGHT_TOOLS_COMMON_REGISTER_H

namespace mlir {
class DialectRegistry;
} // namespace mlir

namespace foresight {

/// Adds the project's dialects and the upstream ones that it lowers to.
void registerForesightDialects(mlir::DialectRegistry &registry);

/// Makes every pass and pipeline known by its command line name. Call once.
void registerForesightPasses();

} // namespace foresight

#endif // FORESIGHT_TOOLS_COMMON_REGISTER_H
