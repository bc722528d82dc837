"""Writes an OPT of any size as ONNX with external data, in the form of torch's dynamo exporter, f16, with synthetic
weights: for measuring how the compiler copes with size. Weights go straight to disk, so memory stays small.

    python make_onnx.py opt-6.7b FOLDER       needs numpy and onnx
"""

import argparse
import pathlib

import numpy as np
from onnx import TensorProto, helper

SIZES = {  # layers, hidden size, heads
    "opt-125m": (12, 768, 12),
    "opt-1.3b": (24, 2048, 32),
    "opt-6.7b": (32, 4096, 32),
}
VOCABULARY, POSITIONS = 50272, 2048


class Graph:
    def __init__(self, folder):
        self.nodes, self.initializers = [], []
        self.data = open(folder / "model.onnx.data", "wb")
        # Each tensor starts elsewhere in one block of random numbers: no two are equal.
        self.block = np.random.default_rng(1).standard_normal(1 << 26, dtype=np.float32)
        self.count = 0

    def node(self, kind, *inputs, **attributes):
        name = f"node_{kind}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, list(inputs), [name + "_out"], name=name, **attributes))
        return name + "_out"

    def constant(self, name, values, dtype):
        self.initializers.append(helper.make_tensor(name, dtype, np.shape(values), np.ravel(values)))
        return name

    def weight(self, name, *shape, scale=0.02, mean=0.0):
        tensor = TensorProto(name=name, data_type=TensorProto.FLOAT16, dims=shape)
        tensor.data_location = TensorProto.EXTERNAL
        size = int(np.prod(shape))
        start = -self.data.tell() % 4096
        self.data.write(bytes(start))
        where = {"location": "model.onnx.data", "offset": str(self.data.tell()), "length": str(2 * size)}
        for key, value in where.items():
            tensor.external_data.add(key=key, value=value)
        self.initializers.append(tensor)
        self.count += 1
        at, left = self.count * 7919 % len(self.block), size
        while left:
            piece = self.block[at : at + min(left, 1 << 22)]
            self.data.write((piece * scale + mean).astype(np.float16).tobytes())
            left -= len(piece)
            at = (at + len(piece)) % len(self.block)
        return name

    def linear(self, x, name, rows, columns):
        w = self.node("Transpose", self.weight(name + ".weight", rows, columns), perm=[1, 0])
        return self.node("Add", self.node("MatMul", x, w), self.weight(name + ".bias", rows))

    def gemm(self, x, name, rows, columns):
        return self.node("Gemm", x, self.weight(name + ".weight", rows, columns), self.weight(name + ".bias", rows), transB=1)

    def norm(self, x, name, size):
        gamma = self.weight(name + ".weight", size, scale=0.05, mean=1.0)
        return self.node("LayerNormalization", x, gamma, self.weight(name + ".bias", size), axis=-1, epsilon=1e-5)


def build(g, layers, size, heads):
    i64, f16 = TensorProto.INT64, TensorProto.FLOAT16
    one, two = g.constant("one", [1], i64), g.constant("two", 2, i64)
    zero, first = g.constant("zero", 0, i64), g.constant("first", [0], i64)
    unit, far = g.constant("unit", 1, i64), g.constant("far", np.float16(-65504), f16)
    none, scale = g.constant("none", np.float16(0), f16), g.constant("scale", np.float16((size // heads) ** -0.5), f16)
    split = g.constant("split", [0, 0, heads, size // heads], i64)
    join, flat = g.constant("join", [0, 0, size], i64), g.constant("flat", [-1, size], i64)

    table = g.weight("model.decoder.embed_tokens.weight", VOCABULARY, size)
    places = g.weight("model.decoder.embed_positions.weight", POSITIONS + 2, size)
    seen = g.node("Mul", g.node("CumSum", "attention_mask", unit), "attention_mask")
    rows = g.node("Add", g.node("Sub", seen, unit), two)
    h = g.node("Add", g.node("Gather", table, "input_ids"), g.node("Gather", places, rows))

    length = g.node("Gather", g.node("Shape", "input_ids"), unit)
    steps = g.node("Range", zero, length, unit)
    causal = g.node("LessOrEqual", g.node("Unsqueeze", steps, first), g.node("Unsqueeze", steps, one))
    axes = g.constant("axes", [1, 2], i64)
    kept = g.node("Unsqueeze", g.node("Cast", "attention_mask", to=TensorProto.BOOL), axes)
    mask = g.node("Where", g.node("And", causal, kept), none, far)

    for i in range(layers):
        name = f"model.decoder.layers.{i}"
        x = g.norm(h, name + ".self_attn_layer_norm", size)
        parts = []
        for part in ("q", "k", "v"):
            y = g.linear(x, f"{name}.self_attn.{part}_proj", size, size)
            if part == "q":
                y = g.node("Mul", y, scale)
            parts.append(g.node("Transpose", g.node("Reshape", y, split), perm=[0, 2, 3, 1] if part == "k" else [0, 2, 1, 3]))
        scores = g.node("Add", g.node("MatMul", parts[0], parts[1]), mask)
        mixed = g.node("MatMul", g.node("Softmax", scores, axis=-1), parts[2])
        mixed = g.node("Reshape", g.node("Transpose", mixed, perm=[0, 2, 1, 3]), join)
        h = g.node("Add", h, g.linear(mixed, name + ".self_attn.out_proj", size, size))
        x = g.node("Reshape", g.norm(h, name + ".final_layer_norm", size), flat)
        x = g.gemm(g.node("Relu", g.gemm(x, name + ".fc1", 4 * size, size)), name + ".fc2", size, 4 * size)
        h = g.node("Add", h, g.node("Reshape", x, g.node("Shape", h)))
    h = g.norm(h, "model.decoder.final_layer_norm", size)
    return g.node("MatMul", h, g.node("Transpose", table, perm=[1, 0]))


arguments = argparse.ArgumentParser()
arguments.add_argument("size", choices=SIZES)
arguments.add_argument("folder", type=pathlib.Path)
arguments = arguments.parse_args()
arguments.folder.mkdir(parents=True, exist_ok=True)
graph = Graph(arguments.folder)
logits = build(graph, *SIZES[arguments.size])
graph.data.close()
tensors = [helper.make_tensor_value_info(n, TensorProto.INT64, ["batch", "sequence"]) for n in ("input_ids", "attention_mask")]
output = helper.make_tensor_value_info(logits, TensorProto.FLOAT16, ["batch", "sequence", VOCABULARY])
model = helper.make_model(
    helper.make_graph(graph.nodes, "main_graph", tensors, [output], graph.initializers),
    opset_imports=[helper.make_opsetid("", 20)],
    producer_name="make_onnx.py",
)
(arguments.folder / "model.onnx").write_bytes(model.SerializeToString())
