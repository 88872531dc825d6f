#!/usr/bin/env python3
"""Checks configs/schema.json with jsonschema: every config in configs/ is valid, and wrong ones are not.

  scripts/check_schema.py [--trireme PATH]   PATH: also checks that the program prints the same schema

Needs: pip install jsonschema pyyaml
"""
import argparse
import json
import pathlib
import re
import subprocess
import sys

import jsonschema
import yaml

ROOT = pathlib.Path(__file__).resolve().parent.parent

WRONG = [
    "modle: {layers: 3}",
    "model: {layer: 3}",
    "model: {layers: 0}",
    "model: {layers: 3.5}",
    "model: {layers: three}",
    "model: {layers: [3]}",
    "model: {tied: maybe}",
    "model: 7",
    "train: {lr: 0}",
    "train: {min_lr: 1.5}",
    "train: {schedule: cosin}",
    "train: {learning_rate: 1e-3}",
    "train: {leave_out: [0]}",
    "kernels: {dtype: fp16}",
    "parallel: {zero: 4}",
    "data: {train: {a: b}}",
    "data: {weights: [0]}",
    "include: {a: b}",
    "- model",
    "{}",
]


class Loader(yaml.SafeLoader):
    """YAML 1.2's numbers, as editors read them: 1e-3 and .02 are numbers."""


Loader.add_implicit_resolver("tag:yaml.org,2002:float", re.compile(r"^-?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?$"), list("-.0123456789"))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--trireme", help="program whose `config schema` must print the same")
    program = parser.parse_args().trireme
    text = (ROOT / "configs/schema.json").read_text()
    problems = []
    if program and subprocess.run([program, "config", "schema"], check=True, capture_output=True, text=True).stdout != text:
        problems.append("configs/schema.json is not what the program prints: trireme config schema > configs/schema.json")
    schema = json.loads(text)
    jsonschema.Draft202012Validator.check_schema(schema)
    validator = jsonschema.Draft202012Validator(schema)
    configs = sorted((ROOT / "configs").glob("*.yaml"))
    for path in configs:
        for error in validator.iter_errors(yaml.load(path.read_text(), Loader)):
            problems.append(f"{path.name}: {error.json_path}: {error.message}")
    problems += [f"accepted: {wrong}" for wrong in WRONG if validator.is_valid(yaml.load(wrong, Loader))]
    print("\n".join(problems) or f"{len(configs)} configs are valid, {len(WRONG)} wrong ones are refused")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
