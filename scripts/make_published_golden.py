#!/usr/bin/env python3
"""Writes test/train/goldens/: a tiny model of each published layout as transformers saves it, and what it makes of some tokens.

    pip install torch==2.15.0 transformers==5.23.0 sentencepiece protobuf && scripts/make_published_golden.py     the goldens in the repository
    scripts/make_published_golden.py --check build/trireme      each of them goes through the program, which begins a run with it on
                                                                one rank and on a mesh of eight, and back into transformers: as f32
                                                                in one file, as bf16 in several, and with a larger vocabulary, of
                                                                a byte-level BPE or SentencePiece tokenizer
"""
import argparse
import filecmp
import gzip
import json
import pathlib
import shutil
import subprocess
import tempfile

import tokenizers
import torch
import transformers
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM

GOLDENS = pathlib.Path(__file__).resolve().parent.parent / "test" / "train" / "goldens"
LLAMA2 = GOLDENS.parent.parent / "data" / "goldens" / "llama2.model.gz"
COMMON = dict(vocab_size=260, tie_word_embeddings=True, bos_token_id=256, eos_token_id=256)
LLAMA = dict(COMMON, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
             max_position_embeddings=64, rms_norm_eps=1e-5)
SCALED = dict(rope_type="llama3", factor=4.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=32)


def configs() -> dict:
    t = transformers
    return {
        "gpt2": t.GPT2Config(**COMMON, n_embd=32, n_layer=2, n_head=4, n_positions=64, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0),
        "llama": t.LlamaConfig(**dict(LLAMA, tie_word_embeddings=False), rope_theta=500.0, rope_scaling=SCALED),
        "mistral": t.MistralConfig(**dict(LLAMA, tie_word_embeddings=False), sliding_window=5),
        "qwen2": t.Qwen2Config(**LLAMA, use_sliding_window=False),
        "qwen3": t.Qwen3Config(**LLAMA, head_dim=24, use_sliding_window=False),
    }


def model_of(config):
    torch.manual_seed(1)
    config._attn_implementation = "eager"
    model = AutoModelForCausalLM.from_config(config).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            norm = parameter.dim() == 1 and ("norm" in name or "ln_" in name) and name.endswith("weight")
            parameter.copy_((1 if norm else 0) + 0.1 * torch.randn(parameter.shape))
    return model


def write() -> None:
    for name, config in configs().items():
        directory = GOLDENS / name
        shutil.rmtree(directory, ignore_errors=True)
        model = model_of(config)
        model.save_pretrained(directory, safe_serialization=True)
        (directory / "generation_config.json").unlink(missing_ok=True)
        tokens = torch.randint(0, 260, (2, 40), generator=torch.Generator().manual_seed(2))
        with torch.no_grad():
            logits = model(tokens).logits.float()
        save_file({"tokens": tokens.float(), "logits": logits.contiguous()}, directory / "expected.safetensors")
        print(f"{name}: {sum(p.numel() for p in model.parameters())} parameters, transformers {transformers.__version__}")


def run(*words) -> str:
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(map(str, words))}\n{done.stdout}{done.stderr}")
    return done.stdout


def likelihoods_apart(program: str, root: pathlib.Path, run_name: str, config: pathlib.Path, model, encode) -> float:
    """The largest difference between what `eval` says of choices and what transformers' logits, in double precision, do."""
    texts = [("the quick", [" brown fox", " red", " yellow hen of the farm"]), ("a much longer context than the one before", ["!", " is it"])]
    lines = [json.dumps({"context": context, "choices": choices, "answer": 0}) for context, choices in texts]
    (root / "questions.jsonl").write_text("\n".join(lines))
    run(program, "eval", config, "--choices", root / "questions.jsonl", "--json", root / "found.json", "--set",
        f"train.name={run_name}", "--set", "kernels.dtype=f32")
    found = json.loads((root / "found.json").read_text())["choices"][0]["log_likelihoods"]
    apart = 0.0
    for (context, choices), of_question in zip(texts, found):
        for choice, ours in zip(choices, of_question):
            ids, first = encode(context + choice), len(encode(context))
            with torch.no_grad():
                losses = model.double()(torch.tensor([ids])).logits[0].log_softmax(-1)
            theirs = sum(losses[t - 1, ids[t]].item() for t in range(first, len(ids)))
            apart = max(apart, abs(ours - theirs))
    return apart


