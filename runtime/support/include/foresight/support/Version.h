//===- Version.h - What this build is ---------------------------*- C++ -*-===//
#ifndef FORESIGHT_SUPPORT_VERSION_H
#define FORESIGHT_SUPPORT_VERSION_H

namespace foresight {

/// "0.1.0".
const char *versionText();
/// The commit it was built from, with "+" if files were changed; empty outside
/// of a checkout.
const char *commitText();

} // namespace foresight
#endif
