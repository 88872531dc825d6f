#!/usr/bin/env python3
"""Predicts the training steps of gpu_check.sh on an H100 and writes docs/gpu/predictions.md. Made before
anything has run on a GPU, so that what comes out can be held against it.

  scripts/predict_steps.py TRIREME     the program, which counts each step's FLOPs and bytes (`trireme plan`)

Needs nothing but Python.
"""
import json
import pathlib
import shlex
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
BF16, FP8, COPY = 790e12, 1400e12, 3.0e12  # FLOP/s and bytes/s of an H100, as reached by large products and copies
GAPS, GAPS_WITHOUT_GRAPH = 0.02, 0.04  # of a step, between kernels
UNTUNED = 0.95  # what is left of products' share without a trial of algorithms
# Products' share of BF16 or FP8, by the model's width: a short sum over k keeps them from it.
PRODUCTS = [(1024, 0.74), (2048, 0.80), (4096, 0.84), (1 << 30, 0.87)]
# Attention in FLOP/s, by head size: forward, backward.
OURS = {64: (170e12, 110e12), 128: (230e12, 160e12)}
CUDNN = {64: (330e12, 240e12), 128: (520e12, 400e12)}
# Shares of COPY of the ops that move bytes.
SHARES = {"adamw": 0.85, "squared_norm": 0.80, "layernorm": 0.72, "rmsnorm": 0.72, "layernorm_backward": 0.60, "rmsnorm_backward": 0.65,
          "cross_entropy_in_place": 0.70, "split_heads": 0.78, "split_heads_backward": 0.78, "cast": 0.80, "embedding": 0.50,
          "embedding_backward": 0.35, "quantize": 0.60}
OTHER = 0.75


def rows():
    """(name, 8 bits, config, settings) of each step that gpu_check.sh measures."""
    listed = subprocess.run([ROOT / "scripts/gpu_check.sh", "--list"], check=True, capture_output=True, text=True).stdout
    for line in listed.splitlines():
        words = shlex.split(line)
        if words[3] == "step":
            yield words[4] + words[5], words[5] == "-fp8", words[6], words[7:]


def predict(program, eight_bits, config, settings):
    chosen = {"kernels.device": "cpu", "kernels.dtype": "bf16", "kernels.logits": "bf16", "model.document_mask": "false"}
    chosen.update(setting.split("=", 1) for setting in settings if not setting.startswith(("kernels.graph", "kernels.autotune")))
    arguments = [word for key, value in chosen.items() for word in ("--set", f"{key}={value}")]
    if eight_bits:
        arguments += ["--set", "kernels.matmul=fp8"]
    path = ROOT / "configs" / (config + ".yaml")
    plan = json.loads(subprocess.run([program, "plan", path, "--json", "-", *arguments], check=True, capture_output=True, text=True).stdout)
    model = plan["model"]
    ours = "kernels.autotune=false" in settings
    seconds, which = {}, []
    for name, op in plan["ops"].items():
        if name in ("attention", "attention_backward"):
            seconds[name] = op["flops"] / (OURS if ours else CUDNN)[model["head_size"]][name != "attention"]
            which.append("ours" if ours else "cuDNN")
        elif op["flops"] > 0:
            share = next(share for width, share in PRODUCTS if model["width"] < width)
            share *= UNTUNED if "kernels.autotune=false" in settings else 1
            of_8_bits = plan["flops_per_step"]["fp8_products"]
            seconds[name] = (op["flops"] - of_8_bits) / (share * BF16) + of_8_bits / (share * FP8)
        else:
            seconds[name] = op["bytes"] / COPY / SHARES.get(name, OTHER)
    total = sum(seconds.values()) / (1 - (GAPS_WITHOUT_GRAPH if "kernels.graph=false" in settings else GAPS))
    longest = sorted(seconds, key=seconds.get, reverse=True)[:3]
    limits = ", ".join(f"{name} {1e3 * seconds[name]:.0f}" for name in longest)
    return plan["tokens_per_step"] / total, 1e3 * total, "/".join(which), limits


PAGE = """# Predicted training steps

Predictions for the steps that `scripts/gpu_check.sh` measures, on one H100 with 80 GB. They were
written before any of this had run on a GPU. `table.log` of gpu_check shows what came beside them; a
wrong one is a lesson about a kernel.

`scripts/predict_steps.py build/trireme` writes this page. It takes FLOPs and bytes of each op from
`trireme plan`, and divides them by these rates:

| what | rate |
|---|---|
| bf16 products of width below 1024, 2048, 4096, above | {products} of {bf16:.0f} TFLOP/s |
| 8-bit products | the same shares of {fp8:.0f} TFLOP/s |
| attention, ours, heads of 64: forward, backward | {ours64} TFLOP/s |
| attention, ours, heads of 128 | {ours128} TFLOP/s |
| attention, cuDNN's, heads of 64 | {cudnn64} TFLOP/s |
| attention, cuDNN's, heads of 128 | {cudnn128} TFLOP/s |
| AdamW, norms forward, norms backward | 0.85, 0.72, 0.60 to 0.65 of {copy:.1f} TB/s |
| other ops that move bytes | 0.35 to 0.80 of it |
| between kernels | {gaps:.0f} % of the step; {no_graph:.0f} % without a graph |
| products without a trial of algorithms | {untuned:.2f} of their share |

| step | tokens/s | ms | attention forward/backward | the three longest, ms |
|---|---|---|---|---|
{rows}
"""


def main():
    program = pathlib.Path(sys.argv[1]).resolve()
    lines = []
    for name, eight_bits, config, settings in rows():
        rate, milliseconds, attention, limits = predict(program, eight_bits, config, settings)
        lines.append(f"| {name} | {rate:.0f} | {milliseconds:.0f} | {attention} | {limits} |")
    rates = lambda table, size: ", ".join(f"{rate / 1e12:.0f}" for rate in table[size])
    page = PAGE.format(products=", ".join(f"{share:.2f}" for _, share in PRODUCTS), bf16=BF16 / 1e12, fp8=FP8 / 1e12, copy=COPY / 1e12,
                       ours64=rates(OURS, 64), ours128=rates(OURS, 128), cudnn64=rates(CUDNN, 64),
                       cudnn128=rates(CUDNN, 128), gaps=100 * GAPS, no_graph=100 * GAPS_WITHOUT_GRAPH, untuned=UNTUNED, rows="\n".join(lines))
    (ROOT / "docs/gpu/predictions.md").write_text(page)


if __name__ == "__main__":
    main()
