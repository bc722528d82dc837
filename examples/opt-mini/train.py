"""Trains opt-mini, a small OPT (pre-norm, ReLU, learned positions) on a folder of text (train.txt.xz, valid.txt.xz), on one GPU.

The architecture, tokenizer kind (byte-level BPE, `</s>` first) and checkpoint layout are those of the released OPT
models, so whatever loads a released OPT loads this one.

usage: train.py CORPUS_DIR OUT_DIR [--minutes 8] [--layers 8 --d-model 384 --heads 6 --ffn 1536 --vocab 8192]
"""
import argparse, json, lzma, math, os, time
import numpy as np, torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import OPTConfig, OPTForCausalLM, PreTrainedTokenizerFast

p = argparse.ArgumentParser()
p.add_argument("corpus"); p.add_argument("out")
for name, v in dict(layers=8, d_model=384, heads=6, ffn=1536, vocab=8192, context=1024, batch=48).items():
    p.add_argument("--" + name.replace("_", "-"), type=int, default=v)
p.add_argument("--minutes", type=float, default=8); p.add_argument("--lr", type=float, default=1.5e-3)
p.add_argument("--dropout", type=float, default=0.05)
a = p.parse_args()
torch.manual_seed(0); os.makedirs(a.out, exist_ok=True)
torch.backends.cuda.matmul.allow_tf32 = True

def text(split): return lzma.open(f"{a.corpus}/{split}.txt.xz", "rt", encoding="utf-8").read()

train_text = text("train")
tok = Tokenizer(models.BPE())
tok.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
tok.decoder = decoders.ByteLevel()
specials = ["<s>", "<pad>", "</s>", "<unk>"]  # ids 0..3 as in the released OPT vocabularies
chunks = [train_text[i:i + 100_000] for i in range(0, min(len(train_text), 40_000_000), 100_000)]
tok.train_from_iterator(chunks, trainers.BpeTrainer(vocab_size=a.vocab, special_tokens=specials,
                        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False))
tok.post_processor = processors.TemplateProcessing(single="</s> $A", pair="</s> $A $B", special_tokens=[("</s>", 2)])
fast = PreTrainedTokenizerFast(tokenizer_object=tok, bos_token="</s>", eos_token="</s>", unk_token="</s>", pad_token="<pad>")
fast.save_pretrained(a.out)

def ids(s):
    docs = [d for d in s.split("\n\n") if d.strip()]
    out = []
    for e in tok.encode_batch(docs): out.extend(e.ids)
    return np.asarray(out, dtype=np.int32)

data = torch.from_numpy(ids(train_text).astype(np.int64)).cuda()
valid = torch.from_numpy(ids(text("valid")).astype(np.int64)).cuda()
print(json.dumps(dict(train_tokens=len(data), valid_tokens=len(valid), chars=len(train_text))), flush=True)

cfg = OPTConfig(vocab_size=a.vocab, hidden_size=a.d_model, num_hidden_layers=a.layers, ffn_dim=a.ffn,
                num_attention_heads=a.heads, max_position_embeddings=a.context, word_embed_proj_dim=a.d_model,
                do_layer_norm_before=True, activation_function="relu", dropout=a.dropout, attention_dropout=0.0,
                bos_token_id=2, eos_token_id=2, pad_token_id=1, tie_word_embeddings=True)
m = OPTForCausalLM(cfg).cuda()
print("parameters", sum(q.numel() for q in m.parameters()), flush=True)
decay = [q for q in m.parameters() if q.dim() > 1]; plain = [q for q in m.parameters() if q.dim() <= 1]
opt = torch.optim.AdamW([dict(params=decay, weight_decay=0.1), dict(params=plain, weight_decay=0.0)], lr=a.lr, betas=(0.9, 0.95), fused=True)
core = torch.compile(m)

def batch(d, n):
    i = torch.randint(0, len(d) - a.context - 1, (n,), device="cuda")
    return d[i[:, None] + torch.arange(a.context, device="cuda")]

@torch.no_grad()
def evaluate():
    m.eval(); total = count = 0
    for s in range(0, len(valid) - a.context, a.context):
        x = valid[None, s:s + a.context]
        with torch.autocast("cuda", torch.bfloat16): loss = m(input_ids=x, labels=x).loss
        total += loss.item(); count += 1
    m.train(); return math.exp(total / count)

t0 = None; step = 0; budget = a.minutes * 60; losses = []
while True:
    f = 0 if t0 is None else (time.time() - t0) / budget
    if f >= 1: break
    lr = a.lr * min(1, (step + 1) / 200) * (0.05 + 0.95 * 0.5 * (1 + math.cos(math.pi * f)))
    for g in opt.param_groups: g["lr"] = lr
    x = batch(data, a.batch)
    with torch.autocast("cuda", torch.bfloat16): loss = core(input_ids=x, labels=x).loss
    loss.backward(); torch.nn.utils.clip_grad_norm_(m.parameters(), 1.0); opt.step(); opt.zero_grad(set_to_none=True)
    step += 1
    if step == 20: torch.cuda.synchronize(); t0 = time.time()
    if step % 500 == 0:
        losses.append(round(loss.item(), 3)); print(json.dumps(dict(step=step, loss=losses[-1], frac=round(f, 3), tok_s=int((step - 20) * a.batch * a.context / (time.time() - t0)), valid_ppl=round(evaluate(), 2) if step % 2000 == 0 else None)), flush=True)

m.eval(); m.half().save_pretrained(a.out, max_shard_size="14MB"); ppl = evaluate(); m.eval()
# how sparse the trained activations are, per layer, on held-out text
zeros = [0.0] * a.layers
def hook(i):
    def h(mod, inp, out): zeros[i] += (out <= 0).float().mean().item() / 20
    return h
hs = [l.fc1.register_forward_hook(hook(i)) for i, l in enumerate(m.model.decoder.layers)]
with torch.no_grad():
    for s in range(20): m(input_ids=valid[None, s * a.context:(s + 1) * a.context])
for h in hs: h.remove()
prompt = torch.tensor([tok.encode("The old man looked at the sea and").ids]).cuda()
g = m.generate(input_ids=prompt, max_new_tokens=80, do_sample=False, repetition_penalty=1.2)
json.dump(dict(steps=step, tokens=step * a.batch * a.context, valid_ppl=ppl, mlp_zero_fraction=[round(z, 4) for z in zeros], losses=losses,
               sample=tok.decode(g[0].tolist())), open(f"{a.out}/training.json", "w"), indent=1)
print(open(f"{a.out}/training.json").read())
