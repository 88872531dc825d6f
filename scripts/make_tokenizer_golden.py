#!/usr/bin/env python3
"""Writes test/data/goldens/: small vocabularies trained by Hugging Face's tokenizers, one for each published pattern, and by
SentencePiece, and what these libraries and tiktoken make of texts.

    pip install tokenizers==0.23.3 tiktoken==0.14.0 sentencepiece==0.2.3
    scripts/make_tokenizer_golden.py                                   the goldens in the repository
    scripts/make_tokenizer_golden.py --check build/trireme 100000      holds the program's ids against theirs on so many random
                                                                       texts, and on every character in the middle of others
    scripts/make_tokenizer_golden.py --only llama2 unigram ...         these alone

--check also compares the decoded texts, takes vocabularies in which the end of each word shows (gpt2-edges), and those
that the program trains itself (gpt2-own). The goldens' characters come from blocks that were complete in Unicode 13; those of
--check are all scalar values, assigned or not, of which tokenizers 0.23.3 and tiktoken 0.14.0 know Unicode 16's.
"""
import argparse
import base64
import gzip
import json
import pathlib
import random
import subprocess
import sys
import tempfile

import regex
import sentencepiece
import tiktoken
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

GOLDENS = pathlib.Path(__file__).resolve().parent.parent / "test" / "data" / "goldens"
BLOCKS = [
    (0x20, 0x7E), (0x20, 0x7E), (0x61, 0x7A), (0x30, 0x39), (0xA0, 0xFF), (0x391, 0x3A1), (0x410, 0x44F), (0x5D0, 0x5EA),
    (0x627, 0x64A), (0x660, 0x669), (0x905, 0x94D), (0xE01, 0xE3A), (0x1100, 0x1112), (0x2000, 0x206F), (0x2150, 0x218B),
    (0x2460, 0x24FF), (0x3041, 0x3096), (0x4E00, 0x4E80), (0xAC00, 0xAC80), (0x300, 0x36F), (0x1F600, 0x1F64F), (0x1D400, 0x1D4FF),
]
SPACES = [" ", " ", " ", "  ", "\n", "\n\n", "\t", "\r\n", "\u00a0", "\u0085", "\u1680", "\u180e", "\u2003", "\u2028", "\u3000", "\x0b", "\x1c"]
WORDS = ("the of and a to in is it's we'll they're I'd you've don't 'twas int return 2024 3.14 template<class T> std::vector "
         "caf\u00e9 na\u00efve \u00fcber \u041c\u043e\u0441\u043a\u0432\u0430 \u4f60\u597d \u3053\u3093\u306b\u3061\u306f 'S 'RE \u2019s rowing oars "
         "IT'S HTTPServer camelCase 1234567 !!! /// //path/to ...\n").split(" ")
FIXED = ["", " ", "  ", "\n", "a", "Hello, world!", "   leading", "trailing   ", "a \n b", "'\u017f it'\u017f", "x\r\n\r\ny", "\t\t!\n\n",
         "\U0001f469\u200d\U0001f469\u200d\U0001f467\u200d\U0001f466\U0001f3fd", "\u0645\u0631\u062d\u0628\u0627 \u05e9\u05dc\u05d5\u05dd",
         "e\u0301 \u1100\u1161\u11a8 \u212b", "\x00\x01\x02\x7f", "1 22 333 4444 55555", "don't DON'T Don't", "<think>so</think> <tool>"]


SYMBOLS = ["</s><s><unk> a </s>", "<0x0A><0x41>", "\u2581", "a\u2581\u2581b \u2581", "<tool>x <tool> <|im_end|>", "a\n\n\tb\n   c\n",
           "\ufeffa\u200bb\u00ad", "\u05e9\u05dc\u05d5\u05dd, \u0645\u0631\u062d\u0628\u0627\u064b!", "\uff28\uff49\u3000\u00bd\ufb01", "Rows  of   spaces    end ",
           "\U0001f469\u200d\U0001f4bb \U0001f1eb\U0001f1f7 \ufffd\U0010ffff", "<TOOL> aA Aa  \n A"]
