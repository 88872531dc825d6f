#!/usr/bin/env bash
# Compiles every kernel for each architecture and writes their registers to docs/gpu/registers.md. The
# objects stay in build/check_cuda. Exits 1 if a kernel spills registers or ptxas warns.
#   scripts/kernel_registers.sh [ARCHITECTURE...]     default: 80 90 100
set -euo pipefail
cd "$(dirname "$0")/.."
[ $# -gt 0 ] || set -- 80 90 100
nvcc=$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)
page=docs/gpu/registers.md
work=build/check_cuda
rm -rf "$work"
mkdir -p "$work"

for architecture in "$@"; do
  for source in kernels/cuda/*.cu; do echo "$architecture $source"; done
done | xargs -P "$(nproc)" -n 2 bash -c '
  "$0" -std=c++20 -O3 -I. --expt-relaxed-constexpr -gencode "arch=compute_$2,code=sm_$2" -Xptxas -v -c "$3" -o "$1/$(basename "$3").$2.o" \
    2> "$1/$(basename "$3").$2.txt"' "$nvcc" "$work"

if grep -h warning "$work"/*.txt >&2; then exit 1; fi

# One line for each kernel: source, name, architecture, registers, bytes spilled.
for log in "$work"/*.txt; do
  architecture=$(basename "$log" .txt)
  awk -v source="${architecture%%.cu.*}" -v architecture="${architecture##*.}" '
    /Compiling entry function/ { split($0, part, "\x27"); name = part[2]; spilled = 0; next }
    / bytes stack frame/ && name != "" { spilled += $5 + $9; next }
    /Used [0-9]+ registers/ && name != "" {
      for (i = 1; i < NF; ++i) if ($i == "Used") print source "\t" name "\t" architecture "\t" $(i + 1) "\t" spilled
      name = ""
    }' "$log"
done | c++filt | sed -E 's/(\(anonymous namespace\)|trireme)::|void |\(unsigned char\)//g' |
  awk -F '\t' -v architectures="$*" '
    { sub(/\(.*/, "", $2); gsub(/[(]int[)]/, "", $2); key = $1 "\t" $2; used[key, $3] = $4; if ($5 > 0) used[key, $3] = used[key, $3] ", " $5 " bytes spilled"; keys[key] = 1; spilled += $5 }
    END {
      n = split(architectures, architecture, " ")
      for (key in keys) {
        split(key, part, "\t"); line = "| `" part[1] ".cu` | `" part[2] "` |"
        for (i = 1; i <= n; ++i) line = line " " used[key, architecture[i]] " |"
        print line | "sort"
      }
      close("sort")
      exit spilled > 0
    }' > "$work/rows" && spills=none || spills=some

{
  echo "# Registers of the kernels"
  echo
  echo "Registers of each kernel for each architecture, from \`-Xptxas -v\`. \`scripts/kernel_registers.sh\`"
  echo "wrote this page with nvcc's $("$nvcc" --version | grep -oE 'release [0-9.]+'). Kernels that spill registers to memory: $spills."
  echo
  echo "| source | kernel |$(printf ' sm_%s |' "$@")"
  echo "|---|---|$(printf -- '---|%.0s' "$@")"
  cat "$work/rows"
} > "$page"
echo "registers: $page, $(wc -l < "$work/rows") kernels, spills: $spills"
[ $spills = none ]
