#!/usr/bin/env bash
# Prints, for each parser, the share of its lines that the fuzzer's corpus covers.
#   scripts/fuzz_coverage.sh BUILD CORPUS SEEDS
set -euo pipefail
cd "$(dirname "$0")/.."
build=$1 corpus=$2 large=$3
parsers="base/json_parser base/json_transfer base/json_file
  train/config/yaml train/config/read_config train/config/keys train/config/step_ranges data/shard/hdf5_file data/shard/shard
  data/tokenizer/tokenizer_json data/tokenizer/tokenizer_json_tokens data/tokenizer/tokenizer_json_members
  data/tokenizer/tokenizer_tiktoken data/tokenizer/tokenizer_bpe data/tokenizer/sentencepiece_model
  data/tokenizer/sentencepiece_cuts data/tokenizer/tokenizer_sentencepiece
  checkpoint/manifest checkpoint/manifest_text checkpoint/rank_files checkpoint/rank_file_read checkpoint/rank_file_verify
  checkpoint/directory_layout checkpoint/reader checkpoint/lineage checkpoint/safetensors
  data/tokenizer/word_pattern train/hub/published_reading train/hub/published_config train/telemetry/metrics_file
  train/run/data_record train/run/known_progress"
find "$build" -name '*.gcda' -delete
for program in "$build"/test/fuzz/*_fuzz; do
  name=$(basename "$program" _fuzz)
  seeds=("test/fuzz/corpus/$name")
  if [ "$name" = config ]; then seeds+=(configs); fi
  for more in "$corpus/$name" "$corpus/$name-large" "$large/$name"; do
    if [ -d "$more" ]; then seeds+=("$more"); fi
  done
  OMP_NUM_THREADS=1 "$program" "${seeds[@]}" > /dev/null
done
printf '%-28s %8s %8s\n' parser lines reached
for parser in $parsers; do
  counts="$build/CMakeFiles/${parser%%/*}.dir/$parser.cpp.gcda"
  if [ ! -f "$counts" ]; then printf '%-28s %8s %8s\n' "$parser.cpp" - none; continue; fi
  gcov --no-output --object-file "${counts%.gcda}.gcno" "$parser.cpp" 2> /dev/null |
    awk -v name="$parser.cpp" '$1 == "File" { wanted = index($2, name) > 0 }
      wanted && !printed && /^Lines executed/ { split($0, part, /[:% ]+/); printf "%-28s %8s %7s%%\n", name, part[5], part[3]; printed = 1 }'
done
