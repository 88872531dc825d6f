#!/usr/bin/env python3
"""Asks cuDNN for its plans of attention, without a GPU, and writes docs/gpu/cudnn.md: for each config and
each step that gpu_check.sh measures the groups of heads, the workspace and the kernels.

  scripts/cudnn_plans.py BUILD     a build without or with CUDA

Needs cuDNN's library and headers, CUDA's, and a C++ compiler. A driver that is generated here stands in
for NVIDIA's: it loads kernels and runs none.
"""
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

from predict_steps import rows

ROOT = pathlib.Path(__file__).resolve().parent.parent
CUDA = pathlib.Path(os.environ.get("CUDA_HOME", "/usr/local/cuda"))
# Facts about an H100 (SXM, 80 GB), in cuDNN's names.
H100 = {
    "schemaVersion": 1, "cudnnVersion": 91900, "driverVer": 13000, "driverVersion": 13000, "deviceName": "NVIDIA H100 80GB HBM3",
    "cudaDeviceId": 0, "deviceId": 0, "deviceVer": 900, "smVersion": 900, "ccMajor": 9, "ccMinor": 0, "major": 9, "minor": 0,
    "multiProcessorCount": 132, "totalGlobalMem": 85029158912, "maxSharedMemoryPerBlock": 49152,
    "maxSharedMemoryPerBlockOptin": 232448, "reservedSharedMemoryPerBlock": 1024, "maxSharedMemoryPerSM": 233472,
    "sharedMemPerMultiprocessor": 233472, "maxGridSize": [2147483647, 65535, 65535], "maxBlockSize": [1024, 1024, 64],
    "regsPerBlock": 65536, "maxRegistersPerSM": 65536, "warpSize": 32, "maxCtasPerSM": 32, "maxThreadsPerBlock": 1024,
    "maxThreadsPerSM": 2048, "pciDeviceId": 0, "pciBusId": 0, "isTccDriver": 0, "supportCoopLaunch": 1, "smClockRateKHz": 1980000,
    "memClockRateKHz": 2619000, "memBusWidthBits": 5120, "l2CacheSize": 52428800,
}
NOT_SUPPORTED = 801  # CUDA_ERROR_NOT_SUPPORTED
# Functions of the driver that do something; all others answer that they are not supported.
ANSWERS = {
    "cuInit": "(unsigned flags) { return 0; }",
    "cuDriverGetVersion": "(int* version) { *version = 13000; return 0; }",
    "cuGetErrorString": '(int error, const char** text) { *text = "there is no GPU"; return 0; }',
    "cuGetErrorName": '(int error, const char** text) { *text = "NO_GPU"; return 0; }',
    "cuLibraryLoadData": "(void** made) { *made = number(); return 0; }",
    "cuLibraryUnload": "(void* library) { return 0; }",
    "cuLibraryGetKernel": "(void** made, void* library, const char* name) { fprintf(stderr, \"kernel %s\\n\", name); "
                          "*made = number(); return 0; }",
    "cuLibraryGetModule": "(void** made) { *made = number(); return 0; }",
    "cuModuleLoadData": "(void** made) { *made = number(); return 0; }",
    "cuModuleLoadDataEx": "(void** made) { *made = number(); return 0; }",
    "cuModuleGetFunction": "(void** made, void* module, const char* name) { fprintf(stderr, \"kernel %s\\n\", name); "
                           "*made = number(); return 0; }",
    "cuKernelGetFunction": "(void** made) { *made = number(); return 0; }",
    "cuFuncGetAttribute": "(int* value, int attribute) { *value = 128; return 0; }",
    "cuKernelGetAttribute": "(int* value, int attribute) { *value = 128; return 0; }",
    "cuGetProcAddress_v2": "(const char* name, void** found, int version, unsigned long long flags, int* status) {\n"
                           "  void* self = dlopen(\"libcuda.so.1\", RTLD_NOW | RTLD_NOLOAD);\n"
                           "  *found = self ? dlsym(self, name) : 0;\n"
                           "  if (status) *status = *found ? 0 : 1;\n"
                           "  return *found ? 0 : 500;\n}",
}
SHAPES = [("window of 4096", (1, 8192, 32, 8, 128, 4096, 1)), ("heads of 80", (4, 2048, 32, 32, 80, 0, 1)),
          ("heads of 96", (4, 2048, 32, 32, 96, 0, 1)), ("heads of 256", (4, 2048, 16, 8, 256, 0, 1))]


def run(*words, **more):
    return subprocess.run([str(word) for word in words], check=True, text=True, **more)


def make_driver(directory):
    listed = run("nm", "-D", "--defined-only", CUDA / "lib64/stubs/libcuda.so", capture_output=True).stdout
    names = sorted(set(re.findall(r" T (cu\w+)", listed)) | set(ANSWERS))
    text = "#define _GNU_SOURCE\n#include <dlfcn.h>\n#include <stdio.h>\n"
    text += "static void* number(void) { static long last = 4096; return (void*)(last += 16); }\n"
    text += "".join(f"int {name}{ANSWERS.get(name, f'() {{ return {NOT_SUPPORTED}; }}')}\n" for name in names)
    (directory / "driver.c").write_text(text)
    run("cc", "-w", "-shared", "-fPIC", "-Wl,-soname,libcuda.so.1", directory / "driver.c", "-o", directory / "libcuda.so.1", "-ldl")


