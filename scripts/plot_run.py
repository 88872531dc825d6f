#!/usr/bin/env python3
"""Draws the loss curve of a run as an SVG: scripts/plot_run.py runs/quickstart docs/quickstart.svg [BITS_OF_XZ]. Needs matplotlib."""
import json
import pathlib
import sys

import matplotlib

matplotlib.use("svg")
matplotlib.rcParams["svg.hashsalt"] = "trireme"
import matplotlib.pyplot as plt


def main():
    run, out = pathlib.Path(sys.argv[1]), sys.argv[2]
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    steps = [line for line in lines if "loss" in line]
    evaluations = [line for line in lines if "val_loss" in line]
    smooth, mean = [], None
    for line in steps:
        mean = line["loss"] if mean is None else 0.95 * mean + 0.05 * line["loss"]
        smooth.append(mean)
    bits = evaluations[-1]["bits_per_byte"] / evaluations[-1]["val_loss"]

    figure, axes = plt.subplots(figsize=(8, 3.6))
    axes.plot([s["step"] for s in steps], [s["loss"] for s in steps], color="#9bb7d4", linewidth=0.5, label="training loss")
    axes.plot([s["step"] for s in steps], smooth, color="#1f4e79", linewidth=1.5, label="smoothed")
    axes.plot([e["step"] for e in evaluations], [e["val_loss"] for e in evaluations], "o-", color="#c0392b", markersize=4, linewidth=1,
              label="held-out loss")
    axes.annotate(f"{evaluations[-1]['bits_per_byte']:.3f} bits per byte", (evaluations[-1]["step"], evaluations[-1]["val_loss"]),
                  textcoords="offset points", xytext=(-8, 14), ha="right", color="#c0392b", fontsize=9)
    if len(sys.argv) > 3:
        axes.axhline(float(sys.argv[3]) / bits, color="#666666", linewidth=0.8, linestyle="--", label=f"xz -9e: {sys.argv[3]} bits per byte")
    axes.set(xlabel="step", ylabel="nats per token", ylim=(0, min(9, max(s["loss"] for s in steps))))
    axes.legend(frameon=False, fontsize=9)
    axes.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    figure.savefig(out, metadata={"Date": None})


if __name__ == "__main__":
    main()
