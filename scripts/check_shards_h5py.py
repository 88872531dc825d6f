#!/usr/bin/env python3
"""Builds and imports shards with the program and reads every dataset and attribute of them with h5py.
Compares tokens, document starts, loss masks and sources with the output of `trireme tokenizer`, and
imported tokens with their files.

    pip install h5py==3.16.0 numpy && scripts/check_shards_h5py.py build/trireme
"""
import argparse
import base64
import json
import pathlib
import random
import struct
import subprocess
import tempfile

import h5py
import numpy

ALWAYS = {"tokens", "document_starts", "page_digests"}
SOURCES = {"source_files", "document_files", "document_offsets", "document_lines"}
ROW = 48


class Program:
    def __init__(self, path: str):
        self.path = str(pathlib.Path(path).resolve())

    def run(self, *words, given: str = "") -> str:
        done = subprocess.run([self.path, *map(str, words)], input=given.encode(), capture_output=True)
        if done.returncode != 0:
            raise SystemExit(f"{' '.join(map(str, words))}\n{done.stderr.decode()}")
        return done.stdout.decode()

    def encode(self, tokenizer: str, texts: list) -> list:
        lines = self.run("tokenizer", "encode", tokenizer, "--json-lines", given="".join(json.dumps(text) + "\n" for text in texts))
        return [[int(word) for word in line.split()] for line in lines.split("\n")[:-1]]

    def decode(self, tokenizer: str, tokens: list) -> str:
        return self.run("tokenizer", "decode", tokenizer, given=" ".join(map(str, tokens)))[:-1]


def texts(rng: random.Random, count: int) -> list:
    words = ["the", "oars", "row", "\n", "caf\u00e9", "\u4f60\u597d", "\U0001f600", "int x = 3;", "1234", "\u041c\u043e\u0441\u043a\u0432\u0430", "x\0y"]
    return [" ".join(rng.choice(words) for _ in range(rng.randrange(1, 60))) for _ in range(count)]


def wide_ranks(path: pathlib.Path) -> str:
    """More entries than two bytes can tell: every pair of bytes, those behind a space last."""
    pairs = sorted((bytes([a, b]) for a in range(256) for b in range(256)), key=lambda pair: pair[0] == 32)
    tokens = [bytes([b]) for b in range(256)] + pairs
    path.write_text("".join(f"{base64.b64encode(token).decode()} {rank}\n" for rank, token in enumerate(tokens)))
    return f"{path}@cl100k"


