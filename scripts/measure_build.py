#!/usr/bin/env python3
"""Measures time and peak resident memory of `trireme data build` with one thread and with more, on a folder of text. Needs no packages.

    scripts/measure_build.py build/trireme texts/ --tokenizer corpus/tokenizer.json
    scripts/measure_build.py build/trireme texts/ --tokenizer corpus/tokenizer.json --threads 1 2 4 --rounds 5 -- --pack best-fit --context 2048

The files are read once before, so that they lie in memory where they fit; rounds take turns, and the fastest of each counts. All must make the
same shards.
"""
import argparse
import filecmp
import os
import pathlib
import subprocess
import sys
import tempfile
import time


def inputs_of(paths: list) -> list:
    return [file for path in map(pathlib.Path, paths) for file in ([path] if path.is_file() else sorted(path.rglob("*"))) if file.is_file()]


def build(words: list) -> tuple:
    """Seconds, and the most memory that the process has held, in bytes."""
    begin = time.monotonic()
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    told = process.stderr.read()
    _, status, usage = os.wait4(process.pid, 0)
    if status != 0:
        sys.exit(f"{' '.join(words)}\n{told.decode()}")
    return time.monotonic() - begin, usage.ru_maxrss * 1024


def same_files(one: pathlib.Path, other: pathlib.Path) -> bool:
    names = sorted(path.name for path in one.iterdir())
    return names == sorted(path.name for path in other.iterdir()) and not any(filecmp.cmpfiles(one, other, names, shallow=False)[1:])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("inputs", nargs="+")
    parser.add_argument("--tokenizer", required=True)
    parser.add_argument("--threads", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--scratch", help="where the shards are made, and removed; without: the system's directory of temporary files")
    before = sys.argv[1:sys.argv.index("--")] if "--" in sys.argv else sys.argv[1:]
    options = parser.parse_args(before)
    more = sys.argv[len(before) + 2:]

    files = inputs_of(options.inputs)
    size = sum(len(file.read_bytes()) for file in files)
    print(f"{len(files)} files, {size / 1e6:.1f} MB, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    best = {threads: (float("inf"), 0) for threads in options.threads}
    with tempfile.TemporaryDirectory(dir=options.scratch) as scratch:
        for _ in range(options.rounds):
            for threads in options.threads:
                output = pathlib.Path(scratch) / str(threads)
                seconds, peak = build([options.program, "data", "build", *options.inputs, "--output", str(output), "--tokenizer", options.tokenizer,
                                       "--threads", str(threads), "--replace", *more])
                best[threads] = min(best[threads][0], seconds), max(best[threads][1], peak)
                if not same_files(pathlib.Path(scratch) / str(options.threads[0]), output):
                    sys.exit(f"{threads} threads make other shards than {options.threads[0]}")
    first = options.threads[0]
    for threads, (seconds, peak) in best.items():
        print(f"{threads} threads: {seconds:.2f} s, {size / 1e6 / seconds:.1f} MB/s, {best[first][0] / seconds:.2f} times the rate of {first}; at "
              f"most {peak / 1e6:.0f} MB of memory, {peak / best[first][1]:.2f} times as much")


if __name__ == "__main__":
    main()
