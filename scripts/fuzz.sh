#!/usr/bin/env bash
# Runs each fuzz target of a build for some seconds: three quarters of them with inputs of up to 16 KiB, the rest with nested,
# wide and long inputs of up to 1 MiB. Prints a table: executions, those of large inputs, features, the largest memory, findings.
# Exits with 1 if there are any.
#   scripts/fuzz.sh BUILD SECONDS [TARGET]...
set -euo pipefail
cd "$(dirname "$0")/.."
build=$1 seconds=$2 failed=0
shift 2
mkdir -p "$build/found"
scripts/fuzz_seeds.py "$build/seeds"
# Runs the program $1 of target $2 with options and directories; its words go to the log.
run() {
  local program=$1 log=$2
  shift 2
  ASAN_OPTIONS=detect_leaks=0:allocator_may_return_null=1 OMP_NUM_THREADS=1 "$program" -timeout=60 -report_slow_units=60 -rss_limit_mb=2048 \
    -print_final_stats=1 "$@" > "$log" 2>&1 || failed=1
}
stat() { sed -nE "s/^stat::$1: *//p" "$2" | tail -n 1; }
printf '%-14s %14s %14s %10s %8s  %s\n' target executions of-large features MiB found
for program in "$build"/test/fuzz/*_fuzz; do
  name=$(basename "$program" _fuzz)
  if [ $# -gt 0 ] && [[ " $* " != *" $name "* ]]; then continue; fi
  corpus="$build/corpus/$name" log="$build/$name.log" large="$build/$name-large.log"
  mkdir -p "$corpus" "$corpus-large" "$build/seeds/$name"
  seeds=("test/fuzz/corpus/$name")
  if [ "$name" = config ]; then seeds+=(configs); fi
  found="$build/found/$name-"
  run "$program" "$log" -max_total_time=$((seconds * 3 / 4)) -max_len=16384 -artifact_prefix="$found" "$corpus" "${seeds[@]}"
  run "$program" "$large" -max_total_time=$((seconds / 4)) -max_len=1048576 -artifact_prefix="$found" "$corpus-large" \
    "$build/seeds/$name" "${seeds[@]}"
  features=$(grep -ohE 'ft: [0-9]+' "$log" "$large" | cut -c5- | sort -n | tail -n 1 || true)
  memory=$({ stat peak_rss_mb "$log"; stat peak_rss_mb "$large"; } | sort -n | tail -n 1)
  findings=$(find "$build/found" -name "$name-*" | wc -l)
  printf '%-14s %14s %14s %10s %8s  %s\n' "$name" "$(stat number_of_executed_units "$log")" \
    "$(stat number_of_executed_units "$large")" "${features:-0}" "$memory" "$findings"
done
exit $failed
