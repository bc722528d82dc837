"""Compares docs/how-to/export-onnx.md with test/fixtures and with the tests that read them."""

import pathlib
import re
import sys

root = pathlib.Path(sys.argv[1])


def read(folder):
    return "".join(path.read_text() for path in (root / folder).iterdir() if path.suffix in (".cpp", ".test"))


numbers = read("test/unit/onnx")
tests = numbers + read("test/Raise")
rows = 0
named = set()
for line in (root / "docs/how-to/export-onnx.md").read_text().splitlines():
    cells = [cell.strip() for cell in line.strip("|").split("|")]
    if not line.startswith("|") or len(cells) != 6 or cells[4] in ("file", "---"):
        continue
    rows += 1
    file = cells[4].strip("`")
    named.add(file)
    path = root / "test/fixtures" / file
    if not path.exists():
        sys.exit(f"{file} is not there")
    # ExportsTest and KindsTest name a folder or a file without its ending.
    if f'{{"{path.stem}"' not in tests and f"%fixtures/{file}" not in tests:
        sys.exit(f"no test reads {file}")
    if cells[5].startswith("logits") and f'{{"{path.stem}"' not in numbers:
        sys.exit(f"no test compares the logits of {file}")
for path in (root / "test/fixtures/kinds").glob("*.onnx"):
    if f"kinds/{path.name}" not in named:
        sys.exit(f"{path.name} has no row")
print(rows, "rows, each with a file and a test")
