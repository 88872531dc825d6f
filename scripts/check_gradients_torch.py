#!/usr/bin/env python3
"""Compares a step's bf16 gradients with PyTorch's: how far each is from PyTorch's in double precision.

    pip install torch transformers h5py && scripts/check_gradients_torch.py build/trireme [--models 20] [--dtype f32] [--set KEY=VALUE ...]

For random models of every published layout: one step in Trireme, with train.beta1 = 0, so that the first moment is the gradient;
and the same loss in transformers, in double precision and under torch.autocast(bfloat16), or in f32 with --dtype f32. Prints each
model's L2 error of all gradients, relative to their L2 norm, and the geometric mean of the quotients. Exits with 1 if that exceeds
1.05 in bf16.
"""
import argparse
import math
import pathlib
import random
import re
import sys
import tempfile

import h5py
import torch
import transformers
from make_published_golden import run
from transformers import AutoModelForCausalLM

LAYOUTS = ("gpt2", "llama", "mistral", "qwen2", "qwen3")
IN_LAYER = {"attention_norm.gain": "input_layernorm.weight", "mlp_norm.gain": "post_attention_layernorm.weight",
            "attention.q_gain": "self_attn.q_norm.weight", "attention.k_gain": "self_attn.k_norm.weight",
            "attention.out": "self_attn.o_proj.weight", "mlp.gate": "mlp.gate_proj.weight", "mlp.up": "mlp.up_proj.weight",
            "mlp.down": "mlp.down_proj.weight"}
IN_GPT2_LAYER = {"attention_norm": "ln_1", "mlp_norm": "ln_2", "attention.out": "attn.c_proj", "mlp.up": "mlp.c_fc",
                 "mlp.down": "mlp.c_proj"}
OUTSIDE = {"embedding.tokens": "model.embed_tokens.weight", "head.norm.gain": "model.norm.weight", "head.classifier": "lm_head.weight"}
GPT2_OUTSIDE = {"embedding.tokens": "transformer.wte.weight", "embedding.positions": "transformer.wpe.weight",
                "head.norm.gain": "transformer.ln_f.weight", "head.norm.bias": "transformer.ln_f.bias",
                "head.classifier": "lm_head.weight"}


def random_config(layout: str, draw: random.Random):
    heads = draw.choice((2, 3, 4, 6))
    size = draw.choice((8, 12, 16, 20, 24))
    common = dict(vocab_size=draw.randint(257, 400), tie_word_embeddings=draw.random() < 0.5, bos_token_id=None, eos_token_id=None)
    layers, width, eps = draw.randint(2, 6), heads * draw.choice((12, 16, 20, 32)), draw.choice((1e-6, 1e-5, 1e-3))
    if layout == "gpt2":
        return transformers.GPT2Config(**common, n_embd=width, n_layer=layers, n_head=heads, n_positions=64, n_inner=draw.randint(40, 200),
                                       layer_norm_epsilon=eps, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0)
    common |= dict(hidden_size=width, intermediate_size=draw.randint(40, 200), num_hidden_layers=layers, num_attention_heads=heads,
                   num_key_value_heads=draw.choice([k for k in (1, 2, 3, 6) if heads % k == 0]), max_position_embeddings=64,
                   rms_norm_eps=eps, rope_theta=draw.choice((100.0, 10000.0, 500000.0)))
    if layout == "qwen2":
        return transformers.Qwen2Config(**common, use_sliding_window=False)
    common |= dict(head_dim=size)
    if layout == "llama":
        return transformers.LlamaConfig(**common)
    if layout == "mistral":
        return transformers.MistralConfig(**common, sliding_window=draw.randint(3, 40))
    return transformers.Qwen3Config(**common, use_sliding_window=False)


def random_model(layout: str, seed: int):
    """Its projections keep the size of what they read; gains are about 1, biases about 0."""
    config = random_config(layout, random.Random(seed))
    config._attn_implementation = "eager"
    torch.manual_seed(seed)
    model = AutoModelForCausalLM.from_config(config).float().train()
    with torch.no_grad():
        for name, p in model.named_parameters():
            if p.dim() > 1:
                inside = p.shape[0] if layout == "gpt2" and "h." in name else p.shape[1]
                p.copy_(torch.randn(p.shape) * (0.5 if "embed" in name or "wte" in name or "wpe" in name else inside ** -0.5))
            else:
                gain = name.endswith("weight")
                p.copy_((1 if gain else 0) + 0.2 * torch.randn(p.shape))
    return model


def gradients_of(model, tokens: torch.Tensor, autocast: bool = False) -> dict:
    model.zero_grad()
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        logits = model(tokens[:, :-1], use_cache=False).logits
    logits = logits if logits.dtype == torch.float64 else logits.float()
    torch.nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten()).backward()
    return {name: p.grad.double() for name, p in model.named_parameters()}


