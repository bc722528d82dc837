"""check_examples.py SOURCE: every example that is shown exists where a test or
the build sees it.

An `mlir` block in a .td description must be part of a file in test/Dialect. A
block of a page after a line `<!-- FILE -->` must be part of FILE. White space
does not count.
"""

import pathlib
import re
import sys


def squeeze(text):
    return " ".join(text.split())


def main():
    root = pathlib.Path(sys.argv[1])
    tests = [squeeze(p.read_text()) for p in root.glob("test/Dialect/*.mlir")]
    found, missing = 0, []
    for path in sorted(root.glob("dialect/include/foresight/Dialect/*.td")):
        for block in re.findall(r"```mlir\n(.*?)```", path.read_text(), re.S):
            found += 1
            if not any(squeeze(block) in test for test in tests):
                missing.append(f"{path.name}: not in test/Dialect:\n{block}")
    for path in sorted(root.glob("docs/**/*.md")):
        for name, block in re.findall(
            r"<!-- (\S+) -->\n+```\w*\n(.*?)```", path.read_text(), re.S
        ):
            found += 1
            source = root / name
            if not source.is_file():
                missing.append(f"{path.name}: there is no {name}")
            elif squeeze(block) not in squeeze(source.read_text()):
                missing.append(f"{path.name}: not in {name}:\n{block}")
    print("\n".join(missing) or f"{found} examples are where they should be")
    return 1 if missing or not found else 0


if __name__ == "__main__":
    sys.exit(main())
