#!/usr/bin/env bash
# Runs the quickstart: trains a model on this machine's C++ standard library headers, without downloads.
# Called by `make train`.
#   scripts/quickstart.sh [--set section.key=value]... [--resume auto|never|DIR]      arguments of `trireme train`
# Run again, it resumes where it stopped. It makes corpus/quickstart/ (tokenizer, token shards) and runs/quickstart/.
set -euo pipefail
cd "$(dirname "$0")/.."
export LC_ALL=C

trireme=build/trireme
corpus=corpus/quickstart
held_out=$corpus/held_out.txt  # the held-out files, one after the other; written last: the corpus is complete
run=runs/quickstart
for argument in "$@"; do
  case $argument in
    *train.name=*) run=$(dirname "$run")/${argument#*train.name=} ;;
    *train.runs=*) run=${argument#*train.runs=}/$(basename "$run") ;;
  esac
done

# Prints the directory of the compiler's <vector>.
find_headers() {
  local vector
  vector=$(echo '#include <vector>' | "${CXX:-g++}" -E -x c++ - | sed -n 's|^# 1 "\(.*/vector\)".*|\1|p' | head -n 1)
  [ -n "$vector" ] || { echo "quickstart: ${CXX:-g++} does not find <vector>; scripts/setup.sh installs a compiler" >&2; return 1; }
  dirname "$vector"
}

# Every 20th file, by path, is held out: neither the tokenizer nor the model sees it.
build_corpus() {
  local headers files train=() validation=()
  headers=$(find_headers)
  mapfile -t files < <(find "$headers/" -type f | sort)
  for i in "${!files[@]}"; do
    if ((i % 20 == 19)); then validation+=("${files[i]}"); else train+=("${files[i]}"); fi
  done
  echo "quickstart: ${#files[@]} files of $headers; ${#validation[@]} of them held out"
  rm -rf "$corpus"
  mkdir -p "$corpus"
  "$trireme" tokenizer train "${train[@]}" --vocab 4096 --output "$corpus/tokenizer.json"
  "$trireme" data build "${train[@]}" --output "$corpus" --tokenizer "$corpus/tokenizer.json" --validation-input "${validation[@]}"
  cat "${validation[@]}" > "$held_out.tmp"
  mv "$held_out.tmp" "$held_out"
}

report() {
  local bytes xz_bytes bits seconds
  bytes=$(wc -c < "$held_out")
  xz_bytes=$(xz -9e --stdout "$held_out" | wc -c)
  bits=$(grep '"val_loss"' "$run/metrics.jsonl" | tail -n 1 | sed -nE 's/.*"bits_per_byte": ?([0-9.eE+-]+).*/\1/p')
  seconds=$(sed -nE 's/.*"step_ms": ?([0-9.eE+-]+).*/\1 1000/p; s/.*"seconds": ?([0-9.eE+-]+).*/\1 1/p' "$run/metrics.jsonl" |
    awk '{ sum += $1 / $2 } END { print sum }')
  echo
  awk -v model="${bits:-nan}" -v xz="$xz_bytes" -v bytes="$bytes" -v seconds="$seconds" 'BEGIN {
    printf "held-out files       %d bytes\n", bytes
    printf "this model needs     %.3f bits per byte\n", model
    printf "xz -9e needs         %.3f bits per byte\n", 8 * xz / bytes
    printf "steps, evaluations   %d min %d s\n", seconds / 60, seconds % 60
  }'
  echo "checkpoint           $(find "$run/checkpoints" -mindepth 1 -maxdepth 1 -name 'step-*' | sort | tail -n 1)"
  echo "report               $run/report.html"
}

[ -x "$trireme" ] || { echo "quickstart: $trireme is not there; run make" >&2; exit 1; }
[ -e "$held_out" ] || build_corpus
"$trireme" train configs/quickstart.yaml "$@"
echo
"$trireme" sample "$run" --prompt $'template<typename _Tp>\n' --tokens 120
report
