#!/usr/bin/env bash
# Trains under a private Slurm of two nodes on this machine, of which one always fails: scripts/launch_slurm.sbatch must leave it
# out, take the spare one, and end with the bits of an undisturbed run.
#   scripts/check_slurm_spare.sh [BUILD]      default: build
# Needs what scripts/local_slurm.sh needs, with a slurmd that may run several times on a machine (Debian's may).
set -euo pipefail
cd "$(dirname "$0")/.."
build=$(realpath "${1:-build}")

if [ -z "${CHECK_SLURM_PLACE:-}" ]; then
  scripts/local_slurm.sh --check
  CHECK_SLURM_PLACE=$(mktemp -d "${TMPDIR:-/tmp}/trireme-spare-XXXXXX")
  export CHECK_SLURM_PLACE
  trap 'rm -rf "$CHECK_SLURM_PLACE"' EXIT
  NODES=2 CPUS=2 scripts/local_slurm.sh run "scripts/$(basename "$0")" "$build"
  exit
fi

say() { echo "check_slurm_spare: $*"; }
fail() { say "$*"; grep -v "^step" "$place"/*.log | tail -n 60; exit 1; }
place=$CHECK_SLURM_PLACE
script=$PWD/scripts/launch_slurm.sbatch
corpus=$PWD/docs/checkpoints.md
cd "$place"
cp "$corpus" held.txt
cat "$corpus" "$corpus" "$corpus" > train.txt
"$build/trireme" data build train.txt --validation-input held.txt --output shards --tokenizer bytes > build.log 2>&1
cat > tiny.yaml << 'YAML'
kernels: {dtype: f32}
model: {family: llama, layers: 1, width: 32, heads: 2, vocab: 257, context: 64}
data: {train: [shards/train-00000.h5], validation: [shards/validation-00000.h5], tokenizer: bytes}
train: {name: spare, steps: 40, batch: 4, microbatch: 1, warmup: 5, eval_every: 0, hang_after: 120}
checkpoint: {every: 10}
YAML
# A rank on n1 reports that its host is bad, as the check at a start does.
cat > trireme << EOF_PROGRAM
#!/bin/sh
if [ "\$1" = train ] && [ "\$SLURMD_NODENAME" = n1 ]; then
  echo '{"code": 76, "cause": "machine", "rank": 0, "host": "n1", "message": "n1 is made to fail"}' > next.\$SLURM_PROCID
  mv next.\$SLURM_PROCID runs/spare/exit.json
  exit 76
fi
if [ "\$1" = train ]; then echo "\$SLURMD_NODENAME" >> nodes; fi
exec "$build/trireme" "\$@"
EOF_PROGRAM
chmod +x trireme

export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
mpirun --oversubscribe -n 2 "$build/trireme" train tiny.yaml --set train.name=whole --set kernels.threads=1 > whole.log 2>&1
TRIREME=./trireme RANKS=2 timeout 300 sbatch --wait --output=spare.log --nodes=2 --ntasks=4 --ntasks-per-node=2 --cpus-per-task=1 \
  "$script" tiny.yaml > sbatch.log 2>&1 || fail "the job failed"
grep -q "supervise: leaves out n1, and takes n2 instead" spare.log || fail "n1 was not replaced"
grep -q "^n1 .*n1 is made to fail" runs/spare/excluded_hosts.txt || fail "n1 is not listed"
"$build/trireme" checkpoint diff runs/whole runs/spare > diff.log 2>&1 || fail "the weights differ"
grep supervise: spare.log
say "trained on $(sort nodes | uniq -c | awk '{ printf "%s%s x %s", (NR > 1 ? ", " : ""), $1, $2 }'); $(tail -n 1 diff.log)"
