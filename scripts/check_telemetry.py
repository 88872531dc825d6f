#!/usr/bin/env python3
"""Trains a tiny model for 200 steps, kills the run in the middle and resumes it, with all of `report` on.
TensorBoard reads its event files and Prometheus's client its pages: every value must equal that of metrics.jsonl.

    pip install tensorboard==2.21.0 prometheus_client==0.26.0 && scripts/check_telemetry.py build/trireme
"""
import argparse
import json
import math
import pathlib
import signal
import socket
import struct
import subprocess
import tempfile
import time
import urllib.request

from prometheus_client.parser import text_string_to_metric_families
from tensorboard.backend.event_processing.event_accumulator import SCALARS, EventAccumulator

CONFIG = """
model: {family: llama, layers: 2, width: 64, heads: 4, kv_heads: 2, ffn: 128, vocab: 257, context: 64}
data: {train: [corpus/train-*.h5], validation: [corpus/validation-*.h5]}
checkpoint: {every: 20}
train: {name: run, steps: 200, batch: 8, eval_every: 50, eval_sequences: 20}
"""
STEP_TAGS = {"train/loss": "loss", "train/grad_norm": "grad_norm", "train/lr": "lr", "train/tokens": "tokens",
             "train/tokens_per_second": "tokens_per_second", "train/mfu": "mfu", "train/mfu_full": "mfu_full", "train/hfu": "hfu",
             "time/step_ms": "step_ms", "time/data_ms": "data_ms"}
EVAL_TAGS = {"eval/loss": "val_loss", "eval/bits_per_byte": "bits_per_byte"}
PAGE = {"trireme_loss": "loss", "trireme_grad_norm": "grad_norm", "trireme_learning_rate": "lr", "trireme_run_tokens": "tokens",
        "trireme_step": "step", "trireme_tokens_per_second": "tokens_per_second"}
# Digits of measured values in metrics.jsonl; the others read back as the same float.
DIGITS = {"tokens_per_second": 1, "mfu": 4, "mfu_full": 4, "hfu": 4, "step_ms": 3, "data_ms": 3}


def f32(value: float) -> float:
    return struct.unpack("f", struct.pack("f", value))[0]


def same(value: float, line: dict, key: str) -> bool:
    expected = line[key]
    if expected is None:
        return not math.isfinite(value)
    room = 0.51 * 10 ** -DIGITS[key] + 1e-6 * abs(expected) if key in DIGITS else 0
    return abs(f32(value) - f32(expected)) <= room


def require(holds: bool, what: str) -> None:
    if not holds:
        raise SystemExit(f"check_telemetry: {what}")


class Run:
    def __init__(self, program: str, place: pathlib.Path):
        self.program, self.place, self.directory = program, place, place / "runs/run"
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        (place / "text").mkdir()
        for i in range(40):
            (place / f"text/{i}.txt").write_text(f"Document {i}: " + "the oars row and the ship goes. " * (i + 5))
        self.call("data", "build", "text", "--output", "corpus", "--tokenizer", "bytes", "--validation", "0.1")
        (place / "config.yaml").write_text(CONFIG)

    def call(self, *words: str) -> None:
        done = subprocess.run([self.program, *words], cwd=self.place, capture_output=True)
        require(done.returncode == 0, done.stderr.decode())

    def start(self) -> subprocess.Popen:
        settings = ["report.tensorboard=true", f"report.metrics_port={self.port}", "report.prometheus_file=metrics.prom"]
        return subprocess.Popen([self.program, "train", "config.yaml"] + [word for s in settings for word in ("--set", s)],
                                cwd=self.place, stdout=subprocess.DEVNULL)

    def lines(self) -> list:
        path = self.directory / "metrics.jsonl"
        return [json.loads(line) for line in path.read_text().split("\n")[:-1]] if path.exists() else []

    def page(self, path: str) -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=10) as answer:
            return answer.read().decode()


def train_with_a_kill(run: Run) -> dict:
    """Returns the pages that were read while it trained, by step."""
    process = run.start()
    while not any(line["step"] >= 110 for line in run.lines()):
        require(process.poll() is None, "the run has ended early")
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    process, pages = run.start(), {}
    while process.poll() is None:
        try:
            page = run.page("/metrics")
            require(run.page("/healthz") == "ok\n", "/healthz is not ok")
            pages[sample(page, "trireme_step")] = page
        except OSError:
            pass  # it starts or ends
        time.sleep(0.02)
    require(process.returncode == 0, f"the run has ended with {process.returncode}")
    return pages


def sample(page: str, name: str) -> float:
    for family in text_string_to_metric_families(page):
        for each in family.samples:
            if each.name == name:
                return each.value
    return math.nan


def compare_tensorboard(run: Run) -> int:
    events = EventAccumulator(str(run.directory), size_guidance={SCALARS: 0})
    events.Reload()
    count = 0
    for tags, mark in ((STEP_TAGS, "loss"), (EVAL_TAGS, "val_loss")):
        lines = {line["step"]: line for line in run.lines() if mark in line}
        for tag, key in tags.items():
            known = {step: line for step, line in lines.items() if line[key] is not None or key == "loss"}
            if not known:
                continue
            found = events.Scalars(tag)
            require([e.step for e in found] == list(known), f"{tag}: other steps: {[e.step for e in found]}")
            for event in found:
                require(same(event.value, known[event.step], key), f"{tag}, step {event.step}: {event.value}, {known[event.step]}")
                count += 1
    return count


def compare_pages(run: Run, pages: dict) -> int:
    lines = {line["step"]: line for line in run.lines() if "loss" in line}
    last = (run.place / "metrics.prom").read_text()
    count = 0
    for step, page in [*pages.items(), (sample(last, "trireme_step"), last)]:
        if math.isnan(step):
            continue
        for name, key in PAGE.items():
            require(same(sample(page, name), lines[step], key), f"{name}, step {step}: {sample(page, name)}, {lines[step]}")
            count += 1
        require("NaN" not in page and "unknown" not in [f.type for f in text_string_to_metric_families(page)], f"a page: {page}")
    done, restored = sample(last, "trireme_step_seconds_count"), sample(last, "trireme_restored_step")
    require(sample(last, "trireme_step") == 200 and restored > 0 and done == 200 - restored, f"the last page: {last}")
    return count


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("trireme")
    program = str(pathlib.Path(arguments.parse_args().trireme).resolve())
    with tempfile.TemporaryDirectory() as place:
        run = Run(program, pathlib.Path(place))
        pages = train_with_a_kill(run)
        files = len(list(run.directory.glob("events.out.tfevents.*")))
        require(files == 2, f"{files} event files")
        print(f"check_telemetry: {compare_tensorboard(run)} values of {files} event files and {compare_pages(run, pages)} of "
              f"{len(pages) + 1} pages equal those of metrics.jsonl")


if __name__ == "__main__":
    main()
