"""Compares docs/errors.md with the code.

Every code of `ErrorCode` has its row in the table of exit codes and, but for Internal, its section in the index;
what the index quotes is what the code says, and every message that users can meet is in the index.

    check_errors.py SOURCE_DIR
"""

import pathlib
import re
import subprocess
import sys

STRIPPED = " '\".,;:(["


def squeeze(message):
    return re.sub(r"\s+", " ", message)


root = pathlib.Path(sys.argv[1]).resolve()
text = (root / "docs/errors.md").read_text()
wrong = []

# The codes.
header = (root / "runtime/support/include/foresight/support/Result.h").read_text()
codes = dict(re.findall(r"^  (\w+) = (\d+),", header.split("enum class ErrorCode")[1].split("};")[0], re.M))
assert len(codes) > 5, codes
table = dict((name, number) for number, name in re.findall(r"^\| (\d+) \| `(\w+)` \|", text, re.M))
if codes != table:
    wrong.append(f"Result.h has {codes}, the table of docs/errors.md {table}")
sections = re.findall(r"^### (\d+), ", text, re.M)
for name, number in codes.items():
    if name != "Internal" and number not in sections:
        wrong.append(f"code {number} ({name}) has no section in the index")
for tool in ("foresight-compile", "foresight"):
    page = (root / f"docs/tools/{tool}.md").read_text()
    for number in codes.values():
        if (tool, number) != ("foresight-compile", "5"):  # it reads no bundles
            if not re.search(rf"\b{number}\b", page):
                wrong.append(f"docs/tools/{tool}.md does not tell exit code {number}")

# The messages. Literals side by side are one; what stands between the parts of a message is a gap.
literal = r'"(?:[^"\\\n]|\\.)*"'
starts = re.compile(r"makeError\((?:\s*ErrorCode::(\w+))?|\busage\(|\bfail\(\w*\) <<|emitError\([^;{}]*?\)\s*<<|\berror\(")
sources, documented, checked = "", squeeze(text), 0
for path in subprocess.check_output(["find", *(str(root / d) for d in ("compiler", "dialect", "runtime", "kernels")),
                                     "-name", "*.cpp", "-not", "-path", "*/test/*"], text=True).split():
    code = pathlib.Path(path).read_text()
    code = re.sub(rf'({literal})(?:\s*{literal})+', lambda m: '"' + re.sub(r'"\s*"', "", m[0])[1:-1] + '"', code)
    about_graphs = "/compiler/Raise/" in path or "/compiler/Import/" in path
    for start in starts.finditer(code):
        if start[1] == "Internal" or not (about_graphs or start[0].startswith(("makeError", "usage("))):
            continue
        parts = [squeeze(part[1:-1].replace('\\"', '"').replace("\\n", "\n")).strip(STRIPPED)
                 for part in re.findall(literal, code[start.end():code.find(";", start.end())])]
        parts = [part for part in parts if len(part) > 9]
        checked += bool(parts)
        if parts and not any(part[:25].strip(STRIPPED) in documented for part in parts):
            wrong.append(f"docs/errors.md lacks the message of {path}: {max(parts, key=len)}")
    sources += code.replace('\\"', '"').replace("\\n", "\n") + "\n"
sources = re.sub(r"\s+", " ", sources)

quotes = 0
for line in text.split("## Index")[1].splitlines():
    if not line.startswith("| ") or line.startswith("| message"):
        continue
    message = re.split(r" (?<!\\)\| ", line[2:])[0].replace("\\|", "|")
    for quote in re.findall(r"``([^\n]*?)``|`([^`]*)`", message):
        quote = (quote[0] or quote[1]).strip()
        quotes += 1
        # Words in capitals stand for names.
        for part in re.split(r"\.\.\.|\bFILE:LINE:COLUMN\b", quote):
            part = part.strip(" ,:;'")
            if len(part) > 3 and part not in sources:
                wrong.append(f"no message has '{part}' of `{quote}`")
if quotes < 100 or checked < 200:
    wrong.append(f"only {quotes} messages found in the index, {checked} in the code")

for complaint in wrong:
    print(complaint)
if not wrong:
    print(f"{checked} messages of the code, {quotes} of the index")
sys.exit(bool(wrong))
