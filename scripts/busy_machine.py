#!/usr/bin/env python3
"""Runs on a busy machine: does one end as a hang, and how much slower is it than its fair share?

  scripts/busy_machine.py [--starts 100] [--quickstarts 10] [--loops 6] [--at-once 1] [--hurried 0 2]
      Starts a tiny model and 60 steps of the quickstart beside endless loops, then again with two of the
      loops at nice -15 (as root), so many runs at once. Prints the exit codes and the median slowdown.
  scripts/busy_machine.py --pairs 10 BEFORE AFTER
      Compares two programs on an idle machine: alternating runs of 40 steps of the quickstart.

Fair share: the threads of the runs and the loops divide the cores by their weights. Exits with 1 if a run
ended with 71.
"""
import argparse
import collections
import concurrent.futures
import itertools
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
TINY = """
kernels: {dtype: f32}
model: {family: llama, layers: 2, width: 64, heads: 4, vocab: 257, context: 128}
data: {train: [tiny/train-*.h5], validation: [tiny/validation-*.h5], tokenizer: bytes}
checkpoint: {every: 1000}
train: {name: tiny, steps: 60, batch: 8, warmup: 5, eval_every: 0, eval_sequences: 8}
"""
# The kernel's weight of a thread at nice 0 and at nice -15.
WEIGHT, WEIGHT_HURRIED = 1024, 29154


def call(*words, cwd):
    subprocess.run([str(w) for w in words], cwd=cwd, check=True, stdout=subprocess.DEVNULL)


def headers():
    """Files of the C++ library, as the quickstart takes them."""
    out = subprocess.run(["g++", "-E", "-x", "c++", "-"], input="#include <vector>\n", capture_output=True, text=True, check=True).stdout
    vector = next(line.split('"')[1] for line in out.splitlines() if line.startswith("# 1 ") and line.split('"')[1].endswith("/vector"))
    return sorted(p for p in pathlib.Path(vector).parent.rglob("*") if p.is_file())


def prepare(program, place):
    texts = sorted((ROOT / "docs").glob("*.md"))
    call(program, "data", "build", *texts[1:], "--validation-input", texts[0], "--output", "tiny", "--tokenizer", "bytes", cwd=place)
    (place / "tiny.yaml").write_text(TINY)
    corpus = place / "corpus" / "quickstart"
    corpus.mkdir(parents=True)
    files = headers()
    held, train = files[19::20], [f for i, f in enumerate(files) if i % 20 != 19]
    call(program, "tokenizer", "train", *train, "--vocab", "4096", "--output", corpus / "tokenizer.json", cwd=place)
    call(program, "data", "build", *train, "--output", corpus, "--tokenizer", corpus / "tokenizer.json", "--validation-input", *held, cwd=place)
    shutil.copy(ROOT / "configs" / "quickstart.yaml", place)


NUMBERS = itertools.count()


