#!/usr/bin/env bash
# Checks all that needs a GPU, from an unpacked bundle. Prints one line for each check and adds it to
# check.json.
#   scripts/gpu_check.sh [--into DIRECTORY] [--at-once N] [GROUP or CHECK...]   default: ./gpu_check, one at a time, all groups
#   scripts/gpu_check.sh --list                                   groups, checks, expected seconds, what each runs
# Each group stands alone and is expected to take less than eight minutes; together they take three
# quarters of an hour. A check that takes three times what is expected, or GPU_CHECK_PATIENCE times, is
# killed. With --at-once, checks that measure no time share the GPU, so many at a time.
# After each check, DIRECTORY.tar is replaced by a copy of the directory with its logs and figures.
# Exits 1 if a check fails, 2 if there is no GPU.
#   GPU_CHECK_EMULATED=BUILD scripts/gpu_check.sh ...   tries this script on the emulated GPU of a build,
#                                                       with tiny models
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
emulated=${GPU_CHECK_EMULATED:-}
out=gpu_check at_once=1
while [ "${1:-}" = --into ] || [ "${1:-}" = --at-once ]; do
  if [ "$1" = --into ]; then out=$2; else at_once=$2; fi
  shift 2
done

# Each check: its name, the seconds that are expected, and a function of gpu_one_check.sh with its arguments.
declare_checks() {
  local mesh
  group=smoke
  add doctor 10 program doctor
  add ops 120 tests test_gpu
  add f32 40 trajectory f32 1e-4
  add bf16 40 trajectory bf16 0.02
  add resume 40 resume
  group=correct
  add steps 40 tests test_gpu_step
  add fp8 60 trajectory_of fp8 fp8 0.02 train.lr=5e-4
  add graph 20 same_bits graph kernels.graph=false
  add masks 45 trajectory_of masks bf16 0.02 model.document_mask=true kernels.attention=ours
  group=speed
  add kernels 20 program bench kernels --cuda
  add step-124m 45 step 124m "" gpt2-124m "${gpt2[@]}"
  add step-124m-masks 45 step 124m-masks "" gpt2-124m "${gpt2[@]}" model.document_mask=true
  add step-124m-shipped 50 step 124m-shipped "" gpt2-124m train.batch=32 model.document_mask=true
  add step-1558m 60 step 1558m "" gpt2-1558m "${gpt2_xl[@]}"
  add step-1.1b 60 step 1.1b "" llama3-1b "${llama_1b[@]}"
  add step-8b-8-layers 80 step 8b-8-layers "" llama3-8b "${llama_8b[@]}"
  add table 5 table
  group=variants
  add step-124m-fp8 45 step 124m -fp8 gpt2-124m "${gpt2[@]}"
  add step-1558m-fp8 60 step 1558m -fp8 gpt2-1558m "${gpt2_xl[@]}"
  add step-8b-8-layers-fp8 80 step 8b-8-layers -fp8 llama3-8b "${llama_8b[@]}"
  add step-8b-8-layers-masks 80 step 8b-8-layers-masks "" llama3-8b "${llama_8b[@]}" model.document_mask=true
  add step-124m-no-graph 45 step 124m-no-graph "" gpt2-124m "${gpt2[@]}" kernels.graph=false
  add step-124m-untuned 45 step 124m-untuned "" gpt2-124m "${gpt2[@]}" kernels.autotune=false
  add variants-table 5 table
  group=wide
  add shipped 60 tests test_gpu_step "the first step of all models*"
  add step-70b-1-layer 80 step 70b-1-layer "" llama3-70b "${llama_70b[@]}"
  add step-405b-1-layer 100 step 405b-1-layer "" llama3-405b "${llama_405b[@]}"
  add wide-table 5 table
  group=peers
  add peer-124m 110 peer 124m gpt2-124m "${gpt2[@]}"
  add peer-1558m 110 peer 1558m gpt2-1558m "${gpt2_xl[@]}"
  add peer-1.1b 110 peer 1.1b llama3-1b "${llama_1b[@]}"
  add peer-8b-8-layers 120 peer 8b-8-layers llama3-8b "${llama_8b[@]}"
  add peer-table 5 table
  group=mesh
  add nccl 150 tests test_gpu_parallel
  add dp2 20 mesh dp2 2
  add zero3 20 mesh zero3 2 parallel.zero=3
  add tp2 20 mesh tp2 2 parallel.tp=2
  add pp2 20 mesh pp2 2 parallel.pp=2
  add dp4 40 mesh dp4 4 train.microbatch=4
  add dp2tp2pp2 60 mesh dp2tp2pp2 8 parallel.tp=2 parallel.pp=2
  group=sanitize
  for mesh in memcheck racecheck initcheck; do add $mesh 120 sanitize $mesh; done
}
gpt2=(model.vocab=50304 train.batch=128 train.microbatch=64)
gpt2_xl=(model.vocab=50304 train.batch=32 train.microbatch=16)
llama_1b=(model.layers=22 model.heads=16 model.kv_heads=4 model.ffn=5632 model.vocab=32000 model.tied=false model.context=4096
  model.rope_scaling=none train.batch=8 train.microbatch=4)
