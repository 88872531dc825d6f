#!/usr/bin/env python3
"""Writes test/model/goldens/*.safetensors: tiny models computed by PyTorch in f32, the
reference of test/model/golden_test.cpp.

Each file has the initial weights under our names, tokens, targets, document starts, the logits, the loss, the gradient of every weight,
and the losses of 20 AdamW steps on the same batch. The config stands in the file's metadata. Needs torch and numpy.
"""
import json
import math
import pathlib
import struct

import numpy as np
import torch

STEPS, LR, BETAS, EPS, DECAY, CLIP = 20, 3e-3, (0.9, 0.95), 1e-8, 0.1, 1.0

TINY = dict(layers=2, width=32, heads=4, kv_heads=4, head_size=8, ffn=48, vocab=61, context=24, tied=True, theta=10000.0,
            rope_scaling="none", rope_factor=8.0, rope_low_factor=1.0, rope_high_factor=4.0, rope_original_context=8192,
            qk_norm=False, qkv_bias=False, window=0, norm_eps=1e-5, z_loss=0.0, document_mask=False)
MODELS = {
    "gpt2": dict(TINY, family="gpt2", ffn=128),
    "llama": dict(TINY, family="llama", kv_heads=2, tied=False, theta=500.0, rope_scaling="llama3", rope_factor=4.0,
                  rope_original_context=32, document_mask=True),
    "qwen3": dict(TINY, family="llama", heads=3, kv_heads=1, head_size=16, qk_norm=True, norm_eps=1e-6, theta=1e6),
    "mistral": dict(TINY, family="llama", kv_heads=2, qkv_bias=True, window=5, z_loss=1e-2),
}


def weights(c, generator):
    """name -> tensor, in our names and layouts ([out, in])."""
    w = {}
    q, kv, width, ffn = c["heads"] * c["head_size"], c["kv_heads"] * c["head_size"], c["width"], c["ffn"]
    gpt2 = c["family"] == "gpt2"

    def normal(name, *shape, std=0.08):
        w[name] = torch.randn(*shape, generator=generator) * std

    def norm(name, size):
        w[name + "gain"] = 1 + 0.1 * torch.randn(size, generator=generator)

    normal("embedding.tokens", c["vocab"], width)
    if gpt2:
        normal("embedding.positions", c["context"], width)
    for i in range(c["layers"]):
        p = f"layers.{i}."
        norm(p + "attention_norm.", width)
        for name, rows in (("q", q), ("k", kv), ("v", kv)):
            normal(p + "attention." + name, rows, width)
            if gpt2 or c["qkv_bias"]:
                normal(p + "attention." + name + "_bias", rows)
        if c["qk_norm"]:
            norm(p + "attention.q_", c["head_size"])
            norm(p + "attention.k_", c["head_size"])
        normal(p + "attention.out", width, q)
        norm(p + "mlp_norm.", width)
        if not gpt2:
            normal(p + "mlp.gate", ffn, width)
        normal(p + "mlp.up", ffn, width)
        normal(p + "mlp.down", width, ffn)
        if gpt2:
            normal(p + "attention_norm.bias", width)
            normal(p + "attention.out_bias", width)
            normal(p + "mlp_norm.bias", width)
            normal(p + "mlp.up_bias", ffn)
            normal(p + "mlp.down_bias", width)
    norm("head.norm.", width)
    if gpt2:
        normal("head.norm.bias", width)
    if not c["tied"]:
        normal("head.classifier", c["vocab"], width)
    return {name: t.requires_grad_(True) for name, t in w.items()}


def frequencies(c):
    d = c["head_size"]
    f = c["theta"] ** (-torch.arange(0, d, 2, dtype=torch.float64) / d)
    if c["rope_scaling"] == "llama3":
        length, low, high = c["rope_original_context"], c["rope_low_factor"], c["rope_high_factor"]
        wavelength = 2 * math.pi / f
        s = ((length / wavelength - low) / (high - low)).clamp(0, 1)
        f = (1 - s) * f / c["rope_factor"] + s * f
    return f


def rotate(c, x):  # [B, T, H, D]
    angle = torch.arange(x.shape[1], dtype=torch.float64)[:, None] * frequencies(c)
    cos, sin = angle.cos().float()[:, None], angle.sin().float()[:, None]
    a, b = x.chunk(2, -1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)


def rms(c, x, gain):
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + c["norm_eps"]) * gain


