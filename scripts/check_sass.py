#!/usr/bin/env python3
"""Reads the machine code of the kernels that scripts/kernel_registers.sh has compiled: none keeps registers in
memory, hot ones load and store 16 bytes at a time, attention uses tensor cores. Prints the length of
attention's loops.

  scripts/check_sass.py [OBJECTS]     default: build/check_cuda

Needs cuobjdump and nvdisasm, of CUDA's toolkit or named by CUOBJDUMP; without them it says so and passes.
"""
import os
import pathlib
import re
import shutil
import subprocess
import sys

# Sources of hot kernels, and a pattern of the mangled names of those that take packs of 16 bytes.
WIDE = {"adamw": "adamwILb0", "gelu": "4Bf16", "swiglu": "4Bf16", "rmsnorm": "forward.*4Bf16.*Li8E", "layernorm": "forward.*4Bf16.*Li8E",
        "cross_entropy": "in_place.*4Bf16ELi8E"}
LOAD, STORE = re.compile(r"\bLDG?\.E\S*\.128"), re.compile(r"\bSTG?\.E\S*\.128")
# Kernels with an array in memory: a tree of sums, and the slow way of cosines of large angles.
WITH_ARRAYS = re.compile("sum_parts|fill_normal|rope_table")
INSTRUCTION = re.compile(r"\s+/\*([0-9a-f]{4,6})\*/\s+(.*?);")


def functions(cuobjdump, path):
    """Each kernel's (address, instruction), by mangled name."""
    found, current = {}, None
    listed = subprocess.run([cuobjdump, "-sass", path], check=True, capture_output=True, text=True).stdout
    for line in listed.splitlines():
        name, instruction = re.search(r"Function : (\S+)", line), INSTRUCTION.match(line)
        if name:
            current = found.setdefault(name.group(1), [])
        elif instruction and current is not None:
            current.append((int(instruction.group(1), 16), instruction.group(2)))
    return found


def longest_loop(instructions):
    """Instructions and matrix products of the longest loop with any."""
    best = (0, 0)
    for address, text in instructions:
        branch = re.search(r"BRA(?:\.U)?\s+.*?0x([0-9a-f]+)", text)
        if branch and int(branch.group(1), 16) < address:
            body = [words for at, words in instructions if int(branch.group(1), 16) <= at <= address]
            products = sum("HMMA" in words for words in body)
            if products:
                best = max(best, (len(body), products))
    return best


def short(name):
    found = re.search(r"\d(attention_(?:forward|backward_[a-z]+)_sm80)ILi(\d+)E", name)
    return f"{found.group(1)}<{found.group(2)}>" if found else name


def main():
    objects = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "build/check_cuda")
    cuobjdump = os.environ.get("CUOBJDUMP") or shutil.which("cuobjdump") or shutil.which("/usr/local/cuda/bin/cuobjdump")
    if not cuobjdump:
        print("skipped: there is no cuobjdump")
        return 0
    os.environ["PATH"] = f"{pathlib.Path(cuobjdump).parent}:{os.environ['PATH']}"
    problems, kernels = [], 0
    print("| kernel | architecture | instructions of its loop | matrix products |\n|---|---|---|---|")
    for path in sorted(objects.glob("*.o")):
        source, architecture = path.name.split(".")[0], path.name.split(".")[-2]
        wide = 0
        for name, instructions in functions(cuobjdump, path).items():
            kernels += 1
            words = [text for _, text in instructions]
            if any(re.search(r"\b(LDL|STL)\b", text) for text in words) and not WITH_ARRAYS.search(name):
                problems.append(f"{path.name}: {name} keeps registers in memory")
            if re.search(WIDE.get(source, "$^"), name):
                wide += any(LOAD.search(text) for text in words) and any(STORE.search(text) for text in words)
            if "_sm80" in source:
                length, products = longest_loop(instructions)
                if products:
                    print(f"| {short(name)} | sm_{architecture} | {length} | {products} |")
                elif "attention_" in name and "_sm80I" in name:
                    problems.append(f"{path.name}: {name} uses no tensor core in a loop")
        if source in WIDE and wide == 0:
            problems.append(f"{path.name}: no kernel for packs loads and stores 16 bytes at a time")
    print("\n".join(problems) or f"{kernels} kernels: none keeps registers in memory")
    return 1 if problems or not kernels else 0


if __name__ == "__main__":
    sys.exit(main())