TEXTS = ["caf\u00e9 \u4f60", "It's 2024; they'll  row\n\n  the oars!", "  a\tb \U0001f600\U0001f469\u200d\U0001f4bb e\u0301", "HTTPServer IT'S 1234567 x==y", ""]
PATTERNS = {"gpt2": "gpt2", "llama": "llama3", "mistral": "", "qwen2": "qwen2", "qwen3": "o200k"}  # mistral: SentencePiece


def model_of(program, golden) -> str:
    """The model: section of the config that the program prints for it."""
    return run(program, "model", "config", golden).split("data:\n")[0]


def settings(root: pathlib.Path, golden: pathlib.Path, corpus: str, tokenizer, model: str) -> str:
    """A learning rate of nothing leaves the weights as they came."""
    return (model + f"data:\n  train: [{root}/{corpus}/train-*.h5]\n  tokenizer: {tokenizer}\n"
            f"train:\n  init_from: {golden}\n  runs: {root}/runs\n  steps: 1\n  batch: 4\n  microbatch: 2\n  lr: 1e-30\n"
            "  warmup: 0\n  decay: 0\n")


def loaded(directory: pathlib.Path, **options):
    return AutoModelForCausalLM.from_pretrained(directory, attn_implementation="eager", **options).eval()


def logits_apart(first, second) -> float:
    tokens = torch.arange(40)[None]
    with torch.no_grad():
        return (first(tokens).logits.float() - second(tokens).logits.float()).abs().max().item()


def check_rounded(program: str, root: pathlib.Path, name: str, before) -> tuple:
    """bf16 in several files: whether the weights are the golden's, rounded; how far the logits are from the golden's."""
    out = root / f"{name}-bf16"
    run(program, "model", "export", root / "runs" / f"{name}1", out, "--dtype", "bf16", "--file-size", "0.02MB")
    files = sorted(json.loads((out / "model.safetensors.index.json").read_text())["weight_map"].values())
    after = loaded(out, dtype="auto")
    rounded = all(after.state_dict()[key].dtype == torch.bfloat16 and torch.equal(a.bfloat16(), after.state_dict()[key])
                  for key, a in before.state_dict().items())
    rounded = rounded and len(set(files)) > 1 and not (out / "model.safetensors").exists()
    return rounded, logits_apart(before, after.float()), len(set(files))


def check_tokenizer(program: str, root: pathlib.Path, name: str, golden: pathlib.Path) -> tuple:
    """A run with its own vocabulary: whether ids and texts are the program's, and how far log-likelihoods are."""
    pattern, corpus = PATTERNS[name], f"corpus-{name}"
    tokenizer = root / f"{name}.{'json' if pattern else 'model'}"
    if pattern:
        (root / "words.txt").write_text("\n".join(TEXTS * 3) + (root / "text.txt").read_text() + pathlib.Path(__file__).read_text())
        run(program, "tokenizer", "train", root / "words.txt", "--vocab", 600, "--pattern", pattern, "--output", tokenizer)
    else:
        tokenizer.write_bytes(gzip.decompress(LLAMA2.read_bytes()))
    vocab = 600 if pattern else 1000
    run(program, "data", "build", pathlib.Path(__file__), root / "text.txt", "--output", root / corpus, "--tokenizer", tokenizer)
    model = model_of(program, golden).replace("vocab: 260\n", f"vocab: {vocab}\n")
    config, out = root / "vocabulary.yaml", root / f"{name}-vocabulary"
    config.write_text(settings(root, golden, corpus, tokenizer, model))
    run(program, "train", config, "--set", f"train.name={name}v")
    run(program, "model", "export", root / "runs" / f"{name}v", out, "--dtype", "f32", "--file-size", "0.02MB")
    theirs = {"mistral": transformers.LlamaTokenizer, "qwen2": transformers.PreTrainedTokenizerFast}.get(
        name, transformers.AutoTokenizer).from_pretrained(out)  # as the export advises if AutoTokenizer would read another
    encode = lambda text: theirs(text, add_special_tokens=False)["input_ids"]
    same = theirs(TEXTS[0])["input_ids"] == encode(TEXTS[0])
    for text in TEXTS:
        text = text if pattern else text.lstrip(" ")  # which LlamaTokenizer takes for SentencePiece's own space in front
        ours = [int(word) for word in run(program, "tokenizer", "encode", tokenizer, text).split()]
        same = same and encode(text) == ours and theirs.decode(ours) == run(program, "tokenizer", "decode", tokenizer, *ours)[:-1]
    likely = likelihoods_apart(program, root, f"{name}v-eval", config, loaded(out), encode)
    return same, likely


