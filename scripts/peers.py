#!/usr/bin/env python3
"""Compares training steps with compiled PyTorch's and llm.c's on this machine's processor, shape by shape, in turns: ours, theirs,
ours, theirs. `make peers` runs it.

  scripts/peers.py [--pairs 5] [--seconds 20] [--shape TEXT] [--json FILE]

Prints a table in Markdown: milliseconds of a step (medians), time of each peer over ours (median of the pairs, lowest and highest),
and peak memory of the processes. --shape takes only shapes whose names have TEXT. Where the processor has no bf16 instructions, PyTorch
computes bf16 shapes in f32, which is faster there. Needs torch; llm.c needs git and a C compiler.
"""
import argparse
import json
import os
import pathlib
import signal
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent


def gpt2(batch, context, dtype):
    return (f"gpt2-124m {dtype} B={batch} T={context}", "configs/gpt2-124m.yaml",
            {"model.context": context, "train.batch": batch, "train.microbatch": batch, "kernels.dtype": dtype})


SHAPES = [gpt2(4, 64, "bf16"), gpt2(8, 256, "bf16"), gpt2(4, 1024, "bf16"),
          ("quickstart", "configs/quickstart.yaml", {}),
          ("qwen3-0.6b bf16 B=1 T=256", "configs/qwen3-0.6b.yaml",
           {"model.context": 256, "train.batch": 1, "train.microbatch": 1, "kernels.dtype": "bf16"}),
          gpt2(4, 64, "f32"), gpt2(8, 256, "f32")]


def processor():
    """Its name, and its instructions as Linux calls them: flags on x86, Features on ARM."""
    lines = pathlib.Path("/proc/cpuinfo").read_text().splitlines()
    values = {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in lines)}
    return values.get("model name", "unknown processor"), set((values.get("flags") or values.get("Features", "")).split())


def machine():
    name, known = processor()
    has = [flag for flag in ("avx2", "avx512f", "avx512_bf16", "amx_bf16") if flag in known]
    return f"{name} ({', '.join(has) or 'no AVX2'})"


def multiplies_bf16():
    return bool(processor()[1] & {"avx512_bf16", "amx_bf16", "bf16"})


def run(command, threads):
    """Runs it to its end: what it wrote, and its peak memory in MiB."""
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads)}
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        process = subprocess.Popen([str(word) for word in command], cwd=ROOT, env=environment, stdout=out, stderr=err,
                                   start_new_session=True)
        try:
            _, status, usage = os.wait4(process.pid, 0)
        except BaseException:  # this script was stopped: what it started must not run on
            os.killpg(process.pid, signal.SIGKILL)
            raise
        process.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0), err.seek(0)
        if process.returncode != 0:
            sys.exit(f"{' '.join(map(str, command))} ended with {process.returncode}:\n{err.read().decode()[-2000:]}")
        return out.read().decode(), usage.ru_maxrss / 1024


class Shape:
    def __init__(self, name, config, settings):
        self.name, self.config, self.settings = name, config, settings
        self.ours, self.torch, self.llmc = [], [], []  # seconds of a step, of each pair
        self.memory = {"ours": 0.0, "torch": 0.0}
        self.version, self.peer_dtype = "", ""

    def pair(self, chosen, directory):
        step, peer = directory / "step.json", directory / "peer.json"
        words = [word for key, value in self.settings.items() for word in ("--set", f"{key}={value}")]
        _, memory = run([chosen.trireme, "bench", "step", self.config, "--seconds", chosen.seconds, "--json", step,
                         "--set", f"kernels.threads={chosen.threads}", *words], chosen.threads)
        told = json.loads(step.read_text())
        self.ours.append(statistics.median(told["step_seconds"]))
        self.memory["ours"] = max(self.memory["ours"], memory)
        count = max(3, min(20, round(chosen.seconds / self.ours[-1])))
        self.peer_dtype = "f32" if told["dtype"] == "f32" or not multiplies_bf16() else "bf16"
        out, memory = run([sys.executable, "scripts/peer_torch.py", step, "--device", "cpu", "--dtype", self.peer_dtype,
                           "--count", count, "--json", peer], chosen.threads)
        self.version = out.split("PyTorch ")[1].split()[0]
        self.torch.append(told["tokens"] / json.loads(peer.read_text())[0]["peer"])
        self.memory["torch"] = max(self.memory["torch"], memory)
        if chosen.llmc and self.name.startswith("gpt2-124m") and told["tokens"] <= 2048:  # more take llm.c minutes a step
            out, _ = run(["scripts/peer_llmc.sh", self.settings["train.batch"], self.settings["model.context"], 3], chosen.threads)
            self.llmc.append(statistics.median(float(line) for line in out.split()) / 1000)

    def row(self):
        def over(peer):
            if not peer:
                return ""
            ratios = sorted(theirs / ours for ours, theirs in zip(self.ours, peer))
            return f"{statistics.median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})"
        ours, theirs = 1000 * statistics.median(self.ours), 1000 * statistics.median(self.torch)
        return (f"| {self.name} | {ours:.0f} | {theirs:.0f} {self.peer_dtype} | {over(self.torch)} | {over(self.llmc)} | "
                f"{self.memory['ours']:.0f} | {self.memory['torch']:.0f} |")


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--trireme", default=ROOT / "build/trireme")
    arguments.add_argument("--pairs", type=int, default=5)
    arguments.add_argument("--seconds", type=float, default=20, help="of timed steps, each time")
    arguments.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    arguments.add_argument("--shape", default="")
    arguments.add_argument("--without-llmc", dest="llmc", action="store_false")
    arguments.add_argument("--json")
    chosen = arguments.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    shapes = [Shape(*shape) for shape in SHAPES if chosen.shape in shape[0]]
    if not shapes:
        sys.exit(f"no shape has '{chosen.shape}' in its name: {', '.join(shape[0] for shape in SHAPES)}")
    print(f"{machine()}, {chosen.threads} threads, {chosen.pairs} pairs\n", flush=True)
    with tempfile.TemporaryDirectory() as directory:
        for at, shape in enumerate(shapes):
            for _ in range(chosen.pairs):
                shape.pair(chosen, pathlib.Path(directory))
            if at == 0:
                print(f"| shape | trireme, ms | PyTorch {shape.version}, ms | PyTorch over trireme | llm.c over trireme | "
                      "trireme, MiB | PyTorch, MiB |\n|---|---|---|---|---|---|---|")
            print(shape.row(), flush=True)
    if chosen.json:
        results = [{"shape": s.name, "ours": s.ours, "torch": s.torch, "torch_dtype": s.peer_dtype, "llmc": s.llmc, "mib": s.memory}
                   for s in shapes]
        pathlib.Path(chosen.json).write_text(json.dumps({"machine": machine(), "threads": chosen.threads, "shapes": results}, indent=2))


if __name__ == "__main__":
    main()
