#!/usr/bin/env python3
"""Makes small seeds of the fuzz targets from the fixtures.

usage: make-seeds.py SOURCE_DIR OUT_DIR

A fuzzer changes a few bytes of a seed at a time: in a seed that is mostly
weights hardly any change matters. So weights are cut away here.
"""
import json
import pathlib
import struct
import sys

source = pathlib.Path(sys.argv[1])
out = pathlib.Path(sys.argv[2])
fixtures = source / "test/fixtures"


def write(target, name, data):
    folder = out / target
    folder.mkdir(parents=True, exist_ok=True)
    data = data if isinstance(data, bytes) else data.encode()
    (folder / name).write_bytes(data)


# safetensors: the first tensors of a file, with the start of their data.


def small_safetensors(path, count=5, largest=64):
    data = path.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    header, body = {}, b""
    for name, entry in list(json.loads(data[8 : 8 + length]).items())[: count + 1]:
        if name == "__metadata__":
            header[name] = entry
            continue
        begin, end = entry["data_offsets"]
        elements = 1
        for size in entry["shape"]:
            elements *= size
        width = (end - begin) // elements
        rows = max(1, min(elements, largest // width))
        header[name] = {
            "dtype": entry["dtype"],
            "shape": [rows] if len(entry["shape"]) == 1 else [1, rows],
            "data_offsets": [len(body), len(body) + rows * width],
        }
        body += data[8 + length + begin :][: rows * width]
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + body


for path in sorted(fixtures.glob("*/*/*.safetensors")):
    if "exports" in path.parts and path.name == "expected.safetensors":
        continue
    write("safetensors", f"{path.parent.name}-{path.stem}", small_safetensors(path))
shard = "model-0000{}-of-00002.safetensors"
write(
    "safetensors",
    "index",
    json.dumps(
        {
            "metadata": {"total_size": 40},
            "weight_map": {
                "a.weight": shard.format(1),
                "a.bias": shard.format(1),
                "b.weight": shard.format(2),
            },
        }
    ),
)

# config.json, generation_config.json

for path in sorted(fixtures.glob("*/*/config.json")) + [
    source / "examples/opt-mini/config.json",
    source / "examples/opt-mini/generation_config.json",
]:
    if path.exists():
        write("config", f"{path.parent.name}-{path.stem}", path.read_bytes())
write(
    "config",
    "fits-the-checkpoint",
    json.dumps(
        {
            "model_type": "opt",
            "vocab_size": 3,
            "hidden_size": 2,
            "num_hidden_layers": 1,
            "num_attention_heads": 1,
            "max_position_embeddings": 4,
            "ffn_dim": 4,
            "eos_token_id": [2],
        }
    ),
)

# profiles: every rule and lookahead

write("profile", "two-layers", (fixtures / "profile-two-layers.json").read_bytes())
write(
    "profile",
    "all-rules",
    json.dumps(
        {
            "format": 1,
            "model": {"hidden_size": 16, "ffn_dim": [64, 64, 32, 64], "layers": 4},
            "layers": [
                {"layer": 0, "rule": "proof", "bits": 6, "lookahead": "here"},
                {"layer": 1, "rule": "margin", "bits": 3, "margin": 1.5,
                 "lookahead": "half_block"},
                {"layer": 2, "rule": "skip", "lookahead": "block"},
                {"layer": 3, "rule": "dense", "lookahead": "two_blocks"},
            ],
            "calibration": {"text": "t.txt", "tokens": 9, "budget": 0.003,
                            "dense_perplexity": 48.2, "perplexity": 48.3},
        }
    ),
)

# tokenizers: the letters and the first merges, in each form there is


def small_tokenizer(merges=24):
    data = json.loads((source / "examples/opt-mini/tokenizer.json").read_text())
    model = data["model"]
    kept = [m for m in model["merges"] if all(len(half) == 1 for half in m)][:merges]
    tokens = {"<s>", "<pad>", "</s>", "<unk>"} | {"".join(m) for m in kept}
    # Of the 256 letters those of ASCII and some that stand for other bytes.
    vocab = [
        t
        for t in model["vocab"]
        if t in tokens or (len(t) == 1 and (t < "~" or t in "\u0120\u010a\u00e9\u00c3\u00a9"))
    ]
    ids = {token: i for i, token in enumerate(vocab)}
    for token in data["added_tokens"]:
        token["id"] = ids[token["content"]]
    model["vocab"], model["merges"] = ids, kept
    return data


tokenizer = small_tokenizer()
text = "\0\0The sea wasn't 12 </s>"
write("tokenizer", "template", json.dumps(tokenizer, ensure_ascii=False) + text)
model = tokenizer["model"]
write(
    "tokenizer",
    "vocab-and-merges",
    json.dumps(model["vocab"], ensure_ascii=False)
    + "\0#version: 0.2\n"
    + "\n".join(" ".join(merge) for merge in model["merges"])
    + "\0The sea wasn't 12 </s>",
)
model["merges"] = [" ".join(merge) for merge in model["merges"]]
model["vocab"] = {t: i for t, i in model["vocab"].items() if i < 60 or len(t) > 1}
letters = set(model["vocab"])
model["merges"] = [m for m in model["merges"] if set(m.split(" ")) <= letters]
model["unk_token"] = "<unk>"
tokenizer["pre_tokenizer"]["add_prefix_space"] = True
for token in tokenizer["added_tokens"]:
    token["lstrip"] = token["rstrip"] = True
tokenizer["post_processor"] = {
    "type": "RobertaProcessing",
    "cls": ["</s>", model["vocab"]["</s>"]],
    "sep": ["</s>", model["vocab"]["</s>"]],
}
write("tokenizer", "roberta", json.dumps(tokenizer, ensure_ascii=False) + text)

# external data: a line a tensor

write(
    "external-data",
    "plain",
    "w.bin\t0\t16\t16\nw.bin\t16\t-1\t84\nsub/v.bin\t8\t8\t8\nw.bin\t0\t16\t16\n",
)
write(
    "external-data",
    "hostile",
    "../outside/secret\t0\t-1\t8\nleak\t0\t-1\t8\nleaks/secret\t0\t-1\t8\n"
    "same\t0\t-1\t8\n./w.bin\t4\t-1\t8\nsub/../w.bin\t0\t-1\t8\n/dev/zero\t0\t-1\t8\n"
    "dangling\t0\t-1\t8\nloop\t0\t-1\t8\nsub\t0\t-1\t8\n"
    "w.bin\t9223372036854775807\t-1\t9223372036854775807\nw.bin\t90\t-1\t20\n",
)

# ONNX: tensors of more than a few bytes become zeros of `data.bin`. Field
# numbers are those of onnx.proto.


def varint(value):
    encoded = b""
    while value > 127:
        encoded += bytes([value & 127 | 128])
        value >>= 7
    return encoded + bytes([value])


def fields(data):
    """(number, wire type, value) of each field; value is an int or bytes."""
    at = 0

    def number():
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    while at < len(data):
        key = number()
        kind = key & 7
        if kind == 0:
            yield key >> 3, kind, number()
            continue
        size = number() if kind == 2 else 8 if kind == 1 else 4
        yield key >> 3, kind, data[at : at + size]
        at += size


def field(key, kind, value):
    head = varint(key << 3 | kind)
    if kind == 0:
        return head + varint(value)
    return head + (varint(len(value)) if kind == 2 else b"") + value


WIDTHS = {1: 4, 2: 1, 3: 1, 6: 4, 7: 8, 9: 1, 10: 2, 11: 8, 16: 2}


class SmallModel:
    def __init__(self):
        self.used = 0
        self.places = {}

    def tensor(self, data):
        parts = list(fields(data))
        dims = [v for n, k, v in parts if n == 1 and k == 0]
        for packed in (v for n, k, v in parts if n == 1 and k == 2):
            at = b"" + packed
            dims += [v for _, _, v in fields(b"".join(b"\x08" + d for d in split(at)))]
        kind = next((v for n, _, v in parts if n == 2), 0)
        size = WIDTHS.get(kind, 0)
        for dim in dims:
            size *= dim
        name = next((v for n, _, v in parts if n == 8), b"")
        if size <= 64:
            return data
        offset = self.places.setdefault(name or self.used, self.used)
        self.used = max(self.used, offset + (size + 63) // 64 * 64)
        kept = b"".join(field(*p) for p in parts if p[0] in (1, 2, 8))
        for key, value in (("location", "data.bin"), ("offset", str(offset)),
                           ("length", str(size))):
            pair = field(1, 2, key.encode()) + field(2, 2, value.encode())
            kept += field(13, 2, pair)
        return kept + field(14, 0, 1)

    def attribute(self, data):
        change = {5: self.tensor, 6: self.graph}
        return self.rewrite(data, change)

    def node(self, data):
        return self.rewrite(data, {5: self.attribute}, drop={6, 9})

    def graph(self, data):
        # Value infos of values inside the graph say nothing that is needed.
        return self.rewrite(data, {1: self.node, 5: self.tensor}, drop={10, 13, 14, 16})

    def model(self, data):
        return self.rewrite(data, {7: self.graph}, drop={6, 14})

    @staticmethod
    def rewrite(data, change, drop=()):
        return b"".join(
            field(n, k, change[n](v) if n in change and k == 2 else v)
            for n, k, v in fields(data)
            if n not in drop
        )


def split(packed):
    """The varints of a packed field."""
    one = b""
    for byte in packed:
        one += bytes([byte])
        if byte < 128:
            yield one
            one = b""


for path in sorted((fixtures / "exports").glob("*/*.onnx")):
    small = SmallModel().model(path.read_bytes())
    write("onnx", f"{path.parent.name}-{path.stem}", small)
