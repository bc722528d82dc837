#!/usr/bin/env python3
"""Writes test/fixtures: small tokenizers and the ids that the Hugging Face
`tokenizers` package gives for texts with them.
    python3 make_fixtures.py path/to/opt-mini/tokenizer.json
"""
import copy
import json
import pathlib
import random
import sys

import tokenizers
from tokenizers import Tokenizer

folder = pathlib.Path(__file__).parent.parent / "test" / "fixtures"
opt = json.loads(pathlib.Path(sys.argv[1]).read_text())

TEXTS = [
    "", " ", "  ", "\n", " \n", "\n\n \t x", "a", "Hello world", " Hello  world ",
    "It's I'll we've they're he'd I'm can't 's 'S 'T 'LL don''t",
    "The sea, the sea!  \n\n  New\tline\r\nend   ", "1234567 12,5 3.14e-10 \u00b2\u00bd\u2167 \u0665\u0666",
    "na\u00efve caf\u00e9 \u00dcberma\u00df \u0391\u03b8\u03ae\u03bd\u03b1 \u041c\u043e\u0441\u043a\u0432\u0430 \u05e9\u05dc\u05d5\u05dd",
    "\u65e5\u672c\u8a9e\u306e\u30c6\u30ad\u30b9\u30c8 \ud55c\uad6d\uc5b4 \u0e44\u0e17\u0e22",
    "e\u0301 \u0928\u092e\u0938\u094d\u0924\u0947 \u200d\u200b\ufeff x\u00a0y\u2003z\u3000\u3000w\u0085v\u2028u",
    "\U0001F600\U0001F468\u200d\U0001F469\u200d\U0001F467 \U0001F1E9\U0001F1EA!\u2026\u2014\u201cq\u201d",
    "</s>", "a</s>b", "<s></s><pad><unk> </s> </s", "x </s>  y", "<<s>>", "</s></s>",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    "abcabcabc the the the thethethe     the", "\x00\x01\x7f\u0080 \uffff\U0010ffff\U00010000",
    "\ufffd\u0378\U000323af \U00010d40", "<mask> x<mask>y  <mask>  z", "[A] [AB][ABC]", "hello", " hello",
]
rng = random.Random(7)
ALPHABET = "ab the'slt 12.\n\t\u00e9\u4e2d\U0001F600<>/[AB]"
TEXTS += ["".join(rng.choice(ALPHABET) for _ in range(rng.randrange(1, 60))) for _ in range(60)]


def small():
    """The first merges of opt-mini's tokenizer."""
    model = opt["model"]
    merges = model["merges"][:400]
    symbols = [t for t, i in sorted(model["vocab"].items(), key=lambda x: x[1]) if i < 260]
    vocab = symbols + ["".join(m) for m in merges]
    vocab = {t: i for i, t in enumerate(dict.fromkeys(vocab))}
    out = copy.deepcopy(opt)
    out["model"] = dict(model, vocab=vocab, merges=merges)
    return out


def added(id, content, **kind):
    return dict(id=id, content=content, single_word=False, lstrip=False, rstrip=False,
                normalized=False, special=False) | kind


def variants():
    yield "pairs", small()
    t = small()
    t["model"]["merges"] = [" ".join(m) for m in t["model"]["merges"]]
    t["pre_tokenizer"]["add_prefix_space"] = True
    n = len(t["model"]["vocab"])
    t["added_tokens"] += [added(n, "<mask>", lstrip=True, special=True), added(n + 1, "[A]", rstrip=True),
                          added(n + 2, "[AB]", normalized=True), added(n + 3, "[AB][A")]
    t["post_processor"] = {"type": "RobertaProcessing", "sep": ["</s>", 2], "cls": ["<s>", 0],
                           "trim_offsets": True, "add_prefix_space": True}
    yield "strings_prefix_added", t
    t = small()
    n = len(t["model"]["vocab"])
    t["model"]["vocab"]["hello"] = n  # no merge makes it
    t["model"]["vocab"]["\u0120hello"] = n + 1
    t["model"]["ignore_merges"] = True
    t["model"]["merges"].reverse()
    t["post_processor"] = {"type": "ByteLevel", "trim_offsets": True, "add_prefix_space": False}
    yield "ignore_merges", t
    t = small()
    t["pre_tokenizer"]["use_regex"] = False
    t["model"]["unk_token"] = "<unk>"
    del t["model"]["vocab"]["\u00a9"]  # second byte of e with acute
    t["model"]["fuse_unk"] = True
    t["model"]["merges"] = [m for m in t["model"]["merges"] if "\u00a9" not in "".join(m)]
    used = set(t["model"]["vocab"])
    t["model"]["merges"] = [m for m in t["model"]["merges"] if {m[0], m[1], m[0] + m[1]} <= used]
    yield "whole_text_unknown", t


def cases(tokenizer):
    out = []
    for text in TEXTS:
        ids = tokenizer.encode(text).ids
        out.append({"text": text, "ids": ids, "decoded": tokenizer.decode(ids, skip_special_tokens=False),
                    "skipped": tokenizer.decode(ids, skip_special_tokens=True)})
    size = tokenizer.get_vocab_size()
    for _ in range(40):  # ids that need not spell UTF-8
        ids = [rng.randrange(size) for _ in range(rng.randrange(1, 20))]
        out.append({"ids": ids, "decoded": tokenizer.decode(ids, skip_special_tokens=False),
                    "skipped": tokenizer.decode(ids, skip_special_tokens=True)})
    return out


def write(name, value):
    (folder / name).write_text(json.dumps(value, ensure_ascii=True, separators=(",", ":")) + "\n")


write("opt_mini.cases.json", {"tokenizers": tokenizers.__version__,
                              "cases": cases(Tokenizer.from_str(json.dumps(opt)))})
for name, value in variants():
    write(f"{name}.tokenizer.json", value)
    write(f"{name}.cases.json", {"tokenizers": tokenizers.__version__,
                                 "cases": cases(Tokenizer.from_str(json.dumps(value)))})