llama_8b=(model.layers=8 train.batch=4 train.microbatch=2)
llama_70b=(model.layers=1 model.vocab=32000 train.batch=4 train.microbatch=1)
llama_405b=(model.layers=1 model.vocab=8192 model.context=2048 train.batch=4 train.microbatch=1)
groups=() checks=() expected=()
declare -A command_of group_of
add() { # add CHECK EXPECTED_SECONDS COMMAND...
  groups+=("$group") checks+=("$1") expected+=("$2")
  group_of[$1]=$group
  command_of[$1]=$(printf '%q ' "${@:3}")
}
if [ "${1:-}" = --list ]; then
  declare_checks
  for i in "${!checks[@]}"; do printf '%-10s %-24s %4d  %s\n' "${groups[$i]}" "${checks[$i]}" "${expected[$i]}" "${command_of[${checks[$i]}]}"; done
  exit
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
if [ -n "$emulated" ]; then  # what a bundle has, from a build
  emulated=$(cd "$emulated" && pwd)
  mkdir -p "$work/root/bin" "$work/root/corpus"
  for name in configs docs scripts test; do ln -s "$root/$name" "$work/root/$name"; done
  for name in "" _parallel _step; do ln -s "$emulated/test/test_cuda$name" "$work/root/bin/test_gpu$name"; done
  ln -s "$emulated/test/trireme_emulated" "$work/root/bin/trireme"
  cat "$root"/*.md "$root"/*/*.h "$root"/*/*/*.h > "$work/root/corpus/text.txt"
  echo emulated > "$work/root/commit"
  root=$work/root