LONG = [("a", 1_000_000), (" ", 200_000), ("\n", 100_000), ("\u4f60", 100_000), ("The oars, it's 2024;  you've rowed!\n\tint x = 3;\n", 6_000), ("....we'lll you'lll ", 4_000)]


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


def any_character(rng: random.Random) -> str:
    """Of all scalar values, or of the planes that have most of the assigned ones."""
    point = rng.randrange(0x110000 if rng.random() < 0.5 else 0x20000)
    return chr(point) if not 0xD800 <= point < 0xE000 else any_character(rng)


def wild_text(rng: random.Random) -> str:
    return "".join(random_text(rng)[:20] + "".join(any_character(rng) for _ in range(rng.randrange(4))) for _ in range(rng.randrange(1, 6)))


def every_character() -> list:
    """Each scalar value between letters, digits, spaces, its like and marks of two classes."""
    points = [point for point in range(0x110000) if not 0xD800 <= point < 0xE000]
    around = [f"a{c}1{c} {c}{c}'s!{c}\ne\u0301{c}\u0323\n" for c in map(chr, points)]
    return ["".join(around[i:i + 16]) for i in range(0, len(around), 16)]


def tied_text(rng: random.Random, size: int) -> str:
    """Of what can be cut several ways of one score, as a unigram model sees it: "..." and "." or "." and "..."."""
    parts = []
    while sum(map(len, parts)) < size:
        parts.append(rng.choice(["....", ". ...", "we'lll", "you'lll ", " it'sss", "lllll", "12....", "ooo", "eee...", "the the", "ingg", "\n", "a"]))
    return "".join(parts)


def hostile_texts() -> list:
    """Long runs of one thing, and of things that patterns stumble over."""
    rng = random.Random(22)
    return ["".join(random_text(rng) for _ in range(4000)), "a" * 1_000_000, " " * 200_000, "\n" * 100_000, "1" * 100_000, "'s" * 50_000, "\u4f60" * 100_000, "\U0001f600" * 50_000,
            "a\u0301" * 50_000, "".join(map(chr, range(1, 0x870))), "!?" * 50_000, " \n" * 50_000,
            *(tied_text(rng, size) for size in [100] * 400 + [1000] * 40 + [20_000] * 4 + [300_000])]


PATTERNS = {
    "llama3": r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    "qwen2": r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
}
TIKTOKEN = {
    "r50k": r"""'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s""",
    "cl100k": r"""'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s""",
    "o200k": "|".join([
        r"""[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?""",
        r"""[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?""",
        r"""\p{N}{1,3}""", r""" ?[^\s\p{L}\p{N}]+[\r\n/]*""", r"""\s*[\r\n]+""", r"""\s+(?!\S)""", r"""\s+"""]),
}


def corpus() -> list:
    rng = random.Random(20)
    return [" ".join(rng.choice(WORDS) for _ in range(200)) for _ in range(20)] + [random_text(rng) for _ in range(300)]


