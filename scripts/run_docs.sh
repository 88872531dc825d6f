#!/usr/bin/env bash
# Runs the blocks of README.md and docs/ that are marked as runnable, as a reader would type them in a fresh clone.
#   scripts/run_docs.sh [--program PATH] [--keep] [PAGE...]   pages, in this order; default: README.md, then docs/ by name
#   scripts/run_docs.sh --list [PAGE...]                      prints the blocks and runs nothing
#
# A block is runnable if its fence is ```sh runnable. A comment <!-- runnable: COMMANDS --> runs commands that readers do not see.
# Each page is one bash with -euo pipefail, at the root of a clone of HEAD that all pages share; HOME is an empty directory.
# The program is not compiled again: build/trireme in the clone, also first in PATH as trireme, calls PATH (default build/trireme).
# It appends $RUN_DOCS_TRAIN to `trireme train`, so that a comment can shorten the runs of a block:
#   <!-- runnable: export RUN_DOCS_TRAIN="--set train.steps=4" -->
# Exit code: 0 if every command succeeded; 77 if nothing can be run; 1 after naming page, line and output of the first failure of
# each page. --keep keeps the clone. A page may take 300 seconds.
set -euo pipefail

fail() { echo "run_docs: $*" >&2; exit 1; }

list="" keep="" program=build/trireme pages=()
while [ $# -gt 0 ]; do
  case $1 in
    --list) list=yes ;;
    --keep) keep=yes ;;
    --program) program=${2:?--program needs a path}; shift ;;
    -*) fail "unknown option $1; see the first lines of $0" ;;
    *) pages+=("$(realpath -- "$1")") ;;
  esac
  shift
done
program=$(realpath -m -- "$program")
cd "$(dirname "$0")/.."
checkout=$PWD
if [ ${#pages[@]} = 0 ]; then mapfile -t pages < <(echo README.md; find docs -name '*.md' | LC_ALL=C sort); fi

# The runnable lines of a page at their line numbers, all others empty; with list=1 a line for each block instead. A page's first
# line holds no command: `first` takes its place.
extract() {
  awk -v list="$2" -v page="$1" -v first="$3" '
    function end_block() {
      if (list && lines > 0) printf "%s:%d: %d %s%s: %s\n", page, begin, lines, lines == 1 ? "line" : "lines", hidden, opening
      lines = 0
    }
    function take(text) {
      if (text ~ /[^ ]/ && lines++ == 0) { begin = NR; opening = text; gsub(/^ *| *$/, "", opening) }
      if (!list) line = line text
    }
    function take_comment(text,   end) {  # up to its end
      end = index(text, "-->")
      take(end ? substr(text, 1, end - 1) : text)
      if (end) { end_block(); comment = 0 }
    }
    {
      line = NR == 1 ? first : ""
      if (comment) take_comment($0)
      else if (fence != "") {
        text = $0; sub(/^ */, "", text); sub(/ *$/, "", text)
        if (text == fence) { end_block(); fence = ""; runnable = 0 }
        else if (runnable) take(substr($0, match($0, /[^ ]/) > indent ? indent + 1 : RSTART ? RSTART : 1))
      } else if (match($0, /^ *(```+|~~~+)/)) {
        indent = match($0, /[^ ]/) - 1
        fence = $0; sub(/^ */, "", fence); sub(/[^`~].*/, "", fence)
        runnable = $0 ~ /^ *[`~]+ *sh runnable *$/
        hidden = ""
      } else if (match($0, /^ *<!-- *runnable:/)) {
        comment = 1; hidden = ", hidden"
        take_comment(substr($0, RSTART + RLENGTH))
      }
      if (!list) print line
    }
    END { if (comment || fence != "") { printf "%s:%d: this block has no end\n", page, NR > "/dev/stderr"; exit 1 } }
  ' "$1"
}

if [ -n "$list" ]; then
  for page in "${pages[@]}"; do extract "${page#"$checkout"/}" 1 ""; done
  exit
fi

[ -x "$program" ] || fail "$program does not exist; compile it with make"
if ! git -C "$checkout" rev-parse --verify --quiet HEAD > /dev/null; then
  echo "run_docs: no git checkout to clone"
  exit 77
fi
scratch=$(mktemp -d "${TMPDIR:-/tmp}/run_docs.XXXXXX")
trap '[ -n "$keep" ] || rm -rf "$scratch"' EXIT
clone=$scratch/trireme

prepare() {
  git clone --quiet --shared "$checkout" "$clone"
  mkdir "$scratch/home" "$clone/build"
  # shellcheck disable=SC2016  # the wrapper expands it
  printf '#!/bin/bash\n[ "${1:-}" != train ] || set -- "$@" ${RUN_DOCS_TRAIN:-}\nexec %q "$@"\n' "$program" > "$clone/build/trireme"
  chmod +x "$clone/build/trireme"
  cat > "$scratch/prologue" <<'END'
set -euo pipefail
trap 'echo "$LINENO $?" >&8' ERR
trap 'echo "+ $LINENO: ${BASH_COMMAND%%$newline*}" >&9' DEBUG
END
}

# run_page PAGE SCRIPT LOG: its exit code. The log has a line "+ LINE: command" before the output of each command.
run_page() {
  ( cd "$clone" && env -u BASH_ENV -u RUN_DOCS_TRAIN HOME="$scratch/home" PATH="$clone/build:$PATH" newline=$'\n' \
      OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1 \
      OMPI_MCA_hwloc_base_binding_policy=none PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe \
      timeout --kill-after=10 300 bash "$1" < /dev/null >> "$2" 2>&1 9>> "$2" 8> "$scratch/failed" )
}

# The line that failed and its output, with the commands that led to it.
report() {
  local page=$1 script=$2 log=$3 code=$4 line
  line=$(tail -n 1 "$scratch/failed" | cut -d ' ' -f 1)
  [ -n "$line" ] || line=$(sed -nE "s|^$script: line ([0-9]+): .*|\1|p" "$log" | tail -n 1)  # bash itself ended
  [ -n "$line" ] || line=$(sed -nE 's/^\+ ([0-9]+): .*/\1/p' "$log" | tail -n 1)
  echo "$page:${line:-1}: failed with exit code $code"
  if [ -s "$scratch/failed" ]; then sed -i '${/^+ /d}' "$log"; fi  # the trap that names the line is a command, too
  awk '/^\+ [0-9]+: / { if (!mark) text = ""; mark = 1; text = text $0 "\n"; next } { mark = 0; text = text $0 "\n" } END { printf "%s", text }' \
    "$log" | sed "s|$script: line|$page:|" | tail -n 40 | sed 's/^/    /'
}

prepare
failed=0 blocks=0
for page in "${pages[@]}"; do
  name=${page#"$checkout"/}
  script=$scratch/$(basename "$page").sh log=$scratch/$(basename "$page").log
  extract "$name" "" ". $(printf %q "$scratch/prologue"); " > "$script" || { failed=1; continue; }
  count=$(extract "$name" 1 "" | grep -vc ', hidden: ' || true)
  [ "$count" -gt 0 ] || continue
  blocks=$((blocks + count))
  : > "$log"
  begin=$SECONDS code=0
  run_page "$script" "$log" || code=$?
  if [ "$code" = 0 ]; then
    echo "$name: $count blocks, $((SECONDS - begin)) s"
  else
    report "$name" "$script" "$log" "$code"
    failed=1
  fi
done
[ -z "$keep" ] || echo "run_docs: kept $clone"
if [ "$blocks" = 0 ] && [ "$failed" = 0 ]; then
  echo "run_docs: no runnable block"
  exit 77
fi
exit $failed
