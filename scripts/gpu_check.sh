#!/usr/bin/env bash
# Checks all that needs a GPU, from an unpacked bundle, in a few minutes. Prints one line for each check
# and adds it to check.json.
#   scripts/gpu_check.sh [DIRECTORY [CHECK...]]     DIRECTORY: for logs and check.json, default
#                                                   ./gpu_check; CHECK: default all
# DIRECTORY.tar holds a copy of the directory after each check.
# Exits 1 if a check fails, 2 if there is no GPU.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
export PATH=$root/bin:$PATH
# CUDA's libraries may stand beside its compiler or in Python's packages.
for place in "$(dirname "$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)")/../lib64" \
  "$(python3 -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])' 2> /dev/null || true)"/nvidia/*/lib; do
  [ ! -d "$place" ] || LD_LIBRARY_PATH=${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$place
done
export LD_LIBRARY_PATH=${LD_LIBRARY_PATH:-}
out=${1:-gpu_check}
[ $# -eq 0 ] || shift
wanted=" $* "
mkdir -p "$out"
out=$(cd "$out" && pwd)
trireme=$root/bin/trireme
failed=0
lines=()

if ! nvidia-smi -L > "$out/gpu.txt" 2>&1 || ! grep -q GPU "$out/gpu.txt"; then
  echo "gpu_check: no GPU responds" >&2
  exit 2
fi

# check NAME COMMAND...: runs the command; NAME.log gets its output, and its last line is printed.
check() {
  local name=$1 begin verdict=passed last_line
  shift
  if [ "$wanted" != "  " ] && [ "${wanted/ $name /}" = "$wanted" ]; then return; fi
  begin=$(date +%s.%N)
  # Kills it with all its children: a run that is only asked to stop would wait for its GPU.
  if ! timeout -s KILL 150 "$@" > "$out/$name.log" 2>&1; then verdict=FAILED failed=1; fi
  last_line=$(awk 'NF { last = $0 } END { gsub(/["\\]/, "", last); print substr(last, 1, 120) }' "$out/$name.log")
  printf '%-12s %-7s %6.1f s  %s\n' "$name" "$verdict" "$(awk -v a="$begin" -v b="$(date +%s.%N)" 'BEGIN { print b - a }')" "$last_line"
  lines+=("{\"check\": \"$name\", \"verdict\": \"$verdict\", \"last_line\": \"$last_line\"}")
  printf '{"commit": "%s", "gpu": "%s", "checks": [\n%s\n]}\n' "$(cat "$root/commit")" "$(head -n 1 "$out/gpu.txt" | tr -d '"')" \
    "$(printf '%s,\n' "${lines[@]}" | sed '$ s/,$//')" > "$out/check.json"
  tar -C "$(dirname "$out")" -cf "$out.tar" "$(basename "$out")"
}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
cat > config.yaml << 'EOF'
model: {family: llama, layers: 4, width: 256, heads: 4, kv_heads: 2, ffn: 768, vocab: 257, context: 256}
data: {train: [shards/train-*.h5], validation: [shards/validation-*.h5], tokenizer: bytes}
checkpoint: {every: 20, keep: 2}
train: {name: x, steps: 40, batch: 16, microbatch: 8, lr: 2e-3, warmup: 10, eval_every: 20, eval_sequences: 16}
EOF
head -c 100000 "$root/corpus/text.txt" > held.txt
tail -c +100001 "$root/corpus/text.txt" > train.txt
"$trireme" data build train.txt --validation-input held.txt --output shards --tokenizer bytes > "$out/data.log"

# run NAME DEVICE NUMBERS: trains with f32, bf16, or fp8, which is bf16 with 8-bit products
run() {
  local dtype=$3 matmul=auto
  if [ "$3" = fp8 ]; then dtype=bf16 matmul=fp8; fi
  exec "$trireme" train config.yaml --set "train.name=$1" --set "kernels.device=$2" --set "kernels.dtype=$dtype" --set "kernels.matmul=$matmul"
}
# NCCL needs a GPU for each rank of a host. The ranks share one here: each claims to be a host of its own.
export NCCL_SOCKET_IFNAME=lo NCCL_NET=Socket NCCL_IB_DISABLE=1 NCCL_P2P_DISABLE=1 NCCL_SHM_DISABLE=1 NCCL_NVLS_ENABLE=0
export NCCL_MNNVL_ENABLE=0 NCCL_MAX_CTAS=2 NCCL_RAS_ENABLE=0 OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
sharing() { # sharing RANKS COMMAND...
  local ranks=$1
  shift
  # shellcheck disable=SC2016  # each rank's own shell fills it in
  mpirun -n "$ranks" bash -c 'NCCL_HOSTID=rank$OMPI_COMM_WORLD_RANK exec "$@"' rank "$@"
}
# losses NAME: one a line
losses() { sed -nE 's/.*"loss": ?([0-9.eE+-]+).*/\1/p' "runs/$1/metrics.jsonl"; }
# compare A B BOUND: bounds the largest relative difference of a loss between two runs.
compare() {
  paste <(losses "$1") <(losses "$2") | awk -v bound="$3" -v steps="$(losses "$1" | wc -l)" '
    { d = ($1 - $2) / $1; if (d < 0) d = -d; if (d > most || d != d || NF < 2) most = NF < 2 ? 1 : d; n += 1 }
    END { printf "%d losses differ by at most %.2e, bound %s\n", n, most, bound; exit !(n > 0 && n == steps && most <= bound) }'
}
# trajectory NUMBERS BOUND: compares the CPU's losses with the GPU's.
trajectory() { (run "cpu-$1" cpu "$1") && (run "gpu-$1" cuda "$1") && compare "cpu-$1" "gpu-$1" "$2"; }
# mesh NAME RANKS SETTING...: compares the losses of so many ranks and of one, in f32, over a few steps.
# The ranks take turns on the GPU.
mesh() {
  local name=$1 ranks=$2 settings=(--set train.steps=8 --set train.warmup=2 --set train.eval_every=0)
  shift 2
  if [ ! -d runs/one ]; then
    "$trireme" train config.yaml --set train.name=one --set kernels.device=cuda --set kernels.dtype=f32 "${settings[@]}" || return 1
  fi
  for setting in "$@"; do settings+=(--set "$setting"); done
  sharing "$ranks" "$trireme" train config.yaml --set "train.name=$name" --set kernels.device=cuda --set kernels.dtype=f32 "${settings[@]}" &&
    compare one "$name" 1e-4
}
# Kills a run and continues it: expects the bits of an undisturbed one.
resume() {
  local child
  mkdir -p runs/killed
  cp runs/gpu-bf16/kernels.json runs/killed/  # two runs that tune separately need not have the same bits
  run killed cuda bf16 > killed.txt 2>&1 &
  child=$!
  until [ "$(cat runs/killed/metrics.jsonl 2> /dev/null | wc -l)" -ge 15 ]; do kill -0 $child || break; sleep 0.05; done
  kill -9 $child
  wait $child || true
  (run killed cuda bf16) | tee resumed.txt && grep -q 'resumed after step' resumed.txt && "$trireme" checkpoint diff runs/gpu-bf16/checkpoints/step-00000040 runs/killed/checkpoints/step-00000040
}
export -f run sharing losses compare trajectory mesh resume
export trireme

