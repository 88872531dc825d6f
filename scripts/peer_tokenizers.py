#!/usr/bin/env python3
"""Compares the program's speed with tokenizers' and tiktoken's, on the same text and machine, in one run: training a vocabulary, and
encoding by one thread with it. Ids are compared, too.

    pip install tokenizers==0.23.3 tiktoken==0.14.0 && scripts/peer_tokenizers.py build/trireme TEXT [--vocab 32000] [--pattern llama3]
"""
import argparse
import json
import os
import pathlib
import re
import subprocess
import tempfile
import time

os.environ["TOKENIZERS_PARALLELISM"] = "true"  # for training; encode() of one text takes one thread anyway

import tiktoken  # noqa: E402
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers  # noqa: E402

PATTERNS = {
    "gpt2": r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
    "llama3": r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    "qwen2": r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
}
PIECE = 1_000_000  # characters of a text that is encoded at a time: lines' ends are never cut from what is in front of them


def pieces_of(text: str) -> list:
    pieces, begin = [], 0
    while begin < len(text):
        end = text.find("\n", begin + PIECE)
        while end > 0 and not text[end - 1].isalnum():
            end = text.find("\n", end + 1)
        end = len(text) if end < 0 else end
        pieces.append(text[begin:end])
        begin = end
    return pieces


def seconds(work):
    begin = time.perf_counter()
    result = work()
    return time.perf_counter() - begin, result


def bytes_of_alphabet() -> dict:
    """The character by which tokenizer.json writes each byte, and the byte."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in plain]
    return {chr(byte): byte for byte in plain} | {chr(256 + i): byte for i, byte in enumerate(others)}


def train_peer(path: pathlib.Path, vocab: int, pattern: str):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(PATTERNS[pattern]), behavior="isolated", invert=False),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=vocab, special_tokens=["<|endoftext|>"], show_progress=False,
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train([str(path)], trainer)
    return tokenizer


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("text", type=pathlib.Path)
    parser.add_argument("--vocab", type=int, default=32000)
    parser.add_argument("--pattern", choices=PATTERNS, default="llama3")
    parser.add_argument("--skip-training", action="store_true", help="of tokenizers, which is slow")
    arguments = parser.parse_args()
    text = arguments.text.read_bytes().decode()
    megabytes = arguments.text.stat().st_size / 1e6
    with tempfile.TemporaryDirectory() as scratch:
        path = pathlib.Path(scratch) / "tokenizer.json"
        ours, _ = seconds(lambda: subprocess.run(
            [arguments.program, "tokenizer", "train", arguments.text, "--vocab", str(arguments.vocab), "--pattern", arguments.pattern,
             "--output", path], check=True, capture_output=True))
        print(f"{megabytes:.1f} MB, {os.cpu_count()} cores")
        print(f"train {arguments.vocab} entries: trireme {ours:.1f} s", end="", flush=True)
        if not arguments.skip_training:
            theirs, _ = seconds(lambda: train_peer(arguments.text, arguments.vocab, arguments.pattern))
            print(f", tokenizers {theirs:.1f} s: {theirs / ours:.1f} times as long", end="")
        print()

        pieces = pieces_of(text)
        hugging_face = Tokenizer.from_file(str(path))
        hugging_face.encode_special_tokens = True
        byte_of = bytes_of_alphabet()
        vocabulary = json.loads(path.read_text())["model"]["vocab"]
        ranks = {bytes(byte_of[c] for c in token): rank for token, rank in vocabulary.items() if token != "<|endoftext|>"}
        openai = tiktoken.Encoding("ours", pat_str=PATTERNS[arguments.pattern], mergeable_ranks=ranks, special_tokens={})
        slow, expected = seconds(lambda: [hugging_face.encode(piece).ids for piece in pieces])
        middle, also = seconds(lambda: [openai.encode_ordinary(piece) for piece in pieces])
        bench = subprocess.run([arguments.program, "bench", "tokenizer", path, arguments.text, "--rounds", "1"], check=True,
                               capture_output=True, text=True).stdout
        fast = float(re.search(r"the first time ([\d.]+)", bench).group(1))
        print(f"encode by one thread: tokenizers {megabytes / slow:.2f} MB/s, tiktoken {megabytes / middle:.2f}, trireme {fast:.1f}: "
              f"{fast * slow / megabytes:.1f} and {fast * middle / megabytes:.1f} times as fast")
        lines = "".join(json.dumps(piece) + "\n" for piece in pieces)
        out = subprocess.run([arguments.program, "tokenizer", "encode", path, "--json-lines"], input=lines.encode(), check=True,
                             capture_output=True).stdout.decode().splitlines()
        same = [[int(word) for word in line.split()] for line in out]
        print(f"ids: {'equal to tokenizers' if same == expected else 'DIFFER FROM tokenizers'}',"
              f" {'and' if same == also else 'NOT'} to tiktoken's, {sum(map(len, same))} of them")


if __name__ == "__main__":
    main()