fi
export PATH=$root/bin:$PATH
# CUDA's libraries may stand beside its compiler or in Python's packages.
for place in "$(dirname "$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)")/../lib64" \
  "$(python3 -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])' 2> /dev/null || true)"/nvidia/*/lib; do
  [ ! -d "$place" ] || LD_LIBRARY_PATH=${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$place
done
export LD_LIBRARY_PATH=${LD_LIBRARY_PATH:-}
declare_checks
wanted=("$@")
[ $# -gt 0 ] || wanted=(smoke speed correct variants wide peers mesh sanitize)
for word in "${wanted[@]}"; do
  if [ -z "${group_of[$word]:-}" ] && [[ " ${groups[*]} " != *" $word "* ]]; then
    echo "gpu_check: $word is neither a group nor a check; see --list" >&2
    exit 1
  fi
done
mkdir -p "$out"
out=$(cd "$out" && pwd)
if [ -n "$emulated" ]; then
  echo "emulated GPU" > "$out/gpu.txt"
  has_fp8=1
elif ! nvidia-smi -L > "$out/gpu.txt" 2>&1 || ! grep -q GPU "$out/gpu.txt"; then
  echo "gpu_check: no GPU responds" >&2
  exit 2
else
  nvidia-smi > "$out/nvidia-smi.txt" 2>&1 || true
  has_fp8=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader | awk 'NR == 1 { print ($1 >= 9 ? 1 : 0) }')
fi

failed=0
begun=()
# Runs a check; its log gets what it prints, and its last line is printed. 77: skipped.
check() { # check NAME EXPECTED_SECONDS
  local name=$1 limit=$((${GPU_CHECK_PATIENCE:-3} * $2)) begin rc=0 verdict last_line
  begin=$(date +%s.%N)
  # Kills it with all its children: a run that is only asked to stop would wait for its GPU.
  timeout -s KILL "$limit" bash -c "$root/scripts/gpu_one_check.sh ${command_of[$name]}" > "$out/$name.log" 2>&1 || rc=$?
  case $rc in
    0) verdict=passed ;;
    77) verdict=skipped ;;
    124 | 137) verdict=HUNG ;;
    *) verdict=FAILED ;;
  esac
  echo "$verdict" > "$work/verdicts/$name"
  last_line=$(awk 'NF { last = $0 } END { gsub(/["\\\t]/, " ", last); print substr(last, 1, 120) }' "$out/$name.log")
  local seconds
  seconds=$(awk -v a="$begin" -v b="$(date +%s.%N)" 'BEGIN { printf "%.1f", b - a }')
  exec 9> "$work/lock"  # of checks that end at once, one reports at a time
  flock 9
  printf '%-24s %-7s %6s s  %s\n' "$name" "$verdict" "$seconds" "$last_line"
  printf '{"check": "%s", "group": "%s", "verdict": "%s", "seconds": %s, "last_line": "%s"}\n' "$name" "${group_of[$name]}" \
    "$verdict" "$seconds" "$last_line" >> "$work/lines"
  printf '{"commit": "%s", "gpu": "%s", "checks": [\n%s\n]}\n' "$(cat "$root/commit")" "$(head -n 1 "$out/gpu.txt" | tr -d '"')" \
    "$(sed '$ !s/$/,/' "$work/lines")" > "$out/check.json"
  tar -C "$(dirname "$out")" -cf "$out.tar.new" "$(basename "$out")" 2> /dev/null || true  # 1: another check's log has grown
  mv "$out.tar.new" "$out.tar"
  exec 9>&-
}

# Whether a check measures time, so that nothing may run beside it.
measures() { [[ "${command_of[$1]}" =~ ^(step|peer|table|program)" " ]]; }

# Runs a check, or starts it if others may run beside it.
run_check() { # run_check NAME EXPECTED_SECONDS
  if [ "$at_once" = 1 ] || measures "$1"; then
    wait
    check "$1" "$2"
  else
    while [ "$(jobs -rp | wc -l)" -ge "$at_once" ]; do wait -n || true; done
    check "$1" $(($2 + 60)) &
  fi
  # Without these nothing else says anything.
  for name in doctor ops; do
    case $name$(cat "$work/verdicts/$name" 2> /dev/null || true) in
      doctorFAILED | doctorHUNG | doctorskipped | opsHUNG)
        wait
        echo "gpu_check: stopped after $name" >&2
        exit 1
        ;;
    esac
  done
}

mkdir "$work/verdicts"
cd "$work"
cat > config.yaml << 'EOF'
model: {family: llama, layers: 4, width: 256, heads: 4, kv_heads: 2, ffn: 768, vocab: 257, context: 256}
data: {train: [shards/train-*.h5], validation: [shards/validation-*.h5], tokenizer: bytes}
checkpoint: {every: 20, keep: 2}
train: {name: x, steps: 40, batch: 16, microbatch: 8, lr: 2e-3, warmup: 10, eval_every: 20, eval_sequences: 16}
EOF
if [ -n "$emulated" ]; then
  sed -i -E 's/layers: 4, width: 256, heads: 4, kv_heads: 2, ffn: 768/layers: 2, width: 64, heads: 4, kv_heads: 2, ffn: 128/
    s/context: 256/context: 16/; s/every: 20/every: 3/; s/eval_every: 20/eval_every: 3/; s/steps: 40/steps: 6/; s/warmup: 10/warmup: 2/; s/microbatch: 8/microbatch: 4/
    s/eval_sequences: 16/eval_sequences: 4/' config.yaml
fi
export root out emulated has_fp8
for i in "${!checks[@]}"; do
  for word in "${wanted[@]}"; do
    if [ "$word" = "${groups[$i]}" ] || [ "$word" = "${checks[$i]}" ]; then
      run_check "${checks[$i]}" "${expected[$i]}"
      begun+=("${checks[$i]}")
    fi
  done
done
wait
for name in "${begun[@]}"; do  # a check that died has no verdict
  case $(cat "$work/verdicts/$name" 2> /dev/null || true) in passed | skipped) ;; *) failed=1 ;; esac
done
exit $failed