def check(program: str) -> None:
    program = str(pathlib.Path(program).resolve())
    wrong = 0
    with tempfile.TemporaryDirectory() as scratch:
        root = pathlib.Path(scratch)
        (root / "text.txt").write_text("the quick brown fox jumps over the lazy dog. " * 400)
        run(program, "data", "build", root / "text.txt", "--output", root / "corpus", "--tokenizer", "bytes")
        for name in configs():
            golden = GOLDENS / name
            (root / "config.yaml").write_text(settings(root, golden, "corpus", "bytes", model_of(program, golden)))
            exports = []
            for ranks, mesh in ((1, []), (8, ["--set", "parallel.tp=2", "--set", "parallel.pp=2"])):
                launcher = ["mpirun", "--oversubscribe", "--allow-run-as-root", "-n", ranks] if ranks > 1 else []
                run(*launcher, program, "train", root / "config.yaml", *mesh, "--set", f"train.name={name}{ranks}")
                exports.append(root / f"{name}{ranks}-out")
                run(program, "model", "export", root / "runs" / f"{name}{ranks}", exports[-1], "--dtype", "f32")
            same = filecmp.cmp(exports[0] / "model.safetensors", exports[1] / "model.safetensors", shallow=False)
            before, after = loaded(golden), loaded(exports[0])
            kept = all(torch.equal(a, after.state_dict()[key]) for key, a in before.state_dict().items())
            apart = logits_apart(before, after)
            rounded, rounding, files = check_rounded(program, root, name, before)
            spelled = transformers.AutoTokenizer.from_pretrained(exports[0])(TEXTS[0])["input_ids"] == list(TEXTS[0].encode())
            likely = likelihoods_apart(program, root, f"{name}0", root / "config.yaml", before, lambda text: list(text.encode()))
            alike, likely_too = check_tokenizer(program, root, name, golden)
            wrong += not (kept and same and apart == 0 and rounded and spelled and alike and max(likely, likely_too) < 1e-4)
            print(f"{name}: {type(after).__name__}, weights {'equal' if kept else 'DIFFER'}, logits {apart:.1e} apart, from dp=2 tp=2 "
                  f"pp=2 {'the same bytes' if same else 'OTHER BYTES'}, tokens {'equal' if spelled else 'DIFFER'}, log-likelihoods {likely:.1e} nats apart\n"
                  f"  as bf16 in {files} files {'the same, rounded' if rounded else 'OTHER WEIGHTS'}, logits {rounding:.1e} apart; with "
                  f"{PATTERNS[name] + chr(39) + 's words' if PATTERNS[name] else 'SentencePiece'} tokens "
                  f"{'equal' if alike else 'DIFFER'}, log-likelihoods {likely_too:.1e} nats apart", flush=True)
    print(f"transformers {transformers.__version__}, torch {torch.__version__}, tokenizers {tokenizers.__version__}")
    raise SystemExit(1 if wrong else 0)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", metavar="PROGRAM")
    arguments = parser.parse_args()
    check(arguments.check) if arguments.check else write()
