#!/usr/bin/env python3
"""Checks exported chat templates: transformers must write conversations as `trireme data build` does, to the character and token.

    pip install transformers h5py && scripts/check_chat_template.py build/trireme [--write]

For each form, with its markers as special tokens and as plain text: builds shards from conversations, trains a step, exports the
model, and compares apply_chat_template with the shards. --write also writes test/train/goldens/chat_templates.jsonl: the templates,
and what they make of conversations, for the tests in C++.
"""
import argparse
import json
import pathlib
import tempfile

import h5py
from make_published_golden import GOLDENS, run
from transformers import PreTrainedTokenizerFast

MARKERS = {"trireme": ("<|system|>", "<|user|>", "<|assistant|>"), "chatml": ("<|im_start|>", "<|im_end|>"),
           "llama3": ("<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"), "alpaca": ()}
SYSTEM, USER = {"role": "system", "content": "Be brief,\nand kind."}, {"role": "user", "content": "How far is it?"}
ANSWER = {"role": "assistant", "content": "Not far:\n\n  two miles."}
INPUT = {"role": "user", "content": "Translate.\n\n### Input:\ndeux \u00ab milles \u00bb"}
TALKS = [[USER, ANSWER], [SYSTEM, USER, ANSWER], [SYSTEM, USER, ANSWER, INPUT, ANSWER], [INPUT, ANSWER, USER, ANSWER],
         [USER, ANSWER, USER, ANSWER, USER, ANSWER]]


def check(program: str, root: pathlib.Path, name: str, special: bool) -> tuple:
    place = root / f"{name}-{special}"
    place.mkdir()
    (place / "talks.jsonl").write_text("".join(json.dumps({"messages": talk}) + "\n" for talk in TALKS * 4))
    markers = [word for marker in MARKERS[name] if special for word in ("--special", marker)]
    run(program, "tokenizer", "train", pathlib.Path(__file__), "--vocab", 400, *markers, "--output", place / "tokens.json")
    run(program, "data", "build", place / "talks.jsonl", "--messages-field", "messages", "--chat-template", name, "--output",
        place / "corpus", "--tokenizer", place / "tokens.json")
    (place / "config.yaml").write_text(
        f"model: {{layers: 1, width: 32, heads: 2, vocab: 400, context: 32}}\n"
        f"data: {{train: [{place}/corpus/train-00000.h5], tokenizer: {place}/tokens.json}}\n"
        f"train: {{name: a, runs: {place}/runs, steps: 1, warmup: 0, batch: 2}}\n")
    run(program, "train", place / "config.yaml")
    run(program, "model", "export", place / "runs" / "a", place / "out")
    theirs = PreTrainedTokenizerFast.from_pretrained(place / "out")
    with h5py.File(place / "corpus" / "train-00000.h5") as shard:
        tokens, starts = shard["tokens"][:].tolist(), shard["document_starts"][:].tolist()
    documents = [tokens[a:b] for a, b in zip(starts, [*starts[1:], len(tokens)])]
    texts, ids, goldens = 0, 0, []
    for talk, document in zip(TALKS, documents):
        found = theirs.apply_chat_template(talk, tokenize=False)
        encoded = theirs.encode(found, add_special_tokens=False)
        # A document ends with an end_of_document: after the template's own end, or instead of the line's end after it.
        whole = theirs.decode(document, clean_up_tokenization_spaces=False)
        end = theirs.eos_token
        texts += whole in (found.rstrip("\n"), found + end)
        ids += document in (encoded, [*encoded, theirs.eos_token_id]) or encoded[: len(document)] == document
        for answer in (False, True):
            text = theirs.apply_chat_template(talk, tokenize=False, add_generation_prompt=answer)
            goldens.append({"name": name, "special": special, "messages": talk, "answer": answer, "text": text.replace(end, "#END#")})
    goldens.insert(0, {"name": name, "special": special, "jinja": theirs.chat_template})
    ends = json.loads((place / "out" / "generation_config.json").read_text())["eos_token_id"]
    print(f"{name}, markers as {'special tokens' if special else 'text'}: {texts} of {len(TALKS)} texts equal, {ids} of {len(TALKS)} "
          f"token by token; ends at {theirs.convert_ids_to_tokens(ends)}")
    return texts == len(TALKS), ids, goldens


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", metavar="PROGRAM")
    parser.add_argument("--write", action="store_true", help="write the golden file, too")
    arguments = parser.parse_args()
    program, lines, equal = str(pathlib.Path(arguments.program).resolve()), [], True
    with tempfile.TemporaryDirectory() as scratch:
        for name in MARKERS:
            for special in (False, True) if MARKERS[name] else (False,):
                texts, ids, goldens = check(program, pathlib.Path(scratch), name, special)
                equal, lines = equal and texts and (ids == len(TALKS) or not special), lines + goldens
    if arguments.write:
        text = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
        (GOLDENS / "chat_templates.jsonl").write_text(text, encoding="utf-8")
    raise SystemExit(0 if equal else 1)


if __name__ == "__main__":
    main()
