#!/usr/bin/env python3
"""Converts an exported model directory to GGUF, the format of llama.cpp.

    pip install gguf
    scripts/export_gguf.py EXPORTED_DIR OUT.gguf [--dtype f32|f16|bf16|q8_0]

Accepts GPT-2, Llama, Mistral, Qwen2 and Qwen3 models with a tokenizer.json: what `trireme model export` writes, for any vocabulary.
llama.cpp splits text into words by rules that it knows by name. The script chooses the rule of the tokenizer's pattern and prints
it; it refuses a pattern that llama.cpp lacks.
"""
import argparse
import json
import math
import pathlib
import sys

import gguf
import numpy
from gguf.utility import SafetensorsLocal

ARCHITECTURES = {"gpt2": gguf.MODEL_ARCH.GPT2, "llama": gguf.MODEL_ARCH.LLAMA, "mistral": gguf.MODEL_ARCH.LLAMA,
                 "qwen2": gguf.MODEL_ARCH.QWEN2, "qwen3": gguf.MODEL_ARCH.QWEN3}
TYPES = {"f32": gguf.GGMLQuantizationType.F32, "f16": gguf.GGMLQuantizationType.F16, "bf16": gguf.GGMLQuantizationType.BF16,
         "q8_0": gguf.GGMLQuantizationType.Q8_0}
FILE_TYPES = {"f32": gguf.LlamaFileType.ALL_F32, "f16": gguf.LlamaFileType.MOSTLY_F16, "bf16": gguf.LlamaFileType.MOSTLY_BF16,
              "q8_0": gguf.LlamaFileType.MOSTLY_Q8_0}

# Rules of llama.cpp for what a pattern of tokenizer.json finds. "smaug-bpe" is Llama 3's rule without its ignore_merges.
LETTERS = r"[^\r\n\p{L}\p{N}]?\p{L}+|"
REST = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
SUFFIXES = ("(?i:'s|'t|'re|'ve|'m|'ll|'d)|", "'(?i:[sdmt]|ll|ve|re)|")
O200K = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
         r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
         r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
RULES = {GPT2: "gpt-2", GPT2.replace("'s|'t|'re|'ve|'m|'ll|'d", "'(?:[sdmt]|ll|ve|re)"): "gpt-2", O200K: "gpt-4o"}
for suffixes in SUFFIXES:
    RULES[suffixes + LETTERS + r"\p{N}{1,3}" + REST] = "smaug-bpe"
    RULES[suffixes + LETTERS + r"\p{N}" + REST] = "qwen2"
CL100K = SUFFIXES[1] + LETTERS + r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s+(?!\s|\S)|\s*[\r\n]|\s+(?!\S)|\s"
RULES[CL100K] = "smaug-bpe"


def fail(message: str) -> None:
    raise SystemExit(f"export_gguf.py: {message}")


def warn(message: str) -> None:
    print(f"warning: {message}", file=sys.stderr)


def read_json(path: pathlib.Path) -> dict:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        fail(f"{path}: {error.strerror}; name a directory that `trireme model export` wrote")


def pre_tokenizer(tokenizer: dict) -> str:
    """The name of llama.cpp's rule for the words of a tokenizer.json."""
    whole = tokenizer["pre_tokenizer"] or {}
    patterns = []
    for part in whole.get("pretokenizers", [whole]):
        if part.get("type") == "Split":
            patterns.append(part["pattern"].get("Regex", ""))
        elif part.get("type") == "ByteLevel" and part.get("use_regex", True):
            patterns.append(GPT2)
    if not patterns:  # no words: as if all of a text were one; only a vocabulary without merges is the same for any rule
        if not tokenizer["model"].get("merges"):
            return "gpt-2"
        fail("tokenizer.json: it cuts text into no words, and llama.cpp has no such rule")
    rule = RULES.get(patterns[0]) if len(patterns) == 1 else None
    if rule is None:
        fail(f"tokenizer.json: llama.cpp has no rule for the pattern {' and '.join(patterns)}")
    if patterns[0] == CL100K:
        warn("llama.cpp splits white space at the end of a text otherwise than this tokenizer (cl100k)")
    if "NFC" in json.dumps(tokenizer.get("normalizer")):
        warn("llama.cpp does not bring text into normal form C, as this tokenizer does")
    return "llama-bpe" if rule == "smaug-bpe" and tokenizer["model"].get("ignore_merges") else rule