class Shards:
    """All shards of a directory, one behind the other."""

    def __init__(self, directory: pathlib.Path, wide: bool):
        self.tokens, self.starts, self.mask, self.sources, self.rows = [], [], [], [], []
        self.text_bytes = 0
        paths = sorted(directory.glob("train-*.h5"))
        self.count = len(paths)
        for path in paths:
            with h5py.File(path) as file:
                self.read(file, wide)

    def read(self, file: h5py.File, wide: bool) -> None:
        data = {name: dataset[()] for name, dataset in file.items()}
        facts = dict(file.attrs)
        tokens, starts = data["tokens"], data["document_starts"]
        assert ALWAYS <= set(data) <= ALWAYS | SOURCES | {"loss_mask"}, sorted(data)
        assert tokens.dtype == (numpy.uint32 if wide else numpy.uint16) and starts.dtype == numpy.int64
        assert facts["tokens"] == len(tokens) and facts["documents"] == len(starts) and tokens.max() < facts["vocab"]
        assert all(numpy.diff(starts) > 0) and facts["format"] == b"trireme shard 1" and facts["end_of_document"] < facts["vocab"]
        pages = -(-tokens.nbytes // 65536)
        if "loss_mask" in data:
            bits = numpy.unpackbits(data["loss_mask"], count=len(tokens), bitorder="little")
            pages += -(-len(data["loss_mask"]) // 4096)
            assert facts["trained_tokens"] == bits.sum()
            self.mask += bits.tolist()
        assert data["page_digests"].dtype == numpy.uint64 and len(data["page_digests"]) == pages
        names = bytes(data["source_files"]).decode().split("\0")[:-1]
        carried = 0 if len(starts) and starts[0] == 0 else 1
        entries = list(zip(data["document_files"], data["document_lines"], data["document_offsets"]))[carried:]
        assert len(entries) == len(starts)
        self.sources += [(names[number], int(line), int(offset)) for number, line, offset in entries]
        self.starts += (starts + len(self.tokens)).tolist()
        self.tokens += tokens.tolist()
        self.text_bytes += int(facts["text_bytes"])
        self.end = int(facts["end_of_document"])
        self.rows.append(facts.get("row"))


def check_stream(shards: Shards, documents: list, masks: list) -> None:
    """`documents` one behind the other, each with its end."""
    starts, stream, mask = [], [], []
    for tokens, trained in zip(documents, masks):
        starts.append(len(stream))
        stream += tokens + [shards.end]
        mask += trained
    assert shards.tokens == stream and shards.starts == starts and shards.count > 2
    assert shards.mask == (mask if any(0 in trained for trained in masks) else [])


def check_rows(shards: Shards, documents: list, masks: list) -> None:
    """Pieces, in any order, none in two rows; the first token of each and what fills a row is no target."""
    expected = []
    for tokens, trained in zip(documents, masks):
        for begin in range(0, len(tokens) + 1, ROW):
            piece, targets = (tokens + [shards.end])[begin:begin + ROW], trained[begin:begin + ROW]
            expected.append((piece, [0] + targets[1:]))
    found = []
    for begin, following in zip(shards.starts, shards.starts[1:] + [len(shards.tokens)]):
        end = min(following, begin // ROW * ROW + ROW)
        found.append((shards.tokens[begin:end], shards.mask[begin:end]))
    assert all(row == ROW for row in shards.rows) and len(shards.tokens) % ROW == 0 and len(found) == len(expected)
    filled = sum(len(piece) for piece, _ in found) - sum(len(piece) for piece, _ in expected)
    for piece, targets in found:  # the last of a row is followed by its padding
        while (piece, targets) not in expected:
            assert piece[-1] == shards.end and targets[-1] == 0
            piece, targets, filled = piece[:-1], targets[:-1], filled - 1
        expected.remove((piece, targets))
    assert not expected and filled == 0, filled


def sources_of(files: list) -> list:
    found = []
    for path, lines in files:
        offset = 0
        for number, line in enumerate(path.read_bytes().splitlines(keepends=True) if lines else [b""], 1):
            found.append((str(path), number if lines else 0, offset))
            offset += len(line)
    return found


def check_built(program: Program, root: pathlib.Path, tokenizer: str, wide: bool, encoded) -> int:
    """Texts, lines of JSON and prompts, packed and not; how many shards were read."""
    rng, count = random.Random(3), 0
    plain, lines, asked = texts(rng, 12), texts(rng, 150), list(zip(texts(rng, 100), texts(rng, 100)))
    for i, text in enumerate(plain):
        (root / f"{i:02}.txt").write_bytes(text.encode())
    (root / "lines.jsonl").write_text("".join(json.dumps({"text": text, "id": i}) + "\n" for i, text in enumerate(lines)))
    (root / "asked.jsonl").write_text("".join(json.dumps({"q": q, "a": a}, ensure_ascii=False) + "\n" for q, a in asked))
    files = [(root / f"{i:02}.txt", False) for i in range(len(plain))] + [(root / "lines.jsonl", True)]
    both = encoded([*plain, *lines])
    prompts, answers = encoded([q for q, _ in asked]), encoded([a for _, a in asked])
    pairs = [q + a for q, a in zip(prompts, answers)]
    learnt = [[0] * len(q) + [1] * (len(a) + 1) for q, a in zip(prompts, answers)]
    assert program.decode(tokenizer, sum(both, [])) == "".join([*plain, *lines])
    for name, inputs, options, documents, masks, size in [
            ("text", files, [], both, [[1] * (len(tokens) + 1) for tokens in both], [*plain, *lines]),
            ("asked", [(root / "asked.jsonl", True)], ["--prompt-field", "q", "--response-field", "a"], pairs, learnt, [q + a for q, a in asked])]:
        for packed in (False, True):
            out = root / f"{name}-{packed}-{wide}"
            program.run("data", "build", *[path for path, _ in inputs], "--output", out, "--tokenizer", tokenizer, "--shard-tokens", 20 * ROW,
                        *options, *(["--pack", "best-fit", "--context", ROW] if packed else []))
            shards = Shards(out, wide)
            (check_rows if packed else check_stream)(shards, documents, masks)
            assert shards.text_bytes == sum(len(text.encode()) for text in size)
            sources = sources_of(inputs)
            assert shards.sources == sources if not packed else set(shards.sources) == set(sources)
            count += shards.count
    return count


def check_imported(program: Program, root: pathlib.Path, tokenizer: str, documents: list, end: int) -> int:
    """The formats of llm.c, NumPy and Megatron-LM; how many shards were read."""
    count = 0
    stream = sum(([*tokens, end] for tokens in documents), [])
    lengths = [len(tokens) + 1 for tokens in documents]
    small = numpy.array(stream, dtype=numpy.uint16)
    (root / "llmc.bin").write_bytes(struct.pack("<256i", 20240520, 1, len(stream), *[0] * 253) + small.tobytes())
    numpy.save(root / "flat.npy", small)
    (root / "megatron.bin").write_bytes(small.astype(numpy.int32).tobytes())
    pointers = numpy.concatenate([[0], numpy.cumsum(lengths)[:-1]]).astype(numpy.int64) * 4
    (root / "megatron.idx").write_bytes(b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, 4, len(lengths), len(lengths) + 1) +
                                        numpy.array(lengths, numpy.int32).tobytes() + pointers.tobytes() +
                                        numpy.arange(len(lengths) + 1, dtype=numpy.int64).tobytes())
    for name in ("llmc.bin", "flat.npy", "megatron.bin"):
        program.run("data", "import", root / name, "--output", root / f"{name}-out", "--tokenizer", tokenizer, "--shard-tokens", 1000)
        shards = Shards(root / f"{name}-out", False)
        assert shards.tokens == stream and shards.starts == numpy.concatenate([[0], numpy.cumsum(lengths)[:-1]]).tolist(), name
        assert shards.sources == [(str(root / name), -1, start) for start in shards.starts] and shards.end == end and not shards.mask
        count += shards.count
    return count


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    program = Program(parser.parse_args().program)
    with tempfile.TemporaryDirectory() as scratch:
        root = pathlib.Path(scratch)
        (root / "learn.txt").write_bytes("\n".join(texts(random.Random(1), 400)).encode())
        program.run("tokenizer", "train", root / "learn.txt", "--vocab", 600, "--output", root / "narrow.json")
        narrow, wide = str(root / "narrow.json"), wide_ranks(root / "wide.tiktoken")
        for tokenizer in (narrow, wide):
            found = check_built(program, root, tokenizer, tokenizer == wide, lambda given: program.encode(tokenizer, given))
            print(f"{pathlib.Path(tokenizer).name}: {found} built shards are read by h5py as they should be")
        documents = program.encode(narrow, texts(random.Random(5), 100))
        ends = [token["id"] for token in json.loads((root / "narrow.json").read_text())["added_tokens"] if token["content"] == "<|endoftext|>"]
        print(f"{check_imported(program, root, narrow, documents, ends[0])} imported shards likewise; h5py {h5py.__version__}, "
              f"HDF5 {h5py.version.hdf5_version}, numpy {numpy.__version__}")


if __name__ == "__main__":
    main()