def forward(c, w, tokens, starts):
    gpt2 = c["family"] == "gpt2"
    rows, length = tokens.shape
    at = torch.arange(length)

    def norm(name, x):
        if gpt2:
            return torch.nn.functional.layer_norm(x, x.shape[-1:], w[name + "gain"], w[name + "bias"], c["norm_eps"])
        return rms(c, x, w[name + "gain"])

    def linear(name, x):
        y = x @ w[name].T
        return y + w[name + "_bias"] if name + "_bias" in w else y

    seen = at[None, :] <= at[:, None]
    if c["window"]:
        seen = seen & (at[None, :] > at[:, None] - c["window"])
    seen = seen[None].expand(rows, -1, -1)
    if c["document_mask"]:
        seen = seen & (at[None, None, :] >= starts[:, :, None])

    x = w["embedding.tokens"][tokens]
    if gpt2:
        x = x + w["embedding.positions"][:length]
    for i in range(c["layers"]):
        p = f"layers.{i}."
        h = norm(p + "attention_norm.", x)
        q, k, v = (linear(p + "attention." + n, h).view(rows, length, -1, c["head_size"]) for n in "qkv")
        if c["qk_norm"]:
            q, k = rms(c, q, w[p + "attention.q_gain"]), rms(c, k, w[p + "attention.k_gain"])
        if not gpt2:
            q, k = rotate(c, q), rotate(c, k)
        group = c["heads"] // c["kv_heads"]
        k, v = k.repeat_interleave(group, 2), v.repeat_interleave(group, 2)
        s = torch.einsum("bthd,bshd->bhts", q, k) / math.sqrt(c["head_size"])
        s = s.masked_fill(~seen[:, None], float("-inf")).softmax(-1)
        x = x + linear(p + "attention.out", torch.einsum("bhts,bshd->bthd", s, v).reshape(rows, length, -1))
        h = norm(p + "mlp_norm.", x)
        up = linear(p + "mlp.up", h)
        if gpt2:  # the tanh form, written out: older torch has no approximate='tanh' on every op
            active = 0.5 * up * (1 + torch.tanh(math.sqrt(2 / math.pi) * (up + 0.044715 * up**3)))
        else:
            active = torch.nn.functional.silu(linear(p + "mlp.gate", h)) * up
        x = x + linear(p + "mlp.down", active)
    return norm("head.norm.", x) @ w["embedding.tokens" if c["tied"] else "head.classifier"].T


def loss_of(c, logits, targets):
    valid = targets >= 0
    lse = logits.logsumexp(-1)
    picked = logits.gather(-1, targets.clamp(min=0)[..., None])[..., 0]
    return ((lse - picked + c["z_loss"] * lse**2) * valid).sum() / valid.sum()


def write(path, tensors, metadata):
    """The safetensors format, written by hand: 8 bytes of header length, JSON header, raw bytes."""
    header, blob = {"__metadata__": metadata}, b""
    for name, array in tensors.items():
        array = np.ascontiguousarray(array)
        kind = {"float32": "F32", "int32": "I32"}[str(array.dtype)]
        header[name] = dict(dtype=kind, shape=list(array.shape), data_offsets=[len(blob), len(blob) + array.nbytes])
        blob += array.tobytes()
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + blob)


def golden(name, c, folder):
    generator = torch.Generator().manual_seed(sum(map(ord, name)))
    w = weights(c, generator)
    rows, length = 3, 19
    tokens = torch.randint(c["vocab"], (rows, length), generator=generator)
    targets = torch.randint(c["vocab"], (rows, length), generator=generator)
    targets[0, 3] = targets[2, -2:] = -1
    starts = torch.zeros(rows, length, dtype=torch.long)
    if c["document_mask"]:
        starts[0, 7:] = 7
        starts[1, 1:] = 1
        starts[1, 16:] = 16
    logits = forward(c, w, tokens, starts)
    loss = loss_of(c, logits, targets)
    loss.backward()
    out = {"weight/" + n: t.detach().numpy().copy() for n, t in w.items()}
    out |= {"gradient/" + n: t.grad.numpy().copy() for n, t in w.items()}
    out |= {"tokens": tokens.int().numpy(), "targets": targets.int().numpy(), "starts": starts.int().numpy(),
            "logits": logits.detach().numpy(), "loss": loss.detach().numpy().reshape(1)}
    optimizer = torch.optim.AdamW([{"params": [t for t in w.values() if t.dim() > 1], "weight_decay": DECAY},
                                   {"params": [t for t in w.values() if t.dim() == 1], "weight_decay": 0.0}], lr=LR, betas=BETAS, eps=EPS)
    losses, norms = [], []
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = loss_of(c, forward(c, w, tokens, starts), targets)
        loss.backward()
        norms.append(float(torch.nn.utils.clip_grad_norm_(w.values(), CLIP)))
        optimizer.step()
        losses.append(float(loss.detach()))
    out |= {"losses": np.array(losses, np.float32), "norms": np.array(norms, np.float32)}
    metadata = {"config": json.dumps(c), "optimizer": json.dumps(dict(lr=LR, beta1=BETAS[0], beta2=BETAS[1], eps=EPS, decay=DECAY, clip=CLIP)),
                "torch": torch.__version__}
    write(folder / f"{name}.safetensors", out, metadata)
    print(f"{name}: loss {losses[0]:.6f} -> {losses[-1]:.6f}")


if __name__ == "__main__":
    folder = pathlib.Path(__file__).resolve().parent.parent / "test" / "model" / "goldens"
    folder.mkdir(parents=True, exist_ok=True)
    for name, c in MODELS.items():
        golden(name, c, folder)
