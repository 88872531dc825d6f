#!/usr/bin/env python3
"""Checks export_gguf.py: llama.cpp must compute what transformers computes, for every family and a tokenizer trained here.

    pip install gguf torch transformers xllamacpp && scripts/check_gguf.py build/trireme

For each model of test/train/goldens and each pattern: trains a tokenizer, exports the model with it, converts it, and compares the
log-probabilities of all tokens after several prompts, and the tokens of texts.
"""
import argparse
import json
import pathlib
import sys
import tempfile
import urllib.request

import torch
import xllamacpp
from make_published_golden import GOLDENS, TEXTS, loaded, model_of, run, settings
from transformers import PreTrainedTokenizerFast

VOCAB = 600
PAIRS = (("gpt2", "gpt2"), ("llama", "llama3"), ("mistral", "cl100k"), ("qwen2", "qwen2"), ("qwen3", "o200k"))
WORDS = [text for text in TEXTS if text] + ["12 345 6789 don't DON'T", "x = f(a, b);\n\n\treturn x", "end of line\r\nand on"]


def exported(program: str, root: pathlib.Path, layout: str, pattern: str) -> pathlib.Path:
    """An export of a golden model whose vocabulary is one trained here."""
    tokenizer, corpus, out = root / f"{layout}.json", f"corpus-{layout}", root / layout
    run(program, "tokenizer", "train", root / "words.txt", "--vocab", VOCAB, "--pattern", pattern, "--output", tokenizer)
    run(program, "data", "build", root / "words.txt", "--output", root / corpus, "--tokenizer", tokenizer)
    model = model_of(program, GOLDENS / layout).replace("vocab: 260\n", f"vocab: {VOCAB}\n")
    (root / "config.yaml").write_text(settings(root, GOLDENS / layout, corpus, tokenizer, model))
    run(program, "train", root / "config.yaml", "--set", f"train.name={layout}")
    run(program, "model", "export", root / "runs" / layout, out, "--dtype", "f32")
    return out


def server_of(path: pathlib.Path) -> xllamacpp.Server:
    params = xllamacpp.CommonParams()
    params.model.path = str(path)
    params.n_ctx, params.n_parallel, params.warmup, params.verbosity = 64, 1, False, -1
    params.cache_type_k = params.cache_type_v = xllamacpp.ggml_type.GGML_TYPE_F32
    params.flash_attn_type = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
    return xllamacpp.Server(params)


def log_probabilities(server: xllamacpp.Server, tokens: list) -> torch.Tensor:
    request = {"prompt": tokens, "n_predict": 1, "n_probs": VOCAB, "temperature": -1, "cache_prompt": False, "logit_bias": [[101, 1000]]}  # an "e"
    answer = server.handle_completions(request)
    answer = json.loads(answer) if isinstance(answer, str) else answer
    found = torch.full((VOCAB,), float("nan"), dtype=torch.float64)
    for entry in answer["choices"][0]["logprobs"]["content"][0]["top_logprobs"]:
        found[entry["id"]] = entry["logprob"]
    return found


def tokens_of(server: xllamacpp.Server, text: str) -> list:
    body = json.dumps({"content": text, "add_special": True}).encode()
    address = server.listening_address.rstrip("/") + "/tokenize"
    request = urllib.request.Request(address, body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request) as answer:
        return json.load(answer)["tokens"]


def check(program: str, root: pathlib.Path, layout: str, pattern: str, dtype: str) -> bool:
    out, converted = root / layout, root / f"{layout}-{dtype}.gguf"
    if not out.exists():
        exported(program, root, layout, pattern)
    said = run(sys.executable, pathlib.Path(__file__).with_name("export_gguf.py"), out, converted, "--dtype", dtype)
    server, model = server_of(converted), loaded(out)
    theirs = PreTrainedTokenizerFast.from_pretrained(out)
    window = model.config.sliding_window - 1 if layout == "mistral" else 60
    apart, equal = 0.0, True
    for text in WORDS:
        ids = theirs.encode(text, add_special_tokens=False)
        equal = equal and tokens_of(server, text) == ids
        ids = ids[:window]
        with torch.no_grad():
            wanted = model.double()(torch.tensor([ids])).logits[0, -1].log_softmax(-1)
        apart = max(apart, (log_probabilities(server, ids) - wanted).abs().max().item())
    most = {"f32": 1e-3, "f16": 2e-2}[dtype]
    print(f"{said.strip().split('/')[-1]}\n  log-probabilities {apart:.1e} nats apart, tokens {'equal' if equal else 'DIFFER'}", flush=True)
    return apart < most and equal


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", metavar="PROGRAM")
    program = str(pathlib.Path(parser.parse_args().program).resolve())
    with tempfile.TemporaryDirectory() as scratch:
        root = pathlib.Path(scratch)
        (root / "words.txt").write_text("\n".join(WORDS * 3) + pathlib.Path(__file__).read_text())
        wrong = [pair for pair in PAIRS for dtype in ("f32", "f16") if not check(program, root, *pair, dtype)]
    raise SystemExit(f"wrong: {wrong}" if wrong else 0)


if __name__ == "__main__":
    main()
