#!/usr/bin/env bash
# Tries gpu_check.sh on the emulated GPU of a build: every check passes or says why it was skipped, the
# archive is whole, a failure and a missing GPU are reported as such, and each group fits eight minutes.
#   scripts/check_gpu_check.sh BUILD
set -euo pipefail
build=$(cd "$1" && pwd)
cd "$(dirname "$0")/.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

scripts/gpu_check.sh --list | awk '{ seconds[$1] += $3 }
  END { for (group in seconds) if (seconds[group] >= 480) { print group " takes " seconds[group] " s"; long = 1 }; exit long }'
rc=0
scripts/gpu_check.sh --into "$work/none" nonsense > /dev/null 2>&1 || rc=$?
[ $rc = 1 ] || { echo "an unknown check: exit code $rc"; exit 1; }
if ! nvidia-smi -L > /dev/null 2>&1; then
  rc=0
  scripts/gpu_check.sh --into "$work/none" doctor > /dev/null 2>&1 || rc=$?
  [ $rc = 2 ] || { echo "no GPU: exit code $rc"; exit 1; }
fi

GPU_CHECK_EMULATED=$build scripts/gpu_check.sh --into "$work/all"
listed=$(scripts/gpu_check.sh --list | wc -l)
tar -tf "$work/all.tar" > "$work/packed"
for file in all/check.json all/step-124m.json all/dp2tp2pp2.log; do grep -qx "$file" "$work/packed"; done
[ "$(grep -cE '"verdict": "(passed|skipped)"' "$work/all/check.json")" = "$listed" ] || { echo "not every check is in check.json"; exit 1; }
grep -q '"quantize"' "$work/all/step-124m-fp8.json" || { echo "no product has 8-bit operands"; exit 1; }

# A bound that no run keeps: it fails, and the next check runs all the same.
rc=0
GPU_CHECK_EMULATED=$build GPU_CHECK_BOUND=0 scripts/gpu_check.sh --into "$work/bad" bf16 masks > "$work/bad.txt" 2>&1 || rc=$?
if [ $rc != 1 ] || [ "$(grep -c FAILED "$work/bad.txt")" != 2 ]; then echo "two checks that fail: exit code $rc"; cat "$work/bad.txt"; exit 1; fi
echo "gpu_check: all $listed checks"
