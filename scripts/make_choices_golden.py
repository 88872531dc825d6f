#!/usr/bin/env python3
"""Writes test/data/goldens/choices/: questions, and what lm-evaluation-harness makes of them at 0, 2 and 6 shots.

    pip install lm_eval==0.4.13 torch transformers && scripts/make_choices_golden.py

questions_*.jsonl and examples_*.jsonl are made here in the published formats. contexts.jsonl holds the harness's contexts and
choices; scores.jsonl its acc, acc_norm and log-likelihoods with the model of test/train/goldens/qwen3, its context widened to
4096 tokens, and a tokenizer of single bytes.
"""
import json
import logging
import pathlib
import shutil
import tempfile

import lm_eval
import lm_eval.tasks
import tokenizers
import yaml
from lm_eval.models.huggingface import HFLM
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast

ROOT = pathlib.Path(__file__).resolve().parent.parent
GOLDENS = ROOT / "test" / "data" / "goldens" / "choices"
MODEL = ROOT / "test" / "train" / "goldens" / "qwen3"
TASKS = pathlib.Path(lm_eval.tasks.__file__).parent
SHOTS = (0, 2, 6)
QUESTIONS, EXAMPLES = 7, 30
SUBJECTS = ("abstract_algebra", "high_school_us_history")
THINGS = ("kettle", "ladder", "violin", "compass", "lantern", "anchor", "saddle", "chisel", "basket", "pulley", "mirror")


def hellaswag(i: int) -> dict:
    thing, other = THINGS[i % 11], THINGS[(3 * i + 1) % 11]
    return {"ind": i, "activity_label": f"Mending a {thing}", "ctx_a": f"A man [title] holds  a {thing} in a workshop.",
            "ctx_b": "he then TURNS" if i % 2 else "", "ctx": "", "label": str(i % 4),
            "endings": [f"it over and looks at its {i} marks.", f"[step] away from the {other}.", "on the  radio.",
                        f"to the {other} [substeps] and begins again."]}


def arc(i: int) -> dict:
    labels = list("ABCD") if i % 3 else list("1234")
    return {"id": f"made-{i}", "question": f"Which of these is {i + 2} more than {3 * i}?", "answerKey": labels[(i + 1) % 4],
            "choices": {"text": [str(4 * i + k) for k in range(4)], "label": labels}}


def mmlu(i: int, subject: str) -> dict:
    return {"question": f" What follows {7 * i} in steps of {i + 1}, as {subject.split('_')[-1]} has it?\n", "subject": subject,
            "choices": [str(7 * i + k * (i + 1)) for k in range(4)], "answer": (i + 1) % 4}


def piqa(i: int) -> dict:
    thing = THINGS[i % 11]
    return {"goal": f"carry a {thing} up {i + 1} flights of stairs", "sol1": f"hold the {thing} with both hands",
            "sol2": f"roll the {thing} in front of you, naïvely", "label": i % 2}


def lines_of(make, begin: int, count: int) -> list:
    return [make(i) for i in range(begin, begin + count)]


