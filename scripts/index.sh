#!/usr/bin/env bash
# Prints each source file of the rooms with the first sentence of its opening comment: a header stands for its .cpp and .cu.
#   scripts/index.sh [ROOM...]        rooms such as train/step; default: all
set -euo pipefail
cd "$(dirname "$0")/.."
rooms=("$@")
[ ${#rooms[@]} -gt 0 ] || rooms=(base kernels parallel data model checkpoint train)

git ls-files --cached --others --exclude-standard -- "${rooms[@]}" | grep -E '\.(h|cuh|cpp|cu)$' | sort |
  awk '
    # The opening comment of a file, up to the end of its first sentence.
    function promise(file,   line, words) {
      while ((getline line < file) > 0 && line ~ /^\/\/ /) {
        words = words (words == "" ? "" : " ") substr(line, 4)
        if (match(words, /[.:](  *|$)/) && RSTART > 24) { words = substr(words, 1, RSTART - 1); break }
      }
      close(file)
      sub(/\.$/, "", words)
      return words
    }
    {
      directory = name = $0
      sub(/[^\/]*$/, "", directory)
      sub(/.*\//, "", name)
      stem = name
      sub(/\..*/, "", stem)
      if (name ~ /\.(h|cuh)$/) headers[directory stem] = 1
      else stems[NR] = directory stem
      all[NR] = $0; where[NR] = directory; names[NR] = name
    }
    END {
      for (i = 1; i <= NR; ++i) {
        if (i in stems && stems[i] in headers) continue
        if (where[i] != last) printf "%s%s\n", last == "" ? "" : "\n", last = where[i]
        printf "  %-28s %s\n", names[i], promise(all[i])
      }
    }'
