"""lit configuration: tests live beside each other by the source they test."""

import os
import sys

import lit.formats

config.name = "Foresight"
config.test_format = lit.formats.ShTest(execute_external=False)
config.suffixes = [".mlir", ".test"]
config.excludes = ["fixtures", "unit", "Inputs"]
config.test_source_root = os.path.dirname(__file__)
config.test_exec_root = os.path.join(config.foresight_binary_dir, "test")

# Tools of the build come first, so that a test never finds an installed one.
config.environment["PATH"] = os.path.pathsep.join(
    [config.foresight_tools_dir, config.llvm_tools_dir, os.environ["PATH"]]
)
for name in ("ASAN_OPTIONS", "UBSAN_OPTIONS", "LSAN_OPTIONS", "HOME"):
    if name in os.environ:
        config.environment[name] = os.environ[name]

config.substitutions.append(("%python", sys.executable))
config.substitutions.append(("%fixtures", os.path.join(config.test_source_root, "fixtures")))
config.substitutions.append(("%examples", os.path.join(config.foresight_source_dir, "examples")))

# What a test may name in REQUIRES. A feature is there when its tool was built.
for tool in (
    "foresight",
    "foresight-compile",
    "foresight-interpret",
):
    if os.access(os.path.join(config.foresight_tools_dir, tool), os.X_OK):
        config.available_features.add(tool)
if config.foresight_sanitize:
    config.available_features.add("sanitizer")
