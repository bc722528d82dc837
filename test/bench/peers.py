"""Measures one OPT shape on this CPU in PyTorch, ONNX Runtime and Foresight, side by side in one run.

Every engine decodes the same number of tokens after the same prompt, batch 1. Rounds go round-robin over
the engines, so that a machine that drifts slows all of them; the table shows medians of the rounds.
Random weights for the peers, synthetic ones for Foresight: speed only, except opt-mini, which is trained.

usage: peers.py --shape opt-mini|opt-125m|opt-1.3b --bin BUILD/bin --work DIR [--rounds 3] [--engines a,b,...] [--json FILE]
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
import warnings

warnings.filterwarnings("ignore", category=FutureWarning)

SHAPES = {  # layers, heads, hidden, ffn, vocabulary, positions
    "opt-mini": (8, 6, 384, 1536, 8192, 1024),
    "opt-125m": (12, 12, 768, 3072, 50272, 2048),
    "opt-1.3b": (24, 32, 2048, 8192, 50272, 2048),
}


def torch_model(shape, dtype):
    import torch
    from transformers import OPTConfig, OPTForCausalLM

    layers, heads, hidden, ffn, vocabulary, positions = SHAPES[shape]
    config = OPTConfig(vocab_size=vocabulary, hidden_size=hidden, num_hidden_layers=layers, ffn_dim=ffn,
                       num_attention_heads=heads, max_position_embeddings=positions, word_embed_proj_dim=hidden)
    torch.manual_seed(0)
    with torch.device("meta"):
        model = OPTForCausalLM(config)
    model = model.to_empty(device="cpu").to(dtype)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.normal_(0, 0.02)
    model.tie_weights()
    return model.eval()


class Torch:
    """Hugging Face OPT: eager with a growing cache, or compiled with a static one."""

    def __init__(self, shape, dtype_name, compiled, prompt, tokens, threads):
        import torch
        from transformers import StaticCache

        self.torch, self.prompt, self.tokens, self.compiled = torch, prompt, tokens, compiled
        torch.set_num_threads(threads)
        self.model = torch_model(shape, getattr(torch, dtype_name))
        self.static = StaticCache
        self.ids = torch.randint(4, SHAPES[shape][4], (1, prompt))
        self.step = torch.compile(self.model.forward, dynamic=False) if compiled else self.model.forward

    def round(self):
        torch = self.torch
        with torch.inference_mode():
            if self.compiled:
                cache = self.static(config=self.model.config, max_cache_len=self.prompt + self.tokens + 8)
            else:
                cache = None
            start = time.perf_counter()
            out = self.model(self.ids, past_key_values=cache, use_cache=True,
                             cache_position=torch.arange(self.prompt), logits_to_keep=1)
            prompt_s = time.perf_counter() - start
            cache, times = out.past_key_values, []
            token = out.logits[:, -1:].argmax(-1)
            for i in range(self.tokens):
                start = time.perf_counter()
                out = self.step(token, past_key_values=cache, use_cache=True,
                                cache_position=torch.tensor([self.prompt + i]),
                                position_ids=torch.tensor([[self.prompt + i]]))
                token = out.logits[:, -1:].argmax(-1)
                times.append(time.perf_counter() - start)
        return prompt_s, statistics.median(times)


def build_onnx(shape, path):
    """A decoding step of an OPT of this shape, with past keys and values, f32."""
    import numpy as np
    import onnx
    from onnx import TensorProto as T
    from onnx import helper as h

    layers, heads, d, ffn, vocabulary, positions = SHAPES[shape]
    size = d // heads
    generator = np.random.default_rng(0)
    data = open(path + ".data", "wb")
    initializers, nodes, inputs, outputs = [], [], [], []

    def weight(name, *dims):
        value = generator.standard_normal(dims, dtype=np.float32) * np.float32(0.02)
        tensor = T_external(name, value)
        initializers.append(tensor)
        return name

    def T_external(name, value):
        tensor = onnx.TensorProto(name=name, data_type=T.FLOAT, dims=value.shape, data_location=onnx.TensorProto.EXTERNAL)
        data.write(b"\0" * (-data.tell() % 4096))
        for key, item in (("location", os.path.basename(path) + ".data"), ("offset", data.tell()), ("length", value.nbytes)):
            tensor.external_data.add(key=key, value=str(item))
        data.write(value.tobytes())
        return tensor

    def constant(name, value):
        initializers.append(onnx.numpy_helper.from_array(np.asarray(value), name))
        return name

    def node(op, name, *ins, **attributes):
        nodes.append(h.make_node(op, list(ins), [name], name="n_" + name, **attributes))
        return name

    constant("split", np.array([1, -1, heads, size], np.int64))
    constant("join", np.array([1, -1, d], np.int64))
    constant("scale", np.float32(size ** -0.5))
    for name in ("input_ids", "positions"):
        inputs.append(h.make_tensor_value_info(name, T.INT64, [1, "t"]))
    inputs.append(h.make_tensor_value_info("mask", T.FLOAT, [1, 1, "t", "s"]))
    table = weight("embed", vocabulary, d)
    x = node("Add", "x0", node("Gather", "e", table, "input_ids"), node("Gather", "p", weight("embed_pos", positions + 2, d), "positions"))

    def norm(tag, value):
        return node("LayerNormalization", tag, value, weight(tag + ".g", d), weight(tag + ".b", d), axis=-1, epsilon=1e-5)

    def linear(tag, value, n_in, n_out):
        return node("Add", tag, node("MatMul", tag + ".mm", value, weight(tag + ".w", n_in, n_out)), weight(tag + ".b", n_out))

    for i in range(layers):
        t = f"l{i}."
        y = norm(t + "ln1", x)
        q, k, v = (node("Transpose", t + c + "t", node("Reshape", t + c + "r", linear(t + c, y, d, d), "split"), perm=[0, 2, 1, 3]) for c in "qkv")
        for c, new in (("k", k), ("v", v)):
            inputs.append(h.make_tensor_value_info(f"past.{i}.{c}", T.FLOAT, [1, heads, "p", size]))
            node("Concat", f"present.{i}.{c}", f"past.{i}.{c}", new, axis=2)
            outputs.append(h.make_tensor_value_info(f"present.{i}.{c}", T.FLOAT, [1, heads, "s", size]))
        scores = node("MatMul", t + "s", node("Mul", t + "qs", q, "scale"), node("Transpose", t + "kT", f"present.{i}.k", perm=[0, 1, 3, 2]))
        p = node("Softmax", t + "p", node("Add", t + "sm", scores, "mask"), axis=-1)
        a = node("Reshape", t + "a", node("Transpose", t + "at", node("MatMul", t + "pv", p, f"present.{i}.v"), perm=[0, 2, 1, 3]), "join")
        x = node("Add", t + "x1", x, linear(t + "o", a, d, d))
        m = linear(t + "fc2", node("Relu", t + "relu", linear(t + "fc1", norm(t + "ln2", x), d, ffn)), ffn, d)
        x = node("Add", t + "x2", x, m)
    nodes.append(h.make_node("MatMul", [norm("lnf", x), weight("head", d, vocabulary)], ["logits"], name="head"))
    outputs.insert(0, h.make_tensor_value_info("logits", T.FLOAT, [1, "t", vocabulary]))
    data.close()
    onnx.save(h.make_model(h.make_graph(nodes, "opt", inputs, outputs, initializers), opset_imports=[h.make_opsetid("", 18)], ir_version=9), path)


class OnnxRuntime:
    def __init__(self, shape, prompt, tokens, threads, work):
        import numpy as np
        import onnxruntime

        self.np, self.shape, self.prompt, self.tokens = np, shape, prompt, tokens
        path = os.path.join(work, shape + "-step.onnx")
        if not os.path.exists(path):
            build_onnx(shape, path)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        self.session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])

    def round(self):
        np = self.np
        layers, heads, d, _, vocabulary, _ = SHAPES[self.shape]
        past = {f"past.{i}.{c}": np.zeros((1, heads, 0, d // heads), np.float32) for i in range(layers) for c in "kv"}
        names = [o.name for o in self.session.get_outputs()]

        def step(ids, position):
            t, s = len(ids), position + len(ids)
            mask = np.triu(np.full((t, s), -1e9, np.float32), k=position + 1)[None, None]
            feeds = {"input_ids": np.array([ids]), "positions": np.arange(position, s)[None] + 2, "mask": mask, **past}
            start = time.perf_counter()
            out = self.session.run(None, feeds)
            seconds = time.perf_counter() - start
            for name, value in zip(names[1:], out[1:]):
                past[name.replace("present", "past")] = value
            return seconds, int(out[0][0, -1].argmax())

        prompt_s, token = step(list(np.random.default_rng(1).integers(4, vocabulary, self.prompt)), 0)
        times = []
        for i in range(self.tokens):
            seconds, token = step([token], self.prompt + i)
            times.append(seconds)
        return prompt_s, statistics.median(times)


class Foresight:
    def __init__(self, shape, sparsity, prompt, tokens, threads, binaries, work):
        self.arguments = [os.path.join(binaries, "foresight"), "bench", os.path.join(work, f"{shape}-{sparsity}.fsb"), "--json", "--repeat", "1",
                          "--prompt-tokens", str(prompt), "--tokens", str(tokens), "--threads", str(threads)]
        bundle = self.arguments[2]
        if not os.path.exists(bundle):
            source = ([os.path.join(os.path.dirname(__file__), "../../examples/opt-mini/model.onnx")] if shape == "opt-mini"
                      else [f"--shape={shape}", "--weights=synthetic:1"])
            subprocess.run([os.path.join(binaries, "foresight-compile"), *source, f"--sparsity={sparsity}", "-o", bundle], check=True,
                           stderr=subprocess.DEVNULL)
        self.last = {}

    def round(self):
        self.last = json.loads(subprocess.run(self.arguments, check=True, capture_output=True, text=True).stdout)
        return self.last["prompt"]["seconds"]["median"], self.last["decode"]["seconds"]["median"]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--shape", choices=SHAPES, default="opt-mini")
    parser.add_argument("--bin", default="build/release/bin")
    parser.add_argument("--work", required=True, help="folder for bundles and the ONNX file")
    parser.add_argument("--prompt-tokens", type=int, default=128)
    parser.add_argument("--tokens", type=int, default=32)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--engines", default="torch-f32,torch-bf16,torch-bf16-compiled,ort-f32,foresight-none,foresight-exact,foresight-predicted")
    parser.add_argument("--json")
    a = parser.parse_args()
    os.makedirs(a.work, exist_ok=True)

    def make(name):
        kind, _, rest = name.partition("-")
        if kind == "torch":
            dtype = "float32" if "f32" in rest else "bfloat16"
            return Torch(a.shape, dtype, "compiled" in rest, a.prompt_tokens, a.tokens, a.threads)
        if kind == "ort":
            return OnnxRuntime(a.shape, a.prompt_tokens, a.tokens, a.threads, a.work)
        return Foresight(a.shape, rest, a.prompt_tokens, a.tokens, a.threads, a.bin, a.work)

    engines, rows = {}, {}
    for name in a.engines.split(","):
        engines[name] = make(name)
        engines[name].round()  # warm-up: compiles, faults pages in
        rows[name] = []
        print(f"{name}: ready", file=sys.stderr)
    for _ in range(a.rounds):
        for name, engine in engines.items():
            rows[name].append(engine.round())

    result = {"shape": a.shape, "prompt_tokens": a.prompt_tokens, "tokens": a.tokens, "threads": a.threads, "rounds": a.rounds, "engines": {}}
    best = min((statistics.median(r[1] for r in rows[n]) for n in rows if not n.startswith("foresight")), default=None)
    print(f"{a.shape}, batch 1, {a.threads} threads, prompt {a.prompt_tokens}, {a.tokens} tokens, {a.rounds} rounds")
    print(f"{'engine':22} {'ms/token':>9} {'min..max':>17} {'x best peer':>12} {'prompt ms':>10}")
    for name, values in rows.items():
        decode = sorted(v[1] * 1e3 for v in values)
        prompt = statistics.median(v[0] for v in values) * 1e3
        median = statistics.median(decode)
        ratio = f"{best * 1e3 / median:.2f}" if best else "-"
        print(f"{name:22} {median:9.3f} {decode[0]:8.3f}..{decode[-1]:7.3f} {ratio:>12} {prompt:10.1f}")
        result["engines"][name] = {"ms_per_token": median, "min": decode[0], "max": decode[-1], "prompt_ms": prompt,
                                   "bench": getattr(engines[name], "last", None)}
    if a.json:
        with open(a.json, "w") as f:
            json.dump(result, f, indent=1)


if __name__ == "__main__":
    main()
