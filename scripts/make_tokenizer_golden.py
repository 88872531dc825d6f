#!/usr/bin/env python3
"""Writes test/data/goldens/: a byte-level BPE trained by Hugging Face's tokenizers and what it makes of many texts.

    pip install tokenizers && scripts/make_tokenizer_golden.py

Characters come from blocks that were complete in Unicode 13, so that libraries of different years agree on their classes.
"""
import json
import pathlib
import random

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

GOLDENS = pathlib.Path(__file__).resolve().parent.parent / "test" / "data" / "goldens"
BLOCKS = [
    (0x20, 0x7E), (0x20, 0x7E), (0x61, 0x7A), (0x30, 0x39), (0xA0, 0xFF), (0x391, 0x3A1), (0x410, 0x44F), (0x5D0, 0x5EA),
    (0x627, 0x64A), (0x660, 0x669), (0x905, 0x94D), (0xE01, 0xE3A), (0x1100, 0x1112), (0x2000, 0x206F), (0x2150, 0x218B),
    (0x2460, 0x24FF), (0x3041, 0x3096), (0x4E00, 0x4E80), (0xAC00, 0xAC80), (0x300, 0x36F), (0x1F600, 0x1F64F), (0x1D400, 0x1D4FF),
]
SPACES = [" ", " ", " ", "  ", "\n", "\n\n", "\t", "\r\n", "\u00a0", "\u0085", "\u1680", "\u180e", "\u2003", "\u2028", "\u3000", "\x0b", "\x1c"]
WORDS = ("the of and a to in is it's we'll they're I'd you've don't 'twas int return 2024 3.14 template<class T> std::vector "
         "caf\u00e9 na\u00efve \u00fcber \u041c\u043e\u0441\u043a\u0432\u0430 \u4f60\u597d \u3053\u3093\u306b\u3061\u306f 'S 'RE \u2019s rowing oars").split()


def random_text(rng: random.Random) -> str:
    parts = []
    for _ in range(rng.randrange(0, 24)):
        kind = rng.random()
        if kind < 0.4:
            parts.append(rng.choice(WORDS))
        elif kind < 0.65:
            parts.append(rng.choice(SPACES))
        else:
            low, high = rng.choice(BLOCKS)
            parts.append("".join(chr(rng.randint(low, high)) for _ in range(rng.randrange(1, 6))))
        if rng.random() < 0.4:
            parts.append(" ")
    return "".join(parts)


def main() -> None:
    rng = random.Random(20)
    corpus = [" ".join(rng.choice(WORDS) for _ in range(200)) for _ in range(20)] + [random_text(rng) for _ in range(300)]
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=480, special_tokens=["<|endoftext|>"], show_progress=False,
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator(corpus, trainer)
    GOLDENS.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(GOLDENS / "tokenizer.json"), pretty=False)
    cases = []
    for text in ["", " ", "  ", "\n", "a", "Hello, world!", "   leading", "trailing   ", "a \n b"] + [random_text(rng) for _ in range(300)]:
        tokens = tokenizer.encode(text).ids
        assert tokenizer.decode(tokens) == text
        cases.append({"text": text, "tokens": tokens})
    lines = ",\n".join(json.dumps(case, separators=(",", ":")) for case in cases)
    (GOLDENS / "tokenizer_cases.json").write_text(f"[\n{lines}\n]\n")


if __name__ == "__main__":
    main()
