//===- BundleFrame.h - Checksums and manifests of fuzzed bundles *- C++ -*-===//
//
// Checksums keep random changes out of a bundle. A fuzzer that is to reach what
// lies behind them makes them right again.
//
//===----------------------------------------------------------------------===//
#ifndef FORESIGHT_TEST_FUZZ_BUNDLEFRAME_H
#define FORESIGHT_TEST_FUZZ_BUNDLEFRAME_H

#include "Fuzz.h"

#include <string>

namespace foresight::fuzz {

/// Makes every checksum right that lies in the file.
void repairChecksums(std::string &bundle);

/// The test bundle with another manifest.
std::string withManifest(std::string_view manifest);

/// Opens the bundle and makes it ready to run, as `foresight run` does. Its
/// code must be that of the test bundle: the code of a bundle is a program, and
/// a program may do anything.
void makeReady(const std::string &bundle);

} // namespace foresight::fuzz
#endif