def start(program, place, config, *settings):
    """One run from the beginning: its exit code, seconds, and median step in milliseconds."""
    name = f"measured{next(NUMBERS)}"
    run = place / "runs" / name
    words = [program, "train", config, "--set", "train.name=" + name]
    for setting in settings:
        words += ["--set", setting]
    begin = time.monotonic()
    ended = subprocess.run(words, cwd=place, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    seconds = time.monotonic() - begin
    if ended.returncode != 0:
        print(ended.stderr.strip().splitlines()[-1] if ended.stderr.strip() else "no message", flush=True)
    steps = []
    if (run / "metrics.jsonl").exists():
        steps = [e["step_ms"] for e in map(json.loads, (run / "metrics.jsonl").read_text().splitlines()) if "step_ms" in e]
    shutil.rmtree(run, ignore_errors=True)
    return ended.returncode, seconds, statistics.median(steps) if steps else float("nan")


class Loops:
    """Endless loops, some of them at nice -15."""

    def __init__(self, count, hurried):
        self.processes = [subprocess.Popen([sys.executable, "-c", "while True: pass"],
                                           preexec_fn=(lambda: os.nice(-15)) if i < hurried else None) for i in range(count)]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for p in self.processes:
            p.kill()
            p.wait()


QUICKSTART = ["train.steps=60", "train.eval_every=0", "train.eval_sequences=8"]


def busy(options, place):
    cores = len(os.sched_getaffinity(0))
    kinds = [("tiny model", "tiny.yaml", [], options.starts), ("quickstart", "quickstart.yaml", QUICKSTART, options.quickstarts)]
    alone = {name: statistics.median(start(options.program, place, config, *settings)[1] for _ in range(min(5, count)))
             for name, config, settings, count in kinds if count}
    print(f"{cores} cores, load average {os.getloadavg()[0]:.1f} before the loops", flush=True)
    hangs = 0
    for hurried in options.hurried:
        if hurried and os.geteuid() != 0:
            print("loops at nice -15 need root: not run")
            break
        loops = (options.loops - hurried) * WEIGHT + hurried * WEIGHT_HURRIED
        fair = max(1.0, (loops + options.at_once * cores * WEIGHT) / (cores * WEIGHT))
        for name, config, settings, count in kinds:
            if not count:
                continue
            with Loops(options.loops, hurried):
                with concurrent.futures.ThreadPoolExecutor(options.at_once) as pool:
                    runs = list(pool.map(lambda _: start(options.program, place, config, *settings), range(count)))
            codes = collections.Counter(code for code, _, _ in runs)
            seconds = sorted(s for _, s, _ in runs)
            hangs += codes[71]
            slower = statistics.median(seconds) / alone[name]
            print(f"{name}, {options.loops} loops, {hurried} at nice -15: {count} starts, {options.at_once} at once, exit codes {dict(codes)}, {codes[71]} hangs; "
                  f"median {statistics.median(seconds):.2f} s, longest {seconds[-1]:.2f} s, without loops {alone[name]:.2f} s: "
                  f"{slower:.1f} times slower, {slower / fair:.2f} of fair share's {fair:.1f}", flush=True)
    return hangs


def pairs(options, place):
    times = {program: [] for program in options.programs}
    for i in range(options.pairs):
        for program in options.programs if i % 2 == 0 else options.programs[::-1]:
            times[program].append(start(program, place, "quickstart.yaml", "train.steps=40", "train.eval_every=0", "train.eval_sequences=8")[2])
    before, after = (times[p] for p in options.programs)
    ratios = [b / a for a, b in zip(before, after)]
    print(f"median step: before {statistics.median(before):.1f} ms, after {statistics.median(after):.1f} ms; "
          f"median of {len(ratios)} pairs' ratios {statistics.median(ratios):.4f}, from {min(ratios):.4f} to {max(ratios):.4f}; "
          f"load average {os.getloadavg()[0]:.1f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", default=ROOT / "build" / "trireme", type=pathlib.Path)
    parser.add_argument("--starts", default=100, type=int)
    parser.add_argument("--quickstarts", default=10, type=int)
    parser.add_argument("--loops", default=6, type=int)
    parser.add_argument("--at-once", default=1, type=int)
    parser.add_argument("--hurried", default=[0, 2], type=int, nargs="*", help="loops at nice -15, one number per round")
    parser.add_argument("--pairs", default=0, type=int)
    parser.add_argument("programs", nargs="*", type=pathlib.Path, metavar="BEFORE AFTER")
    options = parser.parse_args()
    if options.pairs and len(options.programs) != 2:
        parser.error("--pairs compares two programs: name BEFORE and AFTER")
    options.program = options.program.resolve()
    options.programs = [p.resolve() for p in options.programs]
    with tempfile.TemporaryDirectory() as directory:
        place = pathlib.Path(directory)
        prepare(options.program if not options.pairs else options.programs[1], place)
        return pairs(options, place) or 0 if options.pairs else int(busy(options, place) > 0)


if __name__ == "__main__":
    sys.exit(main())
