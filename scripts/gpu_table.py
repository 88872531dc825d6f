#!/usr/bin/env python3
"""Tabulates the training steps that gpu_check.sh measured: time, share of the roofline, ratio to
PyTorch, of fp8 to bf16, and to what docs/gpu/predictions.md expects; and which attention ran.

  scripts/gpu_table.py DIRECTORY [--json FILE]     reads DIRECTORY/step-*.json and peer-*.json; prints the table, as Markdown

The roofline is the time that each op would take alone at the GPU's best: products at the rate of large ones of random numbers,
everything else at the rate of a copy. The floor is the same with both rates as measured in that run. Needs nothing but Python.
"""
import argparse
import glob
import json
import os
import pathlib
import re

PREDICTIONS = pathlib.Path(__file__).resolve().parent.parent / "docs/gpu/predictions.md"

# Rates by a part of the GPU's name, as reached, not as advertised: bf16 products and 8-bit products,
# FLOP/s; copies, bytes/s.
RATES = {"H200": (790e12, 1400e12, 4.3e12), "H100": (790e12, 1400e12, 3.0e12), "A100": (260e12, 260e12, 1.6e12)}


def roofline(step):
    rates = next((rates for name, rates in RATES.items() if name in step["device"]), None)
    if rates is None:
        return None
    bf16, fp8, copy = rates
    seconds = 0.0
    for op in step["ops"]:
        of_8_bits = step["fp8_product_flops"] if op["name"] == "matmul" else 0.0
        seconds += (op["flops"] - of_8_bits) / bf16 + of_8_bits / fp8 if op["flops"] > 0 else op["bytes"] / copy
    return seconds


def read(pattern):
    found = {}
    for path in sorted(glob.glob(pattern)):
        with open(path) as file:
            loaded = json.load(file)
        for each in loaded if isinstance(loaded, list) else [loaded]:
            found[each["name"]] = each
    return found


def predictions():
    """Tokens/s of each step, by name."""
    page = PREDICTIONS.read_text() if PREDICTIONS.exists() else ""
    return {name: float(rate) for name, rate in re.findall(r"^\| ([\w.-]+) \| (\d+) \| \d+ \|", page, re.MULTILINE)}


def attention_of(step):
    """Whose kernels ran, forward and backward, as far as there was a choice."""
    kernels = sorted(set(step.get("attention", {}).values()))
    return "/".join(kernels) or "ours"


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("directory")
    arguments.add_argument("--json")
    chosen = arguments.parse_args()
    steps = read(os.path.join(chosen.directory, "step-*.json"))
    peers = read(os.path.join(chosen.directory, "peer-*.json"))
    expected = predictions()
    table = []
    for name, step in sorted(steps.items()):
        seconds = sorted(step["step_seconds"])[len(step["step_seconds"]) // 2]
        of_bf16 = name[:-4] if name.endswith("-fp8") else name
        best, bf16, peer = roofline(step), steps.get(of_bf16), peers.get(of_bf16)
        table.append({
            "name": name, "tokens_per_second": step["tokens_per_second"], "seconds": seconds,
            "model_flops_per_second": step["model_flops_per_second"],
            "roofline_seconds": best, "roofline_share": best / seconds if best else None,
            "predicted_ratio": step["tokens_per_second"] / expected[name] if name in expected else None,
            "attention": attention_of(step), "notes": step.get("notes", []),
            "floor_share": step["floor_seconds"] / seconds,
            "peer_ratio": step["tokens_per_second"] / peer["peer"] if peer else None,
            "bf16_ratio": step["tokens_per_second"] / bf16["tokens_per_second"] if name.endswith("-fp8") and bf16 else None,
        })
    percent = lambda x: "" if x is None else f"{100 * x:.1f} %"
    ratio = lambda x: "" if x is None else f"{x:.2f}"
    print("| step | tokens/s | ms | model TFLOP/s | of the roofline | of the measured floor | to PyTorch | to bf16 | to the prediction | attention |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    for t in table:
        print(f"| {t['name']} | {t['tokens_per_second']:.0f} | {1e3 * t['seconds']:.1f} | {t['model_flops_per_second'] / 1e12:.0f} | "
              f"{percent(t['roofline_share'])} | {percent(t['floor_share'])} | {ratio(t['peer_ratio'])} | {ratio(t['bf16_ratio'])} | "
              f"{ratio(t['predicted_ratio'])} | {t['attention']} |")
    if chosen.json:
        with open(chosen.json, "w") as file:
            json.dump(table, file, indent=1)
    if not table:
        raise SystemExit("gpu_table: no step-*.json in " + chosen.directory)


if __name__ == "__main__":
    main()
