#!/usr/bin/env bash
# Runs each fuzz target of a build for some seconds and prints a table: executions, edges, the largest memory, findings. Exits
# with 1 if there are any.
#   scripts/fuzz.sh BUILD SECONDS
set -euo pipefail
cd "$(dirname "$0")/.."
build=$1 seconds=$2 failed=0
mkdir -p "$build/found"
printf '%-14s %14s %10s %10s %8s  %s\n' target executions per-second features MiB found
for program in "$build"/test/fuzz/*_fuzz; do
  name=$(basename "$program" _fuzz)
  mkdir -p "$build/corpus/$name"
  log="$build/$name.log"
  seeds=("test/fuzz/corpus/$name")
  if [ "$name" = config ]; then seeds+=(configs); fi
  ASAN_OPTIONS=detect_leaks=0:allocator_may_return_null=1 OMP_NUM_THREADS=1 "$program" -max_total_time="$seconds" -timeout=10 \
    -rss_limit_mb=2048 -max_len=16384 -artifact_prefix="$build/found/$name-" -print_final_stats=1 \
    "$build/corpus/$name" "${seeds[@]}" > "$log" 2>&1 || failed=1
  stat() { sed -nE "s/^stat::$1: *//p" "$log" | tail -n 1; }
  features=$(grep -oE 'ft: [0-9]+' "$log" | tail -n 1 | cut -c5- || true)
  found=$(find "$build/found" -name "$name-*" | wc -l)
  printf '%-14s %14s %10s %10s %8s  %s\n' "$name" "$(stat number_of_executed_units)" "$(stat average_exec_per_sec)" "${features:-0}" \
    "$(stat peak_rss_mb)" "$found"
done
exit $failed