def write_tokenizer(writer: gguf.GGUFWriter, directory: pathlib.Path, vocab: int) -> str:
    if not (directory / "tokenizer.json").exists() and (directory / "tokenizer.model").exists():
        fail(f"{directory}/tokenizer.model: SentencePiece: use convert_hf_to_gguf.py of llama.cpp, which knows these tokenizers")
    tokenizer = read_json(directory / "tokenizer.json")
    if tokenizer["model"].get("type", "BPE") != "BPE":
        fail(f"{directory}/tokenizer.json: its type is {tokenizer['model']['type']}; only byte-level BPE is converted")
    ids = {i: (word, gguf.TokenType.NORMAL) for word, i in tokenizer["model"]["vocab"].items()}
    for added in tokenizer.get("added_tokens", []):
        ids[added["id"]] = (added["content"], gguf.TokenType.CONTROL if added["special"] else gguf.TokenType.USER_DEFINED)
    if max(ids) >= vocab:
        fail(f"{directory}/tokenizer.json: has token {max(ids)}, but the model has {vocab}")
    rows = [ids.get(i, (f"[PAD{i}]", gguf.TokenType.UNUSED)) for i in range(vocab)]
    merges = [m if isinstance(m, str) else " ".join(m) for m in tokenizer["model"].get("merges", [])]
    rule = pre_tokenizer(tokenizer)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(rule)
    writer.add_token_list([word for word, _ in rows])
    writer.add_token_types([int(kind) for _, kind in rows])
    writer.add_token_merges(merges or ["[NONE] [NONE]"])  # llama.cpp requires merges; this one applies to no text
    writer.add_add_bos_token(False)
    words = {word: i for i, (word, _) in enumerate(rows)}
    options = read_json(directory / "tokenizer_config.json") if (directory / "tokenizer_config.json").exists() else {}
    for key, add in (("bos_token", writer.add_bos_token_id), ("eos_token", writer.add_eos_token_id)):
        word = options.get(key)
        word = word.get("content") if isinstance(word, dict) else word
        if word in words:
            add(words[word])
    template = directory / "chat_template.jinja"
    if template.exists() or options.get("chat_template"):
        writer.add_chat_template(template.read_text(encoding="utf-8") if template.exists() else options["chat_template"])
    return rule


def write_sizes(writer: gguf.GGUFWriter, config: dict) -> None:
    gpt2 = config["model_type"] == "gpt2"
    names = ("n_positions", "n_embd", "n_layer", "n_head") if gpt2 else (
        "max_position_embeddings", "hidden_size", "num_hidden_layers", "num_attention_heads")
    context, width, layers, heads = (config[name] for name in names)
    window = config.get("sliding_window") if config["model_type"] == "mistral" or config.get("use_sliding_window") else None
    if window and window < context:
        warn(f"llama.cpp has no attention window for this model: its context becomes the window, {window} tokens")
        context = window
    writer.add_context_length(context)
    writer.add_embedding_length(width)
    writer.add_block_count(layers)
    writer.add_head_count(heads)
    writer.add_feed_forward_length((config.get("n_inner") or 4 * width) if gpt2 else config["intermediate_size"])
    if gpt2:
        return writer.add_layer_norm_eps(config["layer_norm_epsilon"])
    head = config.get("head_dim") or width // heads
    writer.add_head_count_kv(config.get("num_key_value_heads") or heads)
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_key_length(head)
    writer.add_value_length(head)
    writer.add_rope_dimension_count(head)
    rope = config.get("rope_parameters") or {}
    writer.add_rope_freq_base(rope.get("rope_theta") or config.get("rope_theta", 10000.0))
    writer.add_vocab_size(config["vocab_size"])


def rope_factors(config: dict):
    """By how much Llama 3 slows each frequency of the rotation; None if it does not."""
    rope = config.get("rope_parameters") or config.get("rope_scaling") or {}
    kind = rope.get("rope_type", rope.get("type", "default"))
    if kind in ("default", None):
        return None
    if kind != "llama3":
        fail(f"config.json: rope_type '{kind}' is not supported; llama3 and default are")
    head = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
    theta = rope.get("rope_theta") or config.get("rope_theta", 10000.0)
    factor, low, high = rope["factor"], rope["low_freq_factor"], rope["high_freq_factor"]
    old = rope["original_max_position_embeddings"]
    factors = []
    for i in range(0, head, 2):
        length = 2 * math.pi * theta ** (i / head)  # of a wave, in tokens
        smooth = min(max((old / length - low) / (high - low), 0), 1)
        factors.append(1 / ((1 - smooth) / factor + smooth))
    return numpy.array(factors, dtype=numpy.float32)