def empty(name: str, **vocabulary) -> Tokenizer:
    """GPT-2's, Llama 3's and Qwen's way of tokenizing."""
    tokenizer = Tokenizer(models.BPE(ignore_merges=name == "llama3", **vocabulary))
    if name == "gpt2":
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    else:
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
            pre_tokenizers.Split(Regex(PATTERNS[name]), behavior="isolated", invert=False),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    if name == "qwen2":
        tokenizer.normalizer = normalizers.NFC()
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def trained(name: str) -> Tokenizer:
    """With a vocabulary of 480."""
    tokenizer = empty(name)
    end = "<|end_of_text|>" if name == "llama3" else "<|endoftext|>"
    trainer = trainers.BpeTrainer(vocab_size=480, special_tokens=[end], show_progress=False,
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator(corpus(), trainer)
    if name == "qwen2":
        tokenizer.add_tokens([AddedToken(t, normalized=False, special=False) for t in ("<think>", "</think>", "<tool>")])
    return tokenizer


def ranks_for(pattern: str) -> dict:
    """A vocabulary of 480 of our own for tiktoken: the most frequent pair first, as its ranks are made."""
    words = [[bytes([b]) for b in word.encode()] for text in corpus() for word in regex.findall(pattern, text)]
    ranks = {bytes([b]): b for b in range(256)}
    while len(ranks) < 480:
        counts = {}
        for word in words:
            for pair in zip(word, word[1:]):
                counts[pair] = counts.get(pair, 0) + 1
        best = max(counts, key=lambda pair: (counts[pair], pair))
        ranks[best[0] + best[1]] = len(ranks)
        for word in words:
            i = 0
            while i + 1 < len(word):
                if (word[i], word[i + 1]) == best:
                    word[i:i + 2] = [best[0] + best[1]]
                i += 1
    return ranks


def edge_ranks() -> dict:
    """Each byte that ends a character with each that begins one: where a word ends shows in its ids."""
    few, trail, lead = b"a1 !\n's", range(0x80, 0xC0), range(0xC2, 0xF5)
    pairs = [bytes([end, begin]) for end in [*few, *trail] for begin in [*few, *lead]]
    return {token: rank for rank, token in enumerate([bytes([b]) for b in range(256)] + pairs)}


def edges(name: str) -> Tokenizer:
    """Those, as Hugging Face writes bytes."""
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    letters = dict(zip(plain + [b for b in range(256) if b not in plain], [*map(chr, plain), *map(chr, range(256, 512))]))
    ranks = {"".join(letters[b] for b in token): rank for token, rank in edge_ranks().items()}
    tokenizer = empty(name, vocab=ranks, merges=[(token[0], token[1]) for token in ranks if len(token) == 2])
    tokenizer.add_special_tokens(["<|endoftext|>"])
    return tokenizer


def own(program: str, pattern: str, path: pathlib.Path) -> Tokenizer:
    """Trained by the program on words of many scripts, some of which are frequent, and on random texts."""
    rng = random.Random(23)
    words = [" " + "".join(chr(rng.randint(*block)) for _ in range(rng.randrange(1, 6))) for block in BLOCKS * 12 for _ in range(20)]
    text = "".join("".join(rng.choice(words[:int(rng.paretovariate(0.6)) + 1]) for _ in range(40)) + wild_text(rng) + "\n" for _ in range(8000))
    path.with_suffix(".txt").write_text(text)
    subprocess.run([program, "tokenizer", "train", path.with_suffix(".txt"), "--vocab", "6000", "--output", path,
                    *(["--pattern", pattern] if pattern != "gpt2" else [])], check=True, capture_output=True)
    return Tokenizer.from_file(str(path))


SENTENCEPIECE = {
    "llama2": dict(model_type="bpe", vocab_size=1000, byte_fallback=True, normalization_rule_name="identity", split_digits=True,
                   allow_whitespace_only_pieces=True, remove_extra_whitespaces=False, user_defined_symbols=["<tool>", "<|im_end|>"]),
    "unigram": dict(model_type="unigram", vocab_size=1000),
    # Other settings of published models.
    "bare": dict(model_type="bpe", vocab_size=800, add_dummy_prefix=False, normalization_rule_name="nfkc", split_by_whitespace=False),
    "folded": dict(model_type="unigram", vocab_size=1200, byte_fallback=True, normalization_rule_name="nmt_nfkc_cf",
                   split_by_whitespace=False, user_defined_symbols=["<tool>", " a", "\n"], add_dummy_prefix=False),
}


IN_REPOSITORY = ["llama2", "unigram", "gpt2", "llama3", "qwen2", "r50k", "cl100k", "o200k"]


def sentences() -> list:
    """Our own prose, the words above, and lines that begin with spaces."""
    root = pathlib.Path(__file__).resolve().parent.parent
    lines = [line for name in ("README.md", "ARCHITECTURE.md", "LICENSE") for line in (root / name).read_text().splitlines()]
    rng = random.Random(20)
    lines += [" ".join(rng.choice(WORDS) for _ in range(40)) for _ in range(100)]
    return lines + ["    if (x) {", " \t return", "          deep"] * 20


def write_sentencepiece(name: str, path: pathlib.Path) -> None:
    sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(sentences()), model_prefix=str(path.with_suffix("")), num_threads=1,
                                             minloglevel=2, **SENTENCEPIECE[name])
    path.with_suffix(".vocab").unlink()


