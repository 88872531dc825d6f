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

# One of two test cases fails, beside another check: it is named, and the other is not.
mkdir -p "$work/broken/test"
ln -s "$build"/test/* "$work/broken/test/"
rm "$work/broken/test/test_cuda"
cat > "$work/broken/test/test_cuda" << 'EOF'
#!/bin/sh
case "$*" in
  *--list-test-names-only*) printf 'one, two [three]\nfour\n' ;;
  'one\, two \[three\]') echo "All tests passed" ;;
  *) echo "no"; exit 1 ;;
esac
EOF
chmod +x "$work/broken/test/test_cuda"
rc=0
GPU_CHECK_EMULATED=$work/broken scripts/gpu_check.sh --into "$work/case" --at-once 2 ops graph > "$work/case.txt" 2>&1 || rc=$?
if [ $rc != 1 ] || ! grep -q '^ops *FAILED .* 1 of 2 tests failed' "$work/case.txt" || ! grep -q '^graph *passed' "$work/case.txt" ||
  ! grep -qx '=== four: exit code 1' "$work/case/ops.log" || grep -q one "$work/case/ops.log"; then
  echo "one of two test cases fails: exit code $rc"
  cat "$work/case.txt" "$work/case/ops.log"
  exit 1
fi
echo "gpu_check: all $listed checks"