def read_floats(tensor) -> numpy.ndarray:
    data = tensor.mmap_bytes()
    if tensor.dtype == "BF16":
        return (data.view(numpy.uint16).astype(numpy.uint32) << 16).view(numpy.float32).reshape(tensor.shape)
    if tensor.dtype not in ("F32", "F16"):
        fail(f"tensor of type {tensor.dtype}: only F32, F16 and BF16 are converted")
    return data.view({"F32": numpy.float32, "F16": numpy.float16}[tensor.dtype]).astype(numpy.float32).reshape(tensor.shape)


def interleaved(weight: numpy.ndarray, heads: int) -> numpy.ndarray:
    """A query's or key's rows in the order in which llama.cpp rotates those of Llama: neighbours instead of halves."""
    return weight.reshape(heads, 2, weight.shape[0] // heads // 2, *weight.shape[1:]).swapaxes(1, 2).reshape(weight.shape)


def write_tensors(writer: gguf.GGUFWriter, directory: pathlib.Path, config: dict, dtype: str) -> int:
    kind = config["model_type"]
    names = gguf.get_tensor_name_map(ARCHITECTURES[kind], config.get("num_hidden_layers") or config.get("n_layer"))
    files = sorted(directory.glob("model*.safetensors"))
    if not files:
        fail(f"{directory}: holds no model*.safetensors")
    count, tied = 0, config.get("tie_word_embeddings", kind == "gpt2")
    for path in files:
        for name, tensor in SafetensorsLocal(path).tensors.items():
            if name.endswith((".attn.bias", ".attn.masked_bias", "rotary_emb.inv_freq")) or (tied and name == "lm_head.weight"):
                continue
            weight = read_floats(tensor)
            if kind == "gpt2" and name.endswith((".c_attn.weight", ".c_proj.weight", ".c_fc.weight")):
                weight = weight.T
            if kind in ("llama", "mistral") and ".q_proj." in name:
                weight = interleaved(weight, config["num_attention_heads"])
            if kind in ("llama", "mistral") and ".k_proj." in name:
                weight = interleaved(weight, config.get("num_key_value_heads") or config["num_attention_heads"])
            plain = name if kind != "gpt2" or name.startswith(("transformer.", "lm_head")) else "transformer." + name
            new = names.get_name(plain, try_suffixes=(".weight", ".bias"))
            if new is None:
                fail(f"{path}: {name}: not a tensor of a {kind} model")
            weight = numpy.ascontiguousarray(weight, dtype=numpy.float32)
            stored = TYPES[dtype] if weight.ndim > 1 and not new.startswith("position_embd") else TYPES["f32"]
            if stored == TYPES["q8_0"] and weight.shape[-1] % 32 != 0:
                stored = TYPES["f16"]
            writer.add_tensor(new, gguf.quants.quantize(weight, stored), raw_dtype=stored)
            count += 1
    factors = rope_factors(config) if kind != "gpt2" else None
    if factors is not None:
        writer.add_tensor("rope_freqs.weight", factors)
    return count


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=pathlib.Path, metavar="EXPORTED_DIR")
    parser.add_argument("output", type=pathlib.Path, metavar="OUT.gguf")
    parser.add_argument("--dtype", choices=list(TYPES), default="f16", help="of the matrices; default: f16")
    arguments = parser.parse_args()
    config = read_json(arguments.directory / "config.json")
    kind = config.get("model_type")
    if kind not in ARCHITECTURES:
        fail(f"{arguments.directory}/config.json: model_type {kind} is not one of {', '.join(ARCHITECTURES)}")
    partial = arguments.output.with_name(arguments.output.name + ".partial")
    writer = gguf.GGUFWriter(partial, gguf.MODEL_ARCH_NAMES[ARCHITECTURES[kind]])
    try:
        writer.add_name(arguments.directory.resolve().name)
        writer.add_file_type(int(FILE_TYPES[arguments.dtype]))
        write_sizes(writer, config)
        rule = write_tokenizer(writer, arguments.directory, config["vocab_size"])
        count = write_tensors(writer, arguments.directory, config, arguments.dtype)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        partial.replace(arguments.output)
    finally:
        partial.unlink(missing_ok=True)
    size = arguments.output.stat().st_size / 2**20
    print(f"{arguments.output}: {kind}, {count} tensors as {arguments.dtype}, {size:.1f} MiB; words as llama.cpp's {rule}")


if __name__ == "__main__":
    main()
