#!/usr/bin/env python3
"""Sends a run's records to Weights & Biases. It reads metrics.jsonl, so the run needs no network and does not wait.
Run again, it continues where it stopped. Steps that a resumed run repeats have the same losses and are not sent twice.

    pip install wandb && scripts/wandb_push.py runs/NAME --project NAME [--follow] [--offline]
"""
import argparse
import json
import pathlib
import time

import wandb

STEP = {"loss": "train/loss", "grad_norm": "train/grad_norm", "lr": "train/lr", "tokens": "train/tokens",
        "tokens_per_second": "train/tokens_per_second", "mfu": "train/mfu", "mfu_full": "train/mfu_full", "hfu": "train/hfu",
        "step_ms": "time/step_ms", "data_ms": "time/data_ms"}
EVAL = {"val_loss": "eval/loss", "bits_per_byte": "eval/bits_per_byte"}
SAVE = {"saved_seconds": "save/seconds", "save_stall_ms": "save/stall_ms", "saved_bytes": "save/bytes"}


def values_of(line: dict) -> dict:
    parts = {f"time/parts/{name}_ms": ms for name, ms in line.get("parts_ms", {}).items()}
    if "choices" in line:
        return {f"eval/{line['choices']}/{key}": line[key] for key in ("acc", "acc_norm")}
    if "event" in line:
        return {f"event/{line['event']}": 1}
    names = STEP if "loss" in line else EVAL if "val_loss" in line else SAVE
    return {name: line[key] for key, name in names.items() if line.get(key) is not None} | parts


def complete_lines(path: pathlib.Path) -> list:
    """All lines but one that is being written."""
    return [json.loads(line) for line in path.read_text().split("\n")[:-1] if line] if path.exists() else []


def push(run, directory: pathlib.Path, sent: dict) -> None:
    """Sends the lines of later steps than were sent, for each kind of line."""
    for line in complete_lines(directory / "metrics.jsonl"):
        values = values_of(line)
        kind = min(values, default="") + line.get("tier", "")
        if not kind or line["step"] <= sent.get(kind, 0):
            continue
        run.log({"step": line["step"], **values})
        sent[kind] = line["step"]


def has_ended(directory: pathlib.Path) -> bool:
    """The exit.json of an earlier start is older than the lines of this one."""
    ended, metrics = directory / "exit.json", directory / "metrics.jsonl"
    return ended.exists() and metrics.exists() and ended.stat().st_mtime >= metrics.stat().st_mtime


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("run", type=pathlib.Path, help="the run's directory")
    arguments.add_argument("--project", required=True)
    arguments.add_argument("--follow", action="store_true", help="wait for further steps until the run has ended; after a kill, end this, too")
    arguments.add_argument("--offline", action="store_true", help="write files for `wandb sync` and send nothing")
    options = arguments.parse_args()
    directory = options.run.resolve()
    state = directory / "wandb.json"  # the newest step that was sent, by kind
    token = (directory / "run.id").read_text().split()[0]
    sent = json.loads(state.read_text()) if state.exists() else {}
    if sent.get("run") != token:
        sent = {"run": token}
    run = wandb.init(project=options.project, name=directory.name, id=token, resume="allow", dir=str(directory),
                     mode="offline" if options.offline else "online")
    run.define_metric("step")
    run.define_metric("*", step_metric="step")
    while True:
        ended = has_ended(directory)
        push(run, directory, sent)
        state.write_text(json.dumps(sent))
        if ended or not options.follow:
            break
        time.sleep(5)
    run.finish()
    print(f"wandb_push: sent up to step {max((step for step in sent.values() if isinstance(step, int)), default=0)}")


if __name__ == "__main__":
    main()
