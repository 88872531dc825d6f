#!/usr/bin/env bash
# Times a training step of llm.c's GPT-2 124M on this CPU, in f32: its own program, with made-up weights and tokens.
#
#   scripts/peer_llmc.sh BATCH CONTEXT STEPS [DIRECTORY]
#
# Prints the milliseconds of each step after the first, one a line. DIRECTORY keeps llm.c and what was compiled; default: build/llm.c.
# LLMC names another repository. Needs git, a C compiler with OpenMP and python3. OMP_NUM_THREADS says how many threads.
set -euo pipefail
batch=$1 context=$2 steps=$3
place=${4:-$(cd "$(dirname "$0")/.." && pwd)/build/llm.c}
[ -d "$place/.git" ] || git clone --quiet --depth 1 "${LLMC:-https://github.com/karpathy/llm.c}" "$place"
cd "$place"
[ -s gpt2_124M.bin ] || python3 - << 'END'
import array
import os
import random

random.seed(1)
LAYERS, WIDTH, VOCAB, PADDED, PLACES = 12, 768, 50257, 50304, 1024
noise = array.array("f", (random.gauss(0, 0.02) for _ in range(1 << 20)))


def write(file, count, value=None):
    if value is not None:
        return array.array("f", [value] * count).tofile(file)
    for at in range(0, count, len(noise)):
        noise[: min(count - at, len(noise))].tofile(file)


with open("gpt2_124M.bin", "wb") as file:
    array.array("i", [20240326, 3, PLACES, VOCAB, LAYERS, 12, WIDTH, PADDED] + [0] * 248).tofile(file)
    write(file, PADDED * WIDTH)
    write(file, PLACES * WIDTH)
    per_layer = [(WIDTH, 1.0), (WIDTH, 0.0), (3 * WIDTH * WIDTH, None), (3 * WIDTH, 0.0), (WIDTH * WIDTH, None), (WIDTH, 0.0),
                 (WIDTH, 1.0), (WIDTH, 0.0), (4 * WIDTH * WIDTH, None), (4 * WIDTH, 0.0), (4 * WIDTH * WIDTH, None), (WIDTH, 0.0)]
    for count, value in per_layer:
        write(file, LAYERS * count, value)
    write(file, WIDTH, 1.0)
    write(file, WIDTH, 0.0)
for name, tokens in (("train", 1 << 18), ("val", 1 << 16)):
    os.makedirs("dev/data/tinyshakespeare", exist_ok=True)
    with open(f"dev/data/tinyshakespeare/tiny_shakespeare_{name}.bin", "wb") as file:
        array.array("i", [20240520, 1, tokens] + [0] * 253).tofile(file)
        array.array("H", (random.randrange(VOCAB) for _ in range(tokens))).tofile(file)
END
program=step-$batch-$context-$steps
# Its shape and number of steps are constants of the source. Evaluations and samples are left out: only steps are timed.
[ -x "$program" ] || {
  sed -E "s/int B = 4;/int B = $batch;/; s/int T = 64;/int T = $context;/; s/step <= 40;/step <= $steps;/; \
s/if \(step % 10 == 0\)/if (0)/; s/if \(step > 0 \&\& step % 20 == 0\)/if (0)/" train_gpt2.c > "$program.c"
  ${CC:-cc} -Ofast -march=native -fopenmp -DOMP -Wno-unused-result -I. "$program.c" -lm -o "$program"
}
"./$program" | sed -nE 's/^step [1-9][0-9]*: .*took ([0-9.]+) ms.*/\1/p'
