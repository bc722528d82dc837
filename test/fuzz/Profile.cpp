//===- Profile.cpp - Fuzzes profiles --------------------------------------===//

#include "Fuzz.h"

#include "foresight/support/Profile.h"

using namespace foresight;
using namespace foresight::fuzz;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  auto profile = Profile::parse(textOf(data, size), "profile.json");
  if (!profile.ok()) {
    expectError(profile.error(), "profile.json", {ErrorCode::BadInput});
    return 0;
  }
  (void)profile->checkModel("profile.json", 16, {64, 64});
  const std::string written = profile->toJson();
  auto again = Profile::parse(written, "again");
  expect(again.ok(), "a profile that was written can be read", written);
  expect(again->layers == profile->layers && again->ffnDim == profile->ffnDim &&
             again->hiddenSize == profile->hiddenSize &&
             again->toJson() == written,
         "a profile stays the same when written and read", written);
  return 0;
}
