#!/usr/bin/env bash
# Fetches Karpathy's tinyshakespeare (1.1 MB): the last tenth to DIRECTORY/validation.txt, the rest to
# DIRECTORY/train.txt, the usual split.
#   scripts/fetch_tinyshakespeare.sh [DIRECTORY]       corpus/tinyshakespeare without one; TINYSHAKESPEARE_URL: another place to fetch it from
set -euo pipefail

directory=${1:-corpus/tinyshakespeare}
url=${TINYSHAKESPEARE_URL:-https://raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare/input.txt}
bytes=1115394

mkdir -p "$directory"
whole=$(mktemp "$directory/.input.XXXXXX")
trap 'rm -f "$whole"' EXIT
curl --fail --silent --show-error --location --retry 3 --output "$whole" "$url"
if [ "$(stat --format %s "$whole")" != $bytes ] || [ "$(head -c 14 "$whole")" != "First Citizen:" ]; then
  echo "fetch_tinyshakespeare: $url is not the text that was looked for ($bytes bytes that begin with 'First Citizen:')" >&2
  exit 1
fi
held_out=$((bytes / 10))
head -c -$held_out "$whole" > "$directory/train.txt"
tail -c $held_out "$whole" > "$directory/validation.txt"
cat <<END
$directory/train.txt and validation.txt are there. Next:
  build/trireme data build $directory/train.txt --validation-input $directory/validation.txt --output $directory --tokenizer bytes
END
