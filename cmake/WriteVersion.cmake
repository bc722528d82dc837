# Writes Version.cpp with the commit of the checkout, at every build; the file
# is touched only when what it says changes.
#   cmake -DSOURCE=... -DOUT=... -DVERSION=... -P WriteVersion.cmake
execute_process(COMMAND git rev-parse --short=12 HEAD
  WORKING_DIRECTORY ${SOURCE} OUTPUT_VARIABLE commit
  OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE failed)
if(failed)
  set(commit "")
else()
  execute_process(COMMAND git diff --quiet HEAD -- WORKING_DIRECTORY ${SOURCE}
    RESULT_VARIABLE changed ERROR_QUIET)
  if(changed)
    string(APPEND commit "+")
  endif()
endif()
file(CONFIGURE OUTPUT ${OUT} CONTENT [[
#include "foresight/support/Version.h"
const char *foresight::versionText() { return "@VERSION@"; }
const char *foresight::commitText() { return "@commit@"; }
]] @ONLY)
