#!/usr/bin/env python3
"""Times the same training step in PyTorch, on the same machine: compiled, fused attention, fused AdamW. Products are in bf16 over f32
weights, or in f32 where ours are or where --dtype f32 says so.

  scripts/peer_torch.py STEP.json...     what `trireme bench step --json` wrote: the same model, tokens a step and microbatch

Prints a line for each: tokens/s of both and their ratio; with --json FILE also writes them. --device cpu: on the processor, with
OMP_NUM_THREADS threads. Needs torch.
"""
import argparse
import json
import statistics
import sys
import time

import torch
import torch.nn.functional as F
from torch import nn


class Attention(nn.Module):
    def __init__(self, m):
        super().__init__()
        self.heads, self.kv, self.size = m["heads"], m["kv_heads"], m["head_size"]
        bias = m["family"] == "gpt2"
        self.qkv = nn.Linear(m["width"], (self.heads + 2 * self.kv) * self.size, bias=bias)
        self.out = nn.Linear(self.heads * self.size, m["width"], bias=bias)
        normed = nn.RMSNorm if m.get("qk_norm") else nn.Identity
        self.q_norm, self.k_norm = normed(self.size), normed(self.size)

    def forward(self, x, rope):
        b, t, _ = x.shape
        q, k, v = self.qkv(x).split([self.heads * self.size, self.kv * self.size, self.kv * self.size], dim=-1)
        q, k, v = (y.view(b, t, -1, self.size).transpose(1, 2) for y in (q, k, v))
        q, k = self.q_norm(q), self.k_norm(k)
        if rope is not None:
            q, k = turn(q, rope), turn(k, rope)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=self.kv != self.heads)
        return self.out(y.transpose(1, 2).reshape(b, t, -1))


def turn(x, rope):
    """RoPE by halves (Su et al., 2021)."""
    cos, sin = rope
    left, right = x.chunk(2, dim=-1)
    return torch.cat((left * cos - right * sin, right * cos + left * sin), dim=-1).to(x.dtype)


class Mlp(nn.Module):
    def __init__(self, m):
        super().__init__()
        self.gated = m["family"] != "gpt2"
        self.up = nn.Linear(m["width"], m["ffn"] * (2 if self.gated else 1), bias=not self.gated)
        self.down = nn.Linear(m["ffn"], m["width"], bias=not self.gated)

    def forward(self, x):
        x = self.up(x)
        if not self.gated:
            return self.down(F.gelu(x, approximate="tanh"))
        gate, up = x.chunk(2, dim=-1)
        return self.down(F.silu(gate) * up)


class Block(nn.Module):
    def __init__(self, m):
        super().__init__()
        norm = nn.LayerNorm if m["family"] == "gpt2" else nn.RMSNorm
        self.norm1, self.norm2 = norm(m["width"]), norm(m["width"])
        self.attention, self.mlp = Attention(m), Mlp(m)

    def forward(self, x, rope):
        x = x + self.attention(self.norm1(x), rope)
        return x + self.mlp(self.norm2(x))


class Model(nn.Module):
    def __init__(self, m):
        super().__init__()
        self.table = nn.Embedding(m["vocab"], m["width"])
        gpt2 = m["family"] == "gpt2"
        self.places = nn.Embedding(m["context"], m["width"]) if gpt2 else None
        self.blocks = nn.ModuleList(Block(m) for _ in range(m["layers"]))
        self.norm = (nn.LayerNorm if gpt2 else nn.RMSNorm)(m["width"])
        self.head = nn.Linear(m["width"], m["vocab"], bias=False)
        if m["tied"]:
            self.head.weight = self.table.weight
        if not gpt2:
            angle = torch.outer(torch.arange(m["context"]).float(),
                                m["theta"] ** (-torch.arange(0, m["head_size"], 2).float() / m["head_size"]))
            self.register_buffer("cos", angle.cos(), persistent=False)
            self.register_buffer("sin", angle.sin(), persistent=False)
        for p in self.parameters():
            if p.dim() > 1:
                nn.init.normal_(p, std=0.02)

    def forward(self, tokens, targets):
        x = self.table(tokens)
        rope = None
        if self.places is not None:
            x = x + self.places.weight[: tokens.shape[1]]
        else:
            rope = (self.cos[: tokens.shape[1]], self.sin[: tokens.shape[1]])
        for block in self.blocks:
            x = block(x, rope)
        logits = self.head(self.norm(x))
        return F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())


def measure(ours, device, dtype, steps, micro):
    m = ours["model"]
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    model = Model(m).to(device)
    parameters = sum(p.numel() for p in model.parameters())
    run = torch.compile(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
    rows = ours["batch"]
    ids = torch.randint(m["vocab"], (rows, m["context"] + 1), device=device)

    def step():
        for at in range(0, rows, micro):
            part = ids[at : at + micro]
            with torch.autocast(device, dtype=torch.bfloat16, enabled=dtype != "f32"):
                loss = run(part[:, :-1], part[:, 1:]) * (micro / rows)
            loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    settle = torch.cuda.synchronize if device == "cuda" else lambda: None
    times = []
    for i in range(steps + 3):  # the first compile and warm up
        settle()
        begin = time.perf_counter()
        step()
        settle()
        if i >= 3:
            times.append(time.perf_counter() - begin)
    return parameters, rows * m["context"] / statistics.median(times)


def measure_what_fits(ours, device, dtype, steps):
    """With our microbatch, or the largest half, quarter, ... of it for which the GPU's memory suffices."""
    micro = ours["microbatch"]
    while True:
        try:
            return (*measure(ours, device, dtype, steps, micro), micro)
        except torch.OutOfMemoryError:
            if micro == 1:
                raise
        micro //= 2
        torch.compiler.reset()
        torch.cuda.empty_cache()


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("steps", nargs="+", metavar="STEP.json")
    arguments.add_argument("--device", default="cuda")
    arguments.add_argument("--dtype", choices=["f32", "bf16"], help="of PyTorch's products; ours by default")
    arguments.add_argument("--count", type=int, default=10, help="timed steps")
    arguments.add_argument("--json")
    chosen = arguments.parse_args()
    told, failed = [], False
    for path in chosen.steps:
        with open(path) as file:
            ours = json.load(file)
        parameters, peer, micro = measure_what_fits(ours, chosen.device, chosen.dtype or ours["dtype"], chosen.count)
        if parameters != ours["parameters"]:
            print(f"{path}: the peer has {parameters} parameters, not {ours['parameters']}", file=sys.stderr)
            failed = True
        told.append({"name": ours["name"], "ours": ours["tokens_per_second"], "peer": peer, "microbatch": micro,
                     "ratio": ours["tokens_per_second"] / peer})
        print(f"{ours['name']}: trireme {ours['tokens_per_second']:.0f} tok/s, PyTorch {torch.__version__} {peer:.0f} tok/s, "
              f"ratio {told[-1]['ratio']:.2f}, microbatches of {micro}", flush=True)
        if chosen.device == "cuda":
            torch.compiler.reset()
            torch.cuda.empty_cache()
    if chosen.json:
        with open(chosen.json, "w") as file:
            json.dump(told, file, indent=2)
    sys.exit(failed)


if __name__ == "__main__":
    main()
