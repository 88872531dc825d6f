#!/usr/bin/env python3
"""Fetches FineWeb-Edu (HuggingFaceFW/fineweb-edu) as JSON lines, compressed by zstd, for `trireme data build`.

    scripts/fetch_fineweb_edu.py DIRECTORY [--part sample/10BT] [--files N]

Fetches each parquet file of the part (an interrupted download continues), compares it with the hub's
SHA-256, converts it to DIRECTORY/NAME.jsonl.zst with the fields "text", "id" and "url", and deletes it.
Run again, it continues with the missing files. Needs pyarrow (pip install pyarrow) and the program zstd. HF_ENDPOINT and HF_TOKEN are honoured.
"""

import argparse
import hashlib
import json
import os
import pathlib
import subprocess
import sys
import time
import urllib.error
import urllib.request

import pyarrow.parquet

ENDPOINT = os.environ.get("HF_ENDPOINT", "https://huggingface.co").rstrip("/")
DATASET = "datasets/HuggingFaceFW/fineweb-edu"
CHUNK = 1 << 20


def request(url, begin=0):
    headers = {"User-Agent": "trireme"}
    if os.environ.get("HF_TOKEN"):
        headers["Authorization"] = "Bearer " + os.environ["HF_TOKEN"]
    if begin:
        headers["Range"] = f"bytes={begin}-"
    return urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=60)


def list_files(part):
    """[(path, bytes, SHA-256)] of the part's parquet files."""
    with request(f"{ENDPOINT}/api/{DATASET}/tree/main/{part}?recursive=true") as answer:
        entries = json.load(answer)
    files = [(e["path"], e["size"], e.get("lfs", {}).get("oid")) for e in entries if e["path"].endswith(".parquet")]
    if not files:
        sys.exit(f"fetch_fineweb_edu: {part} has no parquet files: see {ENDPOINT}/{DATASET}/tree/main")
    return sorted(files)


def fetch(path, size, target):
    """The file, behind what is there of it already."""
    for attempt in range(10):
        begin = target.stat().st_size if target.exists() else 0
        if begin >= size:
            return
        try:
            with request(f"{ENDPOINT}/{DATASET}/resolve/main/{path}", begin) as answer:
                with open(target, "ab" if answer.status == 206 else "wb") as out:
                    while chunk := answer.read(CHUNK):
                        out.write(chunk)
                        print(f"\r{path}: {out.tell() / 1e6:.0f} of {size / 1e6:.0f} MB", end="", file=sys.stderr)
        except (urllib.error.URLError, OSError) as problem:
            print(f"\n{path}: {problem}; going on in {2 ** attempt} s", file=sys.stderr)
            time.sleep(2**attempt)
    if target.stat().st_size < size:
        sys.exit(f"fetch_fineweb_edu: {path}: the connection breaks again and again; run this again later")


def check(path, size, digest, target):
    found = hashlib.sha256()
    with open(target, "rb") as file:
        while chunk := file.read(CHUNK):
            found.update(chunk)
    if target.stat().st_size != size or digest and found.hexdigest() != digest:
        target.unlink()
        sys.exit(f"fetch_fineweb_edu: {path} arrived damaged and was dropped: run this again")


def unpack(parquet, target):
    """Lines of JSON, under their name when all of them are there."""
    part = target.with_suffix(".part")
    with open(part, "wb") as out:
        packer = subprocess.Popen(["zstd", "-q", "-3", "-T0"], stdin=subprocess.PIPE, stdout=out)
        for batch in pyarrow.parquet.ParquetFile(parquet).iter_batches(columns=["text", "id", "url"]):
            for row in batch.to_pylist():
                packer.stdin.write(json.dumps(row, ensure_ascii=False).encode() + b"\n")
        packer.stdin.close()
        if packer.wait() != 0:
            sys.exit(f"fetch_fineweb_edu: zstd could not pack {target}")
    part.rename(target)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=pathlib.Path)
    parser.add_argument("--part", default="sample/10BT", help="directory of the dataset: sample/10BT, sample/100BT, data/CC-MAIN-2024-10")
    parser.add_argument("--files", type=int, help="only the first N files of it (each of sample/10BT holds about 0.7e9 tokens)")
    options = parser.parse_args()
    options.directory.mkdir(parents=True, exist_ok=True)
    for path, size, digest in list_files(options.part)[: options.files]:
        name = path.replace("/", "-").removesuffix(".parquet")
        target = options.directory / (name + ".jsonl.zst")
        if target.exists():
            continue
        parquet = options.directory / (name + ".parquet")
        fetch(path, size, parquet)
        check(path, size, digest, parquet)
        unpack(parquet, target)
        parquet.unlink()
        print(f"\n{target}", file=sys.stderr)
    print(f"trireme data build '{options.directory}/*.jsonl.zst' --output DIRECTORY --tokenizer TOKENIZER --validation 0.001")


if __name__ == "__main__":
    main()