def write_cases(path: pathlib.Path, encode, decode, texts) -> None:
    cases = []
    for text in texts:
        tokens = encode(text)
        cases.append({"text": text, "tokens": tokens})
        if path.name.split("_")[0] in SENTENCEPIECE:
            cases[-1]["decoded"] = decode(tokens)
        elif decode is not None:
            assert decode(tokens) == text
    for unit, times in LONG if path.name.split("_")[0] in SENTENCEPIECE else []:
        tokens = encode(unit * times)
        cases.append({"unit": unit, "times": times, "count": len(tokens), "sum": sum((i % 1000 + 1) * t for i, t in enumerate(tokens))})
    lines = ",\n".join(json.dumps(case, separators=(",", ":")) for case in cases)
    path.write_text(f"[\n{lines}\n]\n")


def references(directory: pathlib.Path, only: list) -> list:
    """Writes each vocabulary into `directory`; (name, what the program calls it, the other library's encode, decode or None)."""
    found = []
    for name in SENTENCEPIECE:
        if only and name not in only:
            continue
        path = directory / f"{name}.model"
        write_sentencepiece(name, path)
        processor = sentencepiece.SentencePieceProcessor(model_file=str(path))
        found.append((name, path, processor.encode, processor.decode))
    for name in ("gpt2", "llama3", "qwen2"):
        if only and name not in only:
            continue
        tokenizer = trained(name)
        path = directory / f"{name}.json"
        tokenizer.save(str(path), pretty=False)
        tokenizer.encode_special_tokens = True
        decode = None if name == "qwen2" else tokenizer.decode
        found.append((name, path, (lambda t: lambda text: t.encode(text).ids)(tokenizer), decode))
    for name, pattern in TIKTOKEN.items():
        if only and name not in only:
            continue
        ranks = ranks_for(pattern)
        path = directory / f"{name}.tiktoken"
        path.write_text("".join(f"{base64.b64encode(token).decode()} {rank}\n" for token, rank in ranks.items()))
        encoding = tiktoken.Encoding(name, pat_str=pattern, mergeable_ranks=ranks, special_tokens={"<|endoftext|>": 480})
        found.append((name, f"{path}@{name}", encoding.encode_ordinary, encoding.decode))
    return found


def checked_only(directory: pathlib.Path, only: list, program: str) -> list:
    """Likewise, of vocabularies that the repository does not hold."""
    found = []

    def add(name: str, tokenizer: Tokenizer) -> None:
        tokenizer.encode_special_tokens = True
        found.append((name, directory / f"{name}.json", lambda text: tokenizer.encode(text).ids, tokenizer.decode))
    for pattern in ("gpt2", "llama3", "qwen2", "r50k", "cl100k", "o200k"):
        name = f"{pattern}-edges"
        if only and name not in only:
            continue
        if pattern in TIKTOKEN:
            path = directory / f"{name}.tiktoken"
            path.write_text("".join(f"{base64.b64encode(token).decode()} {rank}\n" for token, rank in edge_ranks().items()))
            encoding = tiktoken.Encoding(name, pat_str=TIKTOKEN[pattern], mergeable_ranks=edge_ranks(), special_tokens={})
            found.append((name, f"{path}@{pattern}", encoding.encode_ordinary, encoding.decode))
        else:
            edges(pattern).save(str(directory / f"{name}.json"))
            add(name, edges(pattern))
    for pattern in ("gpt2", "o200k", "qwen2"):
        if not only or f"{pattern}-own" in only:
            add(f"{pattern}-own", own(program, pattern, directory / f"{pattern}-own.json"))
            assert len(json.loads((directory / f"{pattern}-own.json").read_text())["model"]["vocab"]) > 4000
    return found