def make_program(directory, build):
    run("c++", "-std=c++20", "-O1", "-fopenmp", f"-I{ROOT}", f"-I{CUDA / 'include'}", ROOT / "test/emulation/standins/cudnn_plans.cpp",
        ROOT / "kernels/cuda/cudnn_attention.cpp", "-o", directory / "plans", build / "libkernels.a", build / "libbase.a", "-lxxhash", "-ldl")


def shape_of(build, config, settings):
    words = [word for setting in settings if "kernels." not in setting for word in ("--set", setting)]
    told = run(build / "trireme", "plan", ROOT / "configs" / (config + ".yaml"), "--json", "-", *words, capture_output=True).stdout
    plan = json.loads(told)
    m = plan["model"]
    together = int("split_heads" not in plan["ops"])  # queries, keys and values in one tensor
    return plan["microbatch"], m["context"], m["heads"], m["kv_heads"], m["head_size"], 0, together


def shapes(build):
    found = {}
    for path in sorted((ROOT / "configs").glob("*.yaml")):
        found.setdefault(shape_of(build, path.stem, []), path.stem)
    for name, _, config, settings in rows():
        found.setdefault(shape_of(build, config, settings), "step " + name)
    return [(name, shape) for shape, name in found.items() if shape[1] % 128 == 0] + SHAPES


def plans(directory, shape, backward):
    (directory / "gpu.json").write_text(json.dumps(H100))
    words = " ".join(str(x) for x in (int(backward), *shape))
    environment = os.environ | {"LD_LIBRARY_PATH": f"{directory}:{CUDA / 'lib'}:{CUDA / 'lib64'}"}
    told = subprocess.run([directory / "plans", directory / "gpu.json"], input=words + "\n", text=True, capture_output=True, env=environment)
    answer = told.stdout.strip()
    kernels = [name for name in re.findall(r"^kernel (\S+)$", told.stderr, re.MULTILINE) if "sdpa" in name or "flash" in name]
    if re.fullmatch(r"\d+ \d+", answer):
        groups, mebibytes = answer.split()
        return groups, mebibytes, kernel_words(kernels)
    return "", "", answer or told.stderr.strip().splitlines()[-1]


def kernel_words(names):
    """What a kernel's long name says: the GPU it is for, its tensor-core instruction, its tile."""
    for name in reversed(names):
        found = re.search(r"(sm\d+).*?(wgmma|hmma|mma).*?(\d+x\d+x\d+)", name)
        if found:
            return " ".join(found.groups())
    return names[-1][:40] if names else ""


PAGE = """# cuDNN's plans for attention

Plans that cuDNN makes for attention on an H100, without and with document masks. They were asked
for without a GPU: a stand-in for the driver loads kernels and runs none. `scripts/cudnn_plans.py
build` writes this page.

A document mask is a comparison of each key with the first one of the query's document. cuDNN
generates the kernel's code with it.

Queries, keys and values are in one tensor, as a step has them. Models with QK-norm have a tensor
for each.

A deterministic backward stores a bf16 matrix of scores for each head. It runs in as few groups of
heads as keep its workspace within 1 GiB. A group of one key-value head may take 2.25 GiB.

B is rows of a microbatch, T tokens, H heads, K key-value heads, D the head size. Groups and MiB are
the backward's.

| where | B, T, H, K, D | forward | backward | groups | MiB |
|---|---|---|---|---|---|
{rows}
"""


def main():
    build = pathlib.Path(sys.argv[1]).resolve()
    libraries = [CUDA / part / "libcudnn.so.9" for part in ("lib", "lib64")]
    if not (CUDA / "include/cudnn.h").exists() or not any(library.exists() for library in libraries):
        print(f"skipped: there is no cuDNN in {CUDA}")
        return False
    lines, failed = [], False
    with tempfile.TemporaryDirectory() as name:
        directory = pathlib.Path(name)
        make_driver(directory)
        make_program(directory, build)
        for where, shape in shapes(build):
            for masks, documents in (("", 0), (" with documents", 1)):
                _, _, forward = plans(directory, (*shape, documents), False)
                groups, mebibytes, backward = plans(directory, (*shape, documents), True)
                lines.append(f"| {where}{masks} | {', '.join(str(x) for x in shape[:5])} | {forward} | {backward} | {groups} | {mebibytes} |")
                failed |= not groups
                print(lines[-1], flush=True)
    (ROOT / "docs/gpu/cudnn.md").write_text(PAGE.format(rows="\n".join(lines)))
    return failed


if __name__ == "__main__":
    sys.exit(main())
