//===- TokenSources.h - Who picks the tokens of a session -------*- C++ -*-===//
#ifndef FORESIGHT_TOOLS_TOKENSOURCES_H
#define FORESIGHT_TOOLS_TOKENSOURCES_H

#include "Generate.h"

#include "foresight/runtime/Session.h"

#include <memory>

namespace foresight::tools {

/// The device where it can, the host otherwise; tokens are the same. While the
/// session measures or shows its stages, the host does: steps that the device
/// runs by itself show nothing. `session` must outlive it.
std::unique_ptr<TokenSource>
createTokenSource(Session &session, const sampling::SamplerOptions &options);

} // namespace foresight::tools
#endif
