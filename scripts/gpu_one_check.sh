#!/usr/bin/env bash
# One check of gpu_check.sh, which sets the variables below and calls this in the directory of all checks.
#   scripts/gpu_one_check.sh FUNCTION ARGUMENT...     exits 77 if this machine lacks what the check needs
set -euo pipefail
: "${root:?}" "${out:?}" "${has_fp8:?}"  # the bundle; the directory of logs and figures; 1 or 0
emulated=${emulated:-}                   # set: models and tests are few and small, for the emulated GPU
trireme=$root/bin/trireme
tiny_settings=(model.layers=1 model.width=32 model.heads=1 model.kv_heads=1 model.head_size=32 model.ffn=64 model.vocab=64
  model.context=32 train.batch=2 train.microbatch=1)
tiny_tests="fill writes*,gelu matches*,ranks that are not connected*,the plan counts the ops*"

# once NAME FUNCTION...: calls it if no other check has, and waits for one that is about to.
once() {
  (
    flock 8
    [ -e "done-$1" ] || "${@:2}"
    touch "done-$1"
  ) 8> "lock-$1"
}
shards() { once shards make_shards; }
make_shards() {
  head -c 100000 "$root/corpus/text.txt" > held.txt
  tail -c +100001 "$root/corpus/text.txt" > train.txt
  "$trireme" data build train.txt --validation-input held.txt --output shards --tokenizer bytes
}
program() { # program ARGUMENT...
  if [ -n "$emulated" ] && [ "$1 ${2:-}" = "bench kernels" ]; then echo "skipped: the emulated GPU takes minutes"; exit 77; fi
  exec "$trireme" "$@"
}
# tests PROGRAM [NAMES]: each case in a process of its own, several at once: one that breaks its context on
# the GPU fails alone. What failed runs once more under compute-sanitizer, where there is one.
tests() {
  local names=${2:-~[.]~[cpu]} logs cases failures at_once=${GPU_CHECK_CASES:-4}
  if [ -n "$emulated" ]; then names=$tiny_tests; fi
  export program=$root/bin/$1
  # A GPU has queues for some twenty processes that take 32 each.
  case $1 in
    *_parallel) at_once=1 ;;  # its cases start processes of their own
    *) export CUDA_MODULE_LOADING=LAZY CUDA_DEVICE_MAX_CONNECTIONS=8 ;;
  esac
  logs=$(mktemp -d)
  export logs
  # The first is Catch2 2's word for a bare list, which exits with the number of tests; the other, version 3's.
  cases=$("$program" "$names" --list-test-names-only 2> /dev/null | grep -vxE '' || true)
  if [[ "$cases" == skipped:* ]]; then echo "$cases"; exit 77; fi
  [[ -n "$cases" && "$cases" != *Error* ]] || cases=$("$program" "$names" --list-tests --verbosity quiet)
  [ -n "$cases" ] || { echo "no test has such a name: $names"; exit 1; }
  cd "$root"
  one_case() {
    local name=$1 escaped log rc=0
    escaped=$(sed -E 's/[][,\\]/\\&/g' <<< "$name")
    log=$logs/$(tr -cs 'A-Za-z0-9\n' - <<< "$name")
    "$program" "$escaped" > "$log.log" 2>&1 || rc=$?
    if [ $rc = 0 ] && grep -q 'All tests passed' "$log.log"; then return; fi
    { echo "=== $name: exit code $rc"; tail -c 3000 "$log.log"; } > "$log.failed"
    if [ -z "$emulated" ] && command -v compute-sanitizer > /dev/null && [ "$(find "$logs" -name '*.sanitized' | wc -l)" -lt 8 ]; then
      echo "--- under compute-sanitizer" > "$log.sanitized"
      (timeout -s KILL 40 compute-sanitizer "$program" "$escaped" 2>&1 || true) | head -c 3000 >> "$log.sanitized"
      cat "$log.sanitized" >> "$log.failed"
    fi
    cat "$log.failed"
  }
  export -f one_case
  export emulated
  tr '\n' '\0' <<< "$cases" | xargs -0 -P "$at_once" -I {} bash -c '[ -z "$1" ] || one_case "$1"' one {}
  failures=$(find "$logs" -name '*.failed' | wc -l)
  echo "$failures of $(wc -l <<< "$cases") tests failed"
  rm -r "$logs"
  exit $((failures > 0))
}
# run NAME DEVICE NUMBERS SETTING...: trains with f32, bf16, or fp8, which is bf16 with 8-bit products
run() {
  local name=$1 device=$2 dtype=$3 matmul=auto settings=()
  if [ "$3" = fp8 ]; then dtype=bf16 matmul=fp8; fi
  shift 3
  for setting in "$@"; do settings+=(--set "$setting"); done
  shards
  "$trireme" train config.yaml --set "train.name=$name" --set "kernels.device=$device" --set "kernels.dtype=$dtype" \
    --set "kernels.matmul=$matmul" "${settings[@]}"
}
needs_fp8() {
  if [ "$1" = fp8 ] && [ "$has_fp8" = 0 ]; then echo "skipped: this GPU has no 8-bit products"; exit 77; fi
}
# NCCL needs a GPU for each rank of a host. The ranks share one here: each claims to be a host of its own.
export NCCL_SOCKET_IFNAME=lo NCCL_NET=Socket NCCL_IB_DISABLE=1 NCCL_P2P_DISABLE=1 NCCL_SHM_DISABLE=1 NCCL_NVLS_ENABLE=0
export NCCL_MNNVL_ENABLE=0 NCCL_MAX_CTAS=2 NCCL_RAS_ENABLE=0 OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
sharing() { # sharing RANKS COMMAND...
  local ranks=$1
  shift
  # shellcheck disable=SC2016  # each rank's own shell fills it in
  mpirun --oversubscribe -n "$ranks" bash -c 'NCCL_HOSTID=rank$OMPI_COMM_WORLD_RANK exec "$@"' rank "$@"
}
# losses NAME: one a line, of training and validation
losses() { sed -nE 's/.*"(val_)?loss": ?([0-9.eE+-]+).*/\2/p' "runs/$1/metrics.jsonl"; }
# compare A B BOUND: bounds the largest relative difference of a loss between two runs. GPU_CHECK_BOUND: another bound, for tests.
compare() {
  paste <(losses "$1") <(losses "$2") | awk -v bound="${GPU_CHECK_BOUND:-$3}" -v steps="$(losses "$1" | wc -l)" '
    { d = ($1 - $2) / $1; if (d < 0) d = -d; if (d > most || d != d || NF < 2) most = NF < 2 ? 1 : d; n += 1 }
    END { printf "%d losses differ by at most %.2e, bound %s\n", n, most, bound; exit !(n > 0 && n == steps && most <= bound) }'
}
# trajectory_of NAME NUMBERS BOUND SETTING...: compares the CPU's losses with the GPU's.
trajectory_of() {
  needs_fp8 "$2"
  run "cpu-$1" cpu "$2" "${@:4}"
  once "gpu-$1" run "gpu-$1" cuda "$2" "${@:4}"
  compare "cpu-$1" "gpu-$1" "$3"
}
trajectory() { trajectory_of "$1" "$1" "$2"; }
last_of() { find "runs/$1/checkpoints" -maxdepth 1 -name 'step-*' | sort | tail -n 1; }
# undisturbed: a run in bf16 on the GPU, if no other check has made it
undisturbed() { once gpu-bf16 run gpu-bf16 cuda bf16; }
# same_bits NAME SETTING: the undisturbed run with another way of doing the same
same_bits() {
  undisturbed
  mkdir -p "runs/$1"
  cp runs/gpu-bf16/kernels.json "runs/$1/"
  run "$1" cuda bf16 "$2"
  "$trireme" checkpoint diff "$(last_of gpu-bf16)" "$(last_of "$1")"
}
# Kills a run at its first checkpoint and continues it: expects the bits of an undisturbed one.
resume() {
  local child settings=(checkpoint.every=200 train.steps=2000 train.eval_every=0) arguments=()  # a GPU takes a second for them
  [ -z "$emulated" ] || settings=()
  for setting in "${settings[@]}"; do arguments+=(--set "$setting"); done
  run whole cuda bf16 "${settings[@]}"
  mkdir -p runs/killed
  cp runs/whole/kernels.json runs/killed/  # two runs that tune separately need not have the same bits
  "$trireme" train config.yaml --set train.name=killed --set kernels.device=cuda --set kernels.dtype=bf16 "${arguments[@]}" \
    > killed.txt 2>&1 &
  child=$!
  until compgen -G 'runs/killed/checkpoints/step-????????' > /dev/null; do kill -0 "$child" || break; sleep 0.02; done
  kill -9 "$child"
  wait "$child" || true
  run killed cuda bf16 "${settings[@]}" | tee resumed.txt
  grep -q 'resumed after step' resumed.txt
  "$trireme" checkpoint diff "$(last_of whole)" "$(last_of killed)"
}
# mesh NAME RANKS SETTING...: compares the losses of so many ranks and of one, in f32, over a few steps.
# The ranks take turns on the GPU.
mesh() {
  local name=$1 ranks=$2 settings=(train.steps=8 train.warmup=2 train.eval_every=0) arguments=()
  [ -z "$emulated" ] || settings=(train.steps=3 train.warmup=0 train.eval_every=0)
  shift 2
  once one run one cuda f32 "${settings[@]}"
  for setting in "${settings[@]}" "$@"; do arguments+=(--set "$setting"); done
  sharing "$ranks" "$trireme" train config.yaml --set "train.name=$name" --set kernels.device=cuda --set kernels.dtype=f32 \
    --set kernels.autotune=false "${arguments[@]}"
  compare one "$name" 1e-4
}
# step NAME NUMBERS CONFIG SETTING...: speed of a training step in bf16, or with 8-bit products; without document masks unless a
# setting asks for them
step() {
  local name=$1$2 config=$3 matmul=bf16 settings=(--set model.document_mask=false)
  if [ "$2" = -fp8 ]; then needs_fp8 fp8; matmul=fp8; fi
  shift 3
  for setting in "$@"; do settings+=(--set "$setting"); done
  if [ -n "$emulated" ]; then
    for setting in "${tiny_settings[@]}"; do settings+=(--set "$setting"); done
    settings+=(--seconds 0)
    case $name in 124m | 124m-fp8) ;; *) settings+=(--set kernels.autotune=false) ;; esac  # the first two choose
  fi
  rm -f "$out/step-$name.json"
  "$trireme" bench step "$root/configs/$config.yaml" --json "$out/step-$name.json" --set "train.name=$name" \
    --set kernels.device=cuda --set kernels.dtype=bf16 --set "kernels.matmul=$matmul" "${settings[@]}"
}
# peer NAME CONFIG SETTING...: PyTorch's speed of the same step
peer() {
  local name=$1
  if ! python3 -c 'import torch' 2> /dev/null; then echo "skipped: python3 finds no torch"; exit 77; fi
  [ -s "$out/step-$name.json" ] || step "$name" "" "${@:2}"
  rm -f "$out/peer-$name.json"
  python3 "$root/scripts/peer_torch.py" "$out/step-$name.json" --json "$out/peer-$name.json"
}
table() {
  if ! command -v python3 > /dev/null; then echo "skipped: there is no python3"; exit 77; fi
  python3 "$root/scripts/gpu_table.py" "$out" --json "$out/table.json"
}
# Two steps of one rank; without a choice of products, which would take an hour here. racecheck also reports cuBLASLt's own
# kernels, whose order it does not see: only ours count.
sanitize() { # sanitize TOOL
  local rc=0
  if ! command -v compute-sanitizer > /dev/null; then echo "skipped: there is no compute-sanitizer"; exit 77; fi
  shards
  compute-sanitizer --tool "$1" --error-exitcode 9 "$trireme" train config.yaml --set "train.name=$1" --set kernels.device=cuda \
    --set kernels.autotune=false --set kernels.attention=ours --set train.steps=2 --set train.warmup=0 --set train.eval_every=0 \
    > "$1.txt" 2>&1 || rc=$?
  cat "$1.txt"
  if [ "$1$rc" = racecheck9 ]; then
    if grep -qE '(Read|Write) access at .*trireme' "$1.txt" || ! grep -q '^finished ' "$1.txt"; then exit 1; fi
    echo "hazards in kernels of libraries only: $(grep -c 'Error: Race' "$1.txt")"
    rc=0
  fi
  exit $rc
}

"$@"
