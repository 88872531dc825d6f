#!/bin/sh
# Copies a run's checkpoints to an object store and back.
#   scripts/object_store.sh new URL        once, before the first start: says that nothing was uploaded yet
#   scripts/object_store.sh upload URL     as checkpoint.command
#   scripts/object_store.sh fetch URL      as trireme supervise --fetch 'scripts/object_store.sh fetch URL' -- ...
# URL is s3://BUCKET/RUN (uses aws), gs://BUCKET/RUN (gcloud), https://ACCOUNT.blob.core.windows.net/CONTAINER/RUN (azcopy), or a
# directory (cp). The store then has: latest, the name of the newest step that is complete; records/; checkpoints/STEP/; probe, for `new`.
# A store that cannot be reached is an error, and never taken for an empty one: fetch ends with 1 then.
set -eu

usage() { sed -n '2,8s/^# //p' "$0" >&2; exit 2; }
[ $# = 2 ] || usage
order=$1 url=${2%/}

# put FILE NAME, get NAME FILE: one file. up DIRECTORY NAME, down NAME DIRECTORY: all files of one.
case $url in
  s3://*)
    put() { aws s3 cp --only-show-errors "$1" "$url/$2"; }
    get() { aws s3 cp --only-show-errors "$url/$1" "$2"; }
    up() { aws s3 sync --only-show-errors "$1" "$url/$2"; }
    down() { aws s3 sync --only-show-errors "$url/$1" "$2"; }
    ;;
  gs://*)
    put() { gcloud storage cp --quiet "$1" "$url/$2"; }
    get() { gcloud storage cp --quiet "$url/$1" "$2"; }
    up() { gcloud storage rsync --quiet --recursive "$1" "$url/$2"; }
    down() { gcloud storage rsync --quiet --recursive "$url/$1" "$2"; }
    ;;
  https://*)
    put() { azcopy copy --log-level=ERROR "$1" "$url/$2"; }
    get() { azcopy copy --log-level=ERROR "$url/$1" "$2"; }
    up() { azcopy sync --log-level=ERROR --recursive "$1" "$url/$2"; }
    down() { azcopy copy --log-level=ERROR --recursive "$url/$1/*" "$2"; }  # sync keeps what is newer here
    ;;
  *://*) usage ;;
  *)
    put() { mkdir -p "$(dirname "$url/$2")" && cp "$1" "$url/$2.part" && mv "$url/$2.part" "$url/$2"; }
    get() { cp "$url/$1" "$2"; }
    up() { mkdir -p "$url/$2" && cp -r "$1/." "$url/$2"; }
    down() { cp -r "$url/$1/." "$2"; }
    ;;
esac

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

set_latest() { echo "$1" > "$work/latest" && put "$work/latest" latest; }

# Growing files are copied as they are now: a start drops the lines after the checkpoint's step.
upload() {
  step=${TRIREME_CHECKPOINT##*/}
  mkdir "$work/records"
  cp "$TRIREME_RUN/run.id" "$TRIREME_RUN"/*.jsonl "$work/records"
  up "$TRIREME_CHECKPOINT" "checkpoints/$step"
  up "$work/records" records
  set_latest "$step"
}

fetch() {
  get latest "$work/latest"
  step=$(cat "$work/latest")
  if [ "$step" = new ]; then echo "object_store: nothing was uploaded to $url yet"; return; fi
  mkdir -p "$TRIREME_RUN/checkpoints/$step"
  down records "$TRIREME_RUN"
  down "checkpoints/$step" "$TRIREME_RUN/checkpoints/$step"
}

case $order in
  new)
    # A file that cannot be read is missing, if one that was just written can be.
    echo probe > "$work/probe"
    put "$work/probe" probe
    get probe "$work/read"
    if get latest "$work/latest" 2> /dev/null; then echo "object_store: $url has $(cat "$work/latest")" >&2; exit 1; fi
    set_latest new
    ;;
  upload) upload ;;
  fetch) fetch ;;
  *) usage ;;
esac