def run(program: str, command: str, called: str, given: str) -> str:
    """One text a line, so that encoding gives one line of ids for each."""
    options = ["--json-lines"] if command == "encode" else []
    return subprocess.run([program, "tokenizer", command, called, *options], input=given.encode(), check=True,
                          stdout=subprocess.PIPE).stdout.decode()


def newer_marks() -> set:
    """Marks that tokenizers' normal form, Unicode 13's, does not put in order."""
    marks = regex.findall(r"[^\p{ccc=0}\p{ccc=1}]", "".join(chr(point) for point in range(0x110000) if not 0xD800 <= point < 0xE000))
    return {mark for mark in marks if normalizers.NFC().normalize_str(mark + "\u0334")[-1] == "\u0334"}


def differing(program: str, name: str, called: str, encode, texts: list) -> tuple:
    """The texts of other ids, and the ids."""
    lines = run(program, "encode", called, "".join(json.dumps(text) + "\n" for text in texts)).splitlines()
    assert len(lines) == len(texts), (name, len(lines), len(texts))
    wrong = []
    for text, line in zip(texts, lines):
        ours, theirs = [int(word) for word in line.split()], encode(text)
        if ours != theirs:
            wrong.append(text)
    return wrong, lines


def check_one(program: str, name: str, called: str, encode, texts: list) -> bool:
    composed = name in ("qwen2", "qwen2-edges")
    newer = newer_marks() if composed else set()
    wrong, lines = differing(program, name, called, encode, texts)
    excused = [text for text in wrong if newer & set(text)]
    wrong = [text for text in wrong if not newer & set(text)]
    without = ["".join(c for c in text if c not in newer) for text in excused]
    wrong += differing(program, name, called, encode, without)[0]
    for text in wrong[:5]:
        print(f"{name}: differs on {text[:60]!r}")
    report = f"{name}: {len(texts)} texts, {len(wrong)} differ"
    report += f", {len(excused)} only for marks newer than tokenizers' normal form" if excused else ""
    if name not in SENTENCEPIECE:  # bytes decode across texts, so all texts at once
        kept = [(text, line) for text, line in zip(texts, lines) if not newer & set(text)]
        expected = "".join(normalizers.NFC().normalize_str(text) if composed else text for text, _ in kept)
        same = run(program, "decode", called, " ".join(line for _, line in kept)) == expected + "\n"
        report += ", decoded as they were" if same else ", DECODED OTHERWISE"
        wrong += [] if same else ["decoded"]
    print(report, flush=True)
    return not wrong


def check(program: str, count: int, only: list) -> None:
    rng = random.Random(7)
    texts = FIXED + SYMBOLS + [(wild_text if i % 2 else random_text)(rng) for i in range(count)] + hostile_texts()
    with tempfile.TemporaryDirectory() as scratch:
        directory = pathlib.Path(scratch)
        right = [check_one(program, name, str(called), encode, texts + (every_character() if name.endswith("-edges") else []))
                 for name, called, encode, _ in references(directory, only) + checked_only(directory, only, program)]
    sys.exit(0 if all(right) else 1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", nargs=2, metavar=("PROGRAM", "TEXTS"))
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME")
    arguments = parser.parse_args()
    if arguments.check:
        check(arguments.check[0], int(arguments.check[1]), arguments.only)
    GOLDENS.mkdir(parents=True, exist_ok=True)
    rng = random.Random(21)
    texts = FIXED + [random_text(rng) for _ in range(120)] + [tied_text(rng, 60) for _ in range(20)]
    for name, path, encode, decode in references(GOLDENS, arguments.only or IN_REPOSITORY):
        if name in SENTENCEPIECE:
            path.with_suffix(".model.gz").write_bytes(gzip.compress(path.read_bytes(), mtime=0))
            path.unlink()
        write_cases(GOLDENS / f"{name}_cases.json", encode, decode, texts + (SYMBOLS if name in SENTENCEPIECE else []))


if __name__ == "__main__":
    main()
