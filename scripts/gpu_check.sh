#!/usr/bin/env bash
# Everything that needs a GPU, from an unpacked bundle, in a few minutes. Prints one line for each check and leaves the logs.
#   scripts/gpu_check.sh [DIRECTORY]     where logs and check.json go; without: ./gpu_check
# Exits 1 when a check fails, 2 when there is no GPU.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
out=${1:-gpu_check}
mkdir -p "$out"
out=$(cd "$out" && pwd)
trireme=$root/bin/trireme
failed=0
lines=()

if ! nvidia-smi -L > "$out/gpu.txt" 2>&1 || ! grep -q GPU "$out/gpu.txt"; then
  echo "gpu_check: no GPU answers here" >&2
  exit 2
fi

# check NAME COMMAND...: its output goes to NAME.log; the last line of it is told.
check() {
  local name=$1 begin verdict=passed told
  shift
  begin=$(date +%s.%N)
  if ! timeout 240 "$@" > "$out/$name.log" 2>&1; then verdict=FAILED failed=1; fi
  told=$(grep -v '^$' "$out/$name.log" | tail -n 1 | tr -d '"\\' | cut -c1-120)
  printf '%-12s %-7s %6.1f s  %s\n' "$name" "$verdict" "$(echo "$(date +%s.%N) - $begin" | bc)" "$told"
  lines+=("{\"check\": \"$name\", \"verdict\": \"$verdict\", \"told\": \"$told\"}")
}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
cat > config.yaml << 'EOF'
model: {family: llama, layers: 4, width: 256, heads: 4, kv_heads: 2, ffn: 768, vocab: 257, context: 256}
data: {train: [shards/train-*.h5], validation: [shards/validation-*.h5], tokenizer: bytes}
checkpoint: {every: 20, keep: 2}
train: {name: x, steps: 60, batch: 16, microbatch: 8, lr: 2e-3, warmup: 10, eval_every: 30, eval_sequences: 16}
EOF
head -c 100000 "$root/corpus/text.txt" > held.txt
tail -c +100001 "$root/corpus/text.txt" > train.txt
"$trireme" data build train.txt --validation-input held.txt --output shards --tokenizer bytes > "$out/data.log"

run() { "$trireme" train config.yaml --set "train.name=$1" --set "kernels.device=$2" --set "kernels.dtype=$3"; }
losses() { sed -nE 's/.*"loss": ?([0-9.eE+-]+).*/\1/p' "runs/$1/metrics.jsonl"; }
# trajectory DTYPE BOUND: the largest relative difference of a loss between CPU and GPU.
trajectory() {
  run "cpu-$1" cpu "$1" && run "gpu-$1" cuda "$1" || return 1
  paste <(losses "cpu-$1") <(losses "gpu-$1") | awk -v bound="$2" '
    { d = ($1 - $2) / $1; if (d < 0) d = -d; if (d > most || d != d) most = d; n += 1 }
    END { printf "%d losses differ by at most %.2e, bound %s\n", n, most, bound; exit !(n == 60 && most <= bound) }'
}
# A run is killed and continued: the same bits as one that was not.
resume() {
  local child
  run killed cuda bf16 > killed.txt 2>&1 &
  child=$!
  until [ "$(grep -c . runs/killed/metrics.jsonl 2> /dev/null || echo 0)" -ge 30 ]; do kill -0 $child || break; sleep 0.05; done
  kill -9 $child
  wait $child || true
  run killed cuda bf16 && "$trireme" checkpoint diff runs/gpu-bf16/checkpoints/step-00000060 runs/killed/checkpoints/step-00000060
}
export -f run losses trajectory resume
export trireme

check doctor "$trireme" doctor
check ops "$root/bin/test_gpu" "~[cpu]"
check steps env -C "$root" bin/test_gpu_step "~[cpu]"
check f32 bash -c 'trajectory f32 1e-4'
check bf16 bash -c 'trajectory bf16 0.02'
check resume bash -c resume
if command -v compute-sanitizer > /dev/null; then
  check sanitizer compute-sanitizer --error-exitcode 1 "$trireme" train config.yaml --set train.name=sanitized --set kernels.device=cuda --set train.steps=2 --set train.warmup=0 --set train.eval_every=0
fi

printf '{"commit": "%s", "gpu": "%s", "checks": [\n%s\n]}\n' "$(cat "$root/commit")" "$(head -n 1 "$out/gpu.txt" | tr -d '"')" \
  "$(printf '%s,\n' "${lines[@]}" | sed '$ s/,$//')" > "$out/check.json"
exit $failed