def write_lines(path: pathlib.Path, lines: list) -> str:
    path.write_text("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines))
    return str(path)


def task_of(name: str, include: str, scratch: pathlib.Path, splits: dict, **more) -> dict:
    """The harness's own task, reading local files."""
    config = {"include": str(TASKS / include), "task": name, "dataset_path": "json", "dataset_name": None,
              "dataset_kwargs": {"data_files": splits}, **more}
    (scratch / f"{name}.yaml").write_text(yaml.safe_dump(config))
    return {"task": str(scratch / f"{name}.yaml"), "name": name}


def tasks_in(scratch: pathlib.Path) -> dict:
    """Tasks by the golden's name; a golden of MMLU consists of a task for each subject."""
    tasks = {}
    for name, make, include in (("hellaswag", hellaswag, "hellaswag/hellaswag.yaml"), ("arc", arc, "arc/arc_easy.yaml"),
                                ("piqa", piqa, "piqa/piqa.yaml")):
        asked = write_lines(GOLDENS / f"questions_{name}.jsonl", lines_of(make, 0, QUESTIONS))
        examples = write_lines(GOLDENS / f"examples_{name}.jsonl", lines_of(make, 100, EXAMPLES))
        asked_split = "test" if name == "arc" else "validation"  # HellaSwag and PIQA have no answers to theirs
        splits = {"train": examples, asked_split: asked}
        tasks[name] = [task_of(name, include, scratch, splits, **({"validation_split": None} if name == "arc" else {}))]
    asked, examples, tasks["mmlu"] = [], [], []
    for n, subject in enumerate(SUBJECTS):
        both = [lines_of(lambda i: mmlu(i, subject), 50 * n, 4 - n), lines_of(lambda i: mmlu(i, subject), 200 + 50 * n, 8)]
        asked, examples = asked + both[0], examples + both[1]
        splits = {"test": write_lines(scratch / f"{n}.jsonl", both[0]), "dev": write_lines(scratch / f"{n}_dev.jsonl", both[1])}
        tasks["mmlu"].append(task_of(f"mmlu_{n}", f"mmlu/default/mmlu_{subject}.yaml", scratch, splits))
    write_lines(GOLDENS / "questions_mmlu.jsonl", asked)
    write_lines(GOLDENS / "examples_mmlu.jsonl", list(reversed(examples)))
    for n, subject in enumerate(SUBJECTS):  # the file's order is the reverse: the first of a subject are what counts
        write_lines(scratch / f"{n}_dev.jsonl", [e for e in reversed(examples) if e["subject"] == subject])
    # Examples from the questions themselves: the harness leaves the question out where both are the test split.
    asked = write_lines(GOLDENS / "questions_own.jsonl", lines_of(arc, 40, 6) + [arc(42)])
    tasks["own"] = [task_of("own", "arc/arc_easy.yaml", scratch, {"test": asked}, training_split=None, validation_split=None,
                            test_split="test", fewshot_split="test")]
    return tasks


def model_in(scratch: pathlib.Path) -> HFLM:
    directory = scratch / "model"
    shutil.copytree(MODEL, directory)
    config = json.loads((directory / "config.json").read_text())
    (directory / "config.json").write_text(json.dumps(dict(config, max_position_embeddings=4096)))
    alphabet = {c: b for b, c in enumerate(bytes_to_unicode().values())}
    inner = tokenizers.Tokenizer(tokenizers.models.BPE(vocab=alphabet, merges=[]))
    inner.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    inner.decoder = tokenizers.decoders.ByteLevel()
    inner.add_special_tokens(["<end>"])
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=inner, eos_token="<end>", bos_token=None)
    assert tokenizer("ab\n").input_ids == [97, 98, 10]
    model = AutoModelForCausalLM.from_pretrained(directory, dtype="float32")
    return HFLM(pretrained=model, tokenizer=tokenizer, max_length=4096, batch_size=1)


def bytes_to_unicode() -> dict:
    """GPT-2's printable character of each byte, in the order of the bytes."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = iter(range(256, 512))
    return {b: chr(b if b in printable else next(others)) for b in range(256)}


def main() -> None:
    GOLDENS.mkdir(exist_ok=True)
    contexts, scores = [], []
    with tempfile.TemporaryDirectory() as directory:
        scratch = pathlib.Path(directory)
        tasks, model = tasks_in(scratch), model_in(scratch)
        for name, parts in tasks.items():
            for shots in SHOTS if name != "own" else (0, 2, 5):
                samples, sums = [], {"acc": 0.0, "acc_norm": 0.0}
                for part in parts:
                    found = lm_eval.simple_evaluate(model=model, tasks=[part["task"]], num_fewshot=shots, log_samples=True,
                                                    bootstrap_iters=0)
                    result, of_part = found["results"][part["name"]], found["samples"][part["name"]]
                    samples += sorted(of_part, key=lambda s: s["doc_id"])
                    for metric in sums:
                        sums[metric] += len(of_part) * result.get(f"{metric},none", float("nan"))
                for number, sample in enumerate(samples):
                    arguments = list(sample["arguments"].values()) if isinstance(sample["arguments"], dict) else sample["arguments"]
                    pairs = [list(a.values())[:2] if isinstance(a, dict) else list(a[:2]) for a in arguments]
                    assert len({pair[0] for pair in pairs}) == 1
                    contexts.append({"task": name, "shots": shots, "question": number, "context": pairs[0][0],
                                     "choices": [pair[1] for pair in pairs]})
                score = {metric: value / len(samples) for metric, value in sums.items() if value == value}
                likelihoods = [[round(float(r[0]), 5) for r in s["filtered_resps"]] for s in samples]
                scores.append({"task": name, "shots": shots, **score, "log_likelihoods": likelihoods})
                print(name, shots, score)
    write_lines(GOLDENS / "contexts.jsonl", contexts)
    write_lines(GOLDENS / "scores.jsonl", scores)
    print(f"{len(contexts)} contexts, {len(scores)} scores, lm_eval {lm_eval.__version__}")


if __name__ == "__main__":
    logging.disable(logging.WARNING)
    main()
