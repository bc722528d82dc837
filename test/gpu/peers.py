"""Decoding steps of OPT shapes in PyTorch on a GPU, f16, random weights, for comparison with `foresight bench`.

Peers: a decoding step written by hand in PyTorch and captured as a CUDA graph (the strongest dense baseline without kernels of one's own), Hugging
Face `generate()`, a prompt in PyTorch, and what a kernel that only reads the weights needs, from the read bandwidth measured here. One line of JSON each.

usage: peers.py [opt-1.3b ...] [--context 128] [--prompt 1024] [--batch 1] [--generate]
"""

import argparse
import json
import time

import torch
import torch.nn.functional as F

SHAPES = {  # layers, heads, hidden, ffn, vocabulary
    "opt-mini": (8, 6, 384, 1536, 8192), "opt-125m": (12, 12, 768, 3072, 50272), "opt-1.3b": (24, 32, 2048, 8192, 50272),
    "opt-6.7b": (32, 32, 4096, 16384, 50272), "opt-13b": (40, 40, 5120, 20480, 50272), "opt-30b": (48, 56, 7168, 28672, 50272),
    "opt-66b": (64, 72, 9216, 36864, 50272),
}


def weights(shape):
    layers, heads, d, ffn, vocabulary = SHAPES[shape]

    def matrix(rows, columns):
        return torch.empty(rows, columns, dtype=torch.float16, device="cuda").normal_(0, 0.3 / columns ** 0.5)

    def vector(n, value=0.0):
        return torch.full((n,), value, dtype=torch.float16, device="cuda")

    blocks = [dict(qkv=matrix(3 * d, d), bqkv=vector(3 * d), out=matrix(d, d), bout=vector(d), fc1=matrix(ffn, d), b1=vector(ffn),
                   fc2=matrix(d, ffn), b2=vector(d), g1=vector(d, 1), h1=vector(d), g2=vector(d, 1), h2=vector(d)) for _ in range(layers)]
    return blocks, matrix(vocabulary, d), matrix(2050, d), vector(d, 1), vector(d)


def block(x, w, heads, batch, attend):
    """x: [batch * tokens, d]"""
    n, d = x.shape
    qkv = F.linear(F.layer_norm(x, (d,), w["g1"], w["h1"]), w["qkv"], w["bqkv"])
    q, k, v = (part.view(batch, n // batch, heads, d // heads).transpose(1, 2) for part in qkv.chunk(3, 1))
    x = x + F.linear(attend(q, k, v).transpose(1, 2).reshape(n, d), w["out"], w["bout"])
    h = torch.relu(F.linear(F.layer_norm(x, (d,), w["g2"], w["h2"]), w["fc1"], w["b1"]))
    return x + F.linear(h, w["fc2"], w["b2"])


@torch.inference_mode()
def decode_ms(shape, data, context, batch):
    layers, heads, d, _, _ = SHAPES[shape]
    blocks, table, positions, g, h = data
    keys = torch.zeros(layers, batch, heads, context + 1, d // heads, dtype=torch.float16, device="cuda")
    values = torch.zeros_like(keys)
    token = torch.zeros(batch, dtype=torch.long, device="cuda")

    def step():
        x = table[token] + positions[context + 2]
        for i, w in enumerate(blocks):
            def attend(q, k, v, i=i):
                keys[i, :, :, context:] = k
                values[i, :, :, context:] = v
                return F.scaled_dot_product_attention(q, keys[i], values[i])
            x = block(x, w, heads, batch, attend)
        token.copy_(F.linear(F.layer_norm(x, (d,), g, h), table).argmax(-1).clamp(0, len(table) - 1))

    # What was made above must be there before another stream reads it.
    torch.cuda.synchronize()
    with torch.cuda.stream(torch.cuda.Stream()):
        for _ in range(3):
            step()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    times = []
    for _ in range(40):
        start = time.perf_counter()
        graph.replay()
        torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
    return sorted(times)[len(times) // 2] * 1e3


@torch.inference_mode()
def prompt_ms(shape, data, tokens):
    _, heads, d, _, _ = SHAPES[shape]
    blocks, table, positions, g, h = data
    ids = torch.arange(tokens, device="cuda") % 1000
    times = []
    for _ in range(6):
        torch.cuda.synchronize()
        start = time.perf_counter()
        x = table[ids] + positions[2:tokens + 2]
        for w in blocks:
            x = block(x, w, heads, 1, lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True))
        F.linear(F.layer_norm(x[-1:], (d,), g, h), table)
        torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
    return sorted(times[1:])[2] * 1e3


@torch.inference_mode()
def generate_ms(shape, context, batch, tokens=24):
    from transformers import OPTConfig, OPTForCausalLM
    layers, heads, d, ffn, vocabulary = SHAPES[shape]
    config = OPTConfig(hidden_size=d, num_hidden_layers=layers, num_attention_heads=heads, ffn_dim=ffn, vocab_size=vocabulary, word_embed_proj_dim=d,
                       max_position_embeddings=2048)
    with torch.device("meta"):
        model = OPTForCausalLM(config).half().eval()
    model = model.to_empty(device="cuda")
    for parameter in model.parameters():
        parameter.normal_(0, 0.02)
    ids = torch.randint(4, vocabulary, (batch, context), device="cuda")

    def seconds(count):
        torch.cuda.synchronize()
        start = time.perf_counter()
        model.generate(ids, attention_mask=torch.ones_like(ids), do_sample=False, min_new_tokens=count, max_new_tokens=count, pad_token_id=1)
        torch.cuda.synchronize()
        return time.perf_counter() - start

    seconds(2)
    return (seconds(tokens + 1) - seconds(1)) / tokens * 1e3


def read_bandwidth():
    data = torch.ones(4 << 30, dtype=torch.uint8, device="cuda").view(torch.int64)
    best = 0
    for _ in range(8):
        torch.cuda.synchronize()
        start = time.perf_counter()
        data.sum()
        torch.cuda.synchronize()
        best = max(best, data.numel() * 8 / (time.perf_counter() - start))
    return best


parser = argparse.ArgumentParser()
parser.add_argument("shapes", nargs="*", default=["opt-1.3b", "opt-6.7b"])
parser.add_argument("--context", type=int, default=128)
parser.add_argument("--prompt", type=int, default=1024)
parser.add_argument("--batch", type=int, default=1)
parser.add_argument("--generate", action="store_true", help="also Hugging Face generate()")
a = parser.parse_args()
bandwidth = read_bandwidth()
print(json.dumps({"device": torch.cuda.get_device_name(), "torch": torch.__version__, "read_gb_per_s": round(bandwidth / 1e9)}), flush=True)
for shape in a.shapes:
    layers, _, d, ffn, vocabulary = SHAPES[shape]
    read = 2 * (layers * (4 * d * d + 2 * d * ffn) + vocabulary * d)
    out = {"shape": shape, "batch": a.batch, "read_floor_ms": round(read / bandwidth * 1e3, 3)}
    data = weights(shape)
    out["graph_ms"] = round(decode_ms(shape, data, a.context, a.batch), 3)
    out[f"prompt_{a.prompt}_ms"] = round(prompt_ms(shape, data, a.prompt), 2)
    # The weights of one model at a time: two of 66B do not fit.
    del data
    torch.cuda.empty_cache()
    if a.generate:
        out["generate_ms"] = round(generate_ms(shape, a.context, a.batch), 2)
        torch.cuda.empty_cache()
    print(json.dumps(out), flush=True)