check doctor "$trireme" doctor
check ops "$root/bin/test_gpu" "~[cpu]"
check steps env -C "$root" bin/test_gpu_step "~[cpu]"
check f32 bash -c 'trajectory f32 1e-4'
check bf16 bash -c 'trajectory bf16 0.02'
has_fp8=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader | awk 'NR == 1 { print ($1 >= 9 ? 1 : 0) }')
if [ "$has_fp8" = 1 ]; then check fp8 bash -c 'trajectory fp8 0.02'; fi
check resume bash -c resume
# step NAME CONFIG SETTING...: speed of a training step in bf16 and with 8-bit products, and of
# PyTorch in bf16: without document masks, and with GPT-2's vocabulary padded to a multiple of 64.
step() {
  local name=$1 config=$2 settings=() numbers matmul
  shift 2
  for setting in "$@"; do settings+=(--set "$setting"); done
  for numbers in "" -fp8; do
    matmul=${numbers#-}
    matmul=${matmul:-bf16}
    rm -f "$out/step-$name$numbers.json" "$out/peer-$name.json"
    if [ "$matmul" = fp8 ] && [ "$has_fp8" = 0 ]; then continue; fi
    check "step-$name$numbers" "$trireme" bench step "$root/configs/$config.yaml" --json "$out/step-$name$numbers.json" \
      --set "train.name=$name$numbers" --set kernels.device=cuda --set kernels.dtype=bf16 --set "kernels.matmul=$matmul" \
      --set model.document_mask=false "${settings[@]}"
  done
  if [ -s "$out/step-$name.json" ] && python3 -c 'import torch' 2> /dev/null; then
    check "peer-$name" python3 "$root/scripts/peer_torch.py" "$out/step-$name.json" --json "$out/peer-$name.json"
  fi
}
check kernels "$trireme" bench kernels --cuda
step 124m gpt2-124m model.vocab=50304 train.batch=128 train.microbatch=64
step 1558m gpt2-1558m model.vocab=50304 train.batch=32 train.microbatch=16
step 1.1b llama3-1b model.layers=22 model.heads=16 model.kv_heads=4 model.ffn=5632 model.vocab=32000 model.tied=false \
  model.context=4096 model.rope_scaling=none train.batch=8 train.microbatch=4
step 8b-8-layers llama3-8b model.layers=8 train.batch=4 train.microbatch=2

if command -v python3 > /dev/null; then check table python3 "$root/scripts/gpu_table.py" "$out" --json "$out/table.json"; fi

check nccl "$root/bin/test_gpu_parallel"
check dp2 bash -c 'mesh dp2 2'
check zero3 bash -c 'mesh zero3 2 parallel.zero=3'
check tp2 bash -c 'mesh tp2 2 parallel.tp=2'
check pp2 bash -c 'mesh pp2 2 parallel.pp=2'
check dp4 bash -c 'mesh dp4 4 train.microbatch=4'
check dp2tp2pp2 bash -c 'mesh dp2tp2pp2 8 parallel.tp=2 parallel.pp=2'
if command -v compute-sanitizer > /dev/null; then
  check sanitizer compute-sanitizer --error-exitcode 1 "$trireme" train config.yaml --set train.name=sanitized --set kernels.device=cuda --set train.steps=2 --set train.warmup=0 --set train.eval_every=0
fi
exit $failed
