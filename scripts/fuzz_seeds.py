#!/usr/bin/env python3
"""Writes inputs for the fuzz targets that are too large to keep in the repository: deeply nested, wide and long ones, which
reach the limits of each parser.

  scripts/fuzz_seeds.py DIRECTORY     writes DIRECTORY/TARGET/NAME
"""

import json
import pathlib
import sys


def nested(depth, inner="0", key=None):
    opening, closing = ("[", "]") if key is None else ('{"%s":' % key, "}")
    return opening * depth + inner + closing * depth


def of_json():
    yield "nested-128", nested(128)
    yield "nested-129", nested(129, key="a")
    yield "nested-open", "[" * 300_000
    yield "wide-array", json.dumps([0] * 150_000)
    yield "wide-object", json.dumps({"k%d" % i: i for i in range(30_000)})
    yield "long-string", json.dumps("x" * 400_000)
    yield "long-escapes", '"' + "\\ud83d\\udea3" * 30_000 + '"'
    yield "long-number", "1" * 100_000 + "." + "3" * 100_000 + "e-99999"


def tokenizer(vocabulary, merges, pattern):
    split = {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    return {
        "version": "1.0",
        "added_tokens": [],
        "normalizer": None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [split, level]},
        "post_processor": None,
        "decoder": {"type": "ByteLevel"},
        "model": {"type": "BPE", "vocab": vocabulary, "merges": merges},
    }


def of_tokenizer():
    words = "\\p{L}+|\\p{N}|\\s+|[^\\s\\p{L}\\p{N}]+"
    printable = [c for c in range(256) if 33 <= c <= 126 or 161 <= c <= 172 or 174 <= c]
    names = {c: chr(c) for c in printable}
    names |= {c: chr(256 + i) for i, c in enumerate(c for c in range(256) if c not in printable)}
    alphabet = {names[c]: i for i, c in enumerate(names)}
    pairs = [(a, b) for a in list(names.values())[:100] for b in list(names.values())[:100]][:8_000]
    wide = alphabet | {a + b: 256 + i for i, (a, b) in enumerate(pairs)}
    yield "wide-merges", json.dumps(tokenizer(wide, [list(pair) for pair in pairs], words))
    yield "long-token", json.dumps(tokenizer(alphabet | {"a" * 200_000: 256}, [], words))
    yield "long-pattern", json.dumps(tokenizer(alphabet, [], "|".join("a{%d}b" % i for i in range(3_000))))
    yield "slow-pattern", json.dumps(tokenizer(alphabet, [], "(?:(?:\\s*\\w*)*)*!"))
    whole = tokenizer(alphabet, [], words)
    whole["pre_tokenizer"] = json.loads(nested(100, "null", "pretokenizers"))
    yield "nested-sequence", json.dumps(whole)
    yield "wide-ranks", "".join("YQ== %d\n" % i for i in range(20_000))


def of_safetensors():
    entry = {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}
    last = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}
    yield "wide-tensors", json.dumps({"t%d" % i: entry for i in range(8_000)} | {"z": last})
    yield "wide-metadata", json.dumps({"__metadata__": {"k%d" % i: "v" for i in range(15_000)}, "z": last})
    yield "wide-shape", json.dumps({"z": {"dtype": "F32", "shape": [1] * 100_001, "data_offsets": [0, 8]}})
    yield "long-name", json.dumps({"n" * 300_000: last})
    yield "nested-9", '{"__metadata__":' + nested(9) + "}"


def of_published():
    model = {
        "model_type": "llama",
        "hidden_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "intermediate_size": 128,
        "vocab_size": 300,
        "max_position_embeddings": 64,
    }
    yield "wide-labels", json.dumps(model | {"id2label": {str(i): "x" for i in range(20_000)}})
    yield "long-name", json.dumps(model | {"_name_or_path": "x" * 400_000})
    yield "too-long", json.dumps(model | {"_name_or_path": "x" * 600_000})
    yield "nested-scaling", json.dumps(model)[:-1] + ',"rope_scaling":' + nested(127, key="a") + "}"
    yield "wide-layers", json.dumps(model | {"layer_types": ["full_attention"] * 50_000})


def of_records():
    lines = [json.dumps({"step": i, "loss": 1.5, "grad_norm": 1, "lr": 0.1, "tokens": 10 * i}) for i in range(1, 5_000)]
    yield "wide-metrics", "\n".join(lines) + "\n"
    yield "long-metrics", '{"step":1,"loss":1,"event":"' + "x" * 300_000 + '"}\n' + lines[1] + "\n"
    yield "nested-metrics", '{"step":1,"loss":' + nested(200) + "}\n" + lines[1] + "\n"
    yield "nested-data", "d" + nested(200) + "\n"
    shard = {"path": "a.h5", "digest": "0" * 16}
    record = {"after_step": 0, "seed": 1, "batch": 1, "context": 8, "sources": [{"weight": 1, "shards": [shard] * 5_000}]}
    yield "wide-data", "d" + json.dumps(record) + "\n"
    yield "long-lineage", "l" + '{"step":1,"save":"' + "x" * 300_000 + '"}\n'


def of_manifest():
    yield "nested", "f" + nested(200, key="tensors")
    yield "wide", "f" + json.dumps({"format": 1, "step": 1, "tensors": [{"name": "t%d" % i} for i in range(20_000)]})
    yield "long", "f" + json.dumps({"format": 1, "step": 1, "config": "x" * 500_000})
    piece = "a f32 3,5 0,0 3,5 2048 0011223344556677\n"
    head = "ptrireme pieces 1\npages 2 3000 0123456789abcdef\ncontainer fedcba9876543210\n"
    yield "wide-pieces", head + piece * 10_000
    yield "long-pieces", head + "a" * 500_000 + " f32 3,5 0,0 3,5 2048 0011223344556677\n"


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    makers = {"json": of_json, "tokenizer": of_tokenizer, "safetensors": of_safetensors}
    makers |= {"published": of_published, "records": of_records, "manifest": of_manifest}
    for target, inputs in makers.items():
        directory = pathlib.Path(sys.argv[1]) / target
        directory.mkdir(parents=True, exist_ok=True)
        for name, text in inputs():
            (directory / name).write_text(text)


main()