def published_gradient(layout: str, name: str, theirs: dict) -> torch.Tensor:
    """The gradient that Trireme calls `name`."""
    layer = re.fullmatch(r"layers\.(\d+)\.(.*)", name)
    if layout != "gpt2":
        if not layer:
            return theirs[OUTSIDE[name]]
        inner = re.sub(r"^attention\.([qkv])$", r"self_attn.\1_proj.weight", layer[2])
        inner = re.sub(r"^attention\.([qkv])_bias$", r"self_attn.\1_proj.bias", inner)
        return theirs[f"model.layers.{layer[1]}.{IN_LAYER.get(inner, inner)}"]
    if not layer:
        return theirs[GPT2_OUTSIDE[name]]
    prefix, inner = f"transformer.h.{layer[1]}.", layer[2]
    part = re.fullmatch(r"attention\.([qkv])(_bias)?", inner)
    if part:
        which = "qkv".index(part[1])
        whole = theirs[prefix + ("attn.c_attn.bias" if part[2] else "attn.c_attn.weight")]
        return whole.chunk(3, dim=-1)[which].T if not part[2] else whole.chunk(3)[which]
    if inner.endswith((".gain", ".bias")):
        return theirs[prefix + IN_GPT2_LAYER[inner[:-5]] + (".weight" if inner.endswith("gain") else ".bias")]
    if inner.endswith("_bias"):
        return theirs[prefix + IN_GPT2_LAYER[inner[:-5]] + ".bias"]
    return theirs[prefix + IN_GPT2_LAYER[inner] + ".weight"].T


def ours_of(program: str, root: pathlib.Path, model, rows: int, context: int, dtype: str, more: list) -> tuple:
    """The tokens of the step [rows, context + 1], and its gradients by Trireme's names."""
    draw = random.Random(rows * context)
    (root / "text.txt").write_text("".join(draw.choice("abcdefghijklmnopqrstuvwxyz ,.") for _ in range(rows * context)))
    run(program, "data", "build", root / "text.txt", "--output", root / "corpus", "--tokenizer", "bytes", "--replace")
    with h5py.File(root / "corpus" / "train-00000.h5") as shard:
        flat = torch.tensor(shard["tokens"][:].astype("int64"))
    model.save_pretrained(root / "model", safe_serialization=True)
    section = run(program, "model", "config", root / "model").split("data:\n")[0]
    (root / "config.yaml").write_text(
        section + f"data:\n  train: [{root}/corpus/train-*.h5]\n  tokenizer: bytes\n"
        f"train:\n  init_from: {root}/model\n  runs: {root}/runs\n  name: one\n  steps: 1\n  batch: {rows}\n  microbatch: {rows}\n"
        "  lr: 1e-30\n  warmup: 0\n  decay: 0\n  clip: 0\n  beta1: 0\n  eval_every: 0\n")
    settings = {"model.context": context, "model.document_mask": "false", "kernels.dtype": dtype}
    run(program, "train", root / "config.yaml", *[w for key, value in settings.items() for w in ("--set", f"{key}={value}")],
        *[w for each in more for w in ("--set", each)])
    with h5py.File(root / "runs/one/checkpoints/step-00000001/shard-00000.h5") as state:
        gradients = {name.removeprefix("adam_m:"): torch.tensor(state[name][:]).double() for name in state if name.startswith("adam_m:")}
    tokens = torch.stack([flat[i * context:(i + 1) * context + 1] for i in range(rows)])
    return tokens, gradients


def compare(program: str, layout: str, seed: int, dtype: str, more: list) -> tuple:
    """The relative L2 errors of Trireme's and PyTorch's gradients."""
    rows, context = 4, random.Random(seed).choice((24, 40, 56))
    model = random_model(layout, seed)
    with tempfile.TemporaryDirectory() as scratch:
        tokens, ours = ours_of(program, pathlib.Path(scratch), model, rows, context, dtype, more)
    peers = gradients_of(model, tokens, autocast=dtype == "bf16")
    truth = gradients_of(model.double(), tokens)
    squares = {"truth": 0.0, "ours": 0.0, "peers": 0.0}
    for name, mine in ours.items():
        exact, theirs = (published_gradient(layout, name, of)[:len(mine)] for of in (truth, peers))  # of fewer positions
        squares["truth"] += exact.square().sum().item()
        squares["ours"] += (mine - exact).square().sum().item()
        squares["peers"] += (theirs - exact).square().sum().item()
    return tuple(math.sqrt(squares[which] / squares["truth"]) for which in ("ours", "peers"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--models", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--dtype", choices=("bf16", "f32"), default="bf16")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    arguments = parser.parse_args()
    program, logs = str(pathlib.Path(arguments.program).resolve()), []
    for i in range(arguments.models):
        layout, seed = LAYOUTS[i % len(LAYOUTS)], arguments.seed + i
        ours, peers = compare(program, layout, seed, arguments.dtype, arguments.set)
        logs.append(math.log(ours / peers))
        print(f"{layout:8} seed {seed:3}: Trireme {ours:.3e}, PyTorch {peers:.3e}, quotient {ours / peers:.3f}", flush=True)
    mean = math.exp(sum(logs) / len(logs))
    print(f"{len(logs)} models, {arguments.dtype}: geometric mean of the quotients {mean:.3f}; torch {torch.__version__}, "
          f"transformers {transformers.__version__}")
    sys.exit(1 if arguments.dtype == "bf16" and mean > 1.05 else 0)


if __name__ == "__main__":
    main()
