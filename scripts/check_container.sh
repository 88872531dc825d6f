#!/usr/bin/env bash
# Builds the Dockerfile from this checkout's HEAD, and runs in the image what its users run: version, doctor, trainings of ten steps.
#   scripts/check_container.sh
# Uses Docker where its daemon answers. Elsewhere it needs root and the packages buildah and debootstrap: buildah follows the
# Dockerfile in a chroot, and debian:12 is made by debootstrap, so no registry is asked. Everything lies in $TRIREME_ROOTS
# (default /var/tmp/trireme-roots); the base image and finished steps are kept there for the next time.
set -euo pipefail
checkout=$(cd "$(dirname "$0")/.." && pwd)
roots=${TRIREME_ROOTS:-/var/tmp/trireme-roots}
work=$roots/container

buildah_here() { buildah --root "$work/storage" --runroot "$work/run" --storage-driver vfs "$@"; }

# A stand-in for debian:12: packages of priority required, and apt.
make_base() {
  echo "check_container: debootstrap bookworm"
  rm -rf "$work/base"
  debootstrap --variant=minbase bookworm "$work/base" "${TRIREME_MIRROR:-http://deb.debian.org/debian}" > "$work/debootstrap.log" 2>&1 ||
    { tail "$work/debootstrap.log" >&2; exit 1; }
  apt-config dump | grep -iE '^Acquire::(http|https)::Proxy' > "$work/base/etc/apt/apt.conf.d/80proxy" || true
  local container
  container=$(buildah_here from scratch)
  buildah_here add --quiet "$container" "$work/base" / > /dev/null
  buildah_here commit --quiet --rm "$container" debian:12 > /dev/null
  rm -rf "$work/base"
}

build() {
  if [ "$with" = docker ]; then
    docker build --tag trireme "$work/source"
  else
    buildah_here images --quiet debian:12 > /dev/null 2>&1 || make_base
    buildah_here build-using-dockerfile --isolation chroot --pull-never --layers --tag trireme "$work/source"
  fi
}

# inside: runs standard input as a shell script in a container of the image.
inside() {
  if [ "$with" = docker ]; then
    docker run --rm --interactive --shm-size=256m trireme bash -eu
  else
    local container status=0
    container=$(buildah_here from --pull-never trireme)
    buildah_here run --isolation chroot "$container" -- bash -eu || status=$?
    buildah_here rm "$container" > /dev/null
    return "$status"
  fi
}

with=docker
if ! docker info > /dev/null 2>&1; then
  with=buildah
  [ "$(id -u)" = 0 ] || { echo "check_container: without Docker this needs root" >&2; exit 1; }
  for tool in buildah debootstrap; do
    command -v "$tool" > /dev/null || { echo "check_container: no Docker daemon answers, and the package $tool is missing" >&2; exit 1; }
  done
fi
mkdir -p "$work"
rm -rf "$work/source"
git clone --quiet "$checkout" "$work/source"
echo "check_container: building with $with"
build
echo "check_container: running the image"
inside << 'EOF_INSIDE'
trireme version
trireme doctor
cp /usr/local/share/doc/trireme/LICENSE held.txt
for i in 1 2 3 4 5 6 7 8 9; do cat held.txt; done > train.txt
trireme data build train.txt --validation-input held.txt --output shards --tokenizer bytes
cat > tiny.yaml << 'YAML'
model: {family: llama, layers: 2, width: 64, heads: 2, vocab: 257, context: 64}
data: {train: [shards/train-00000.h5], validation: [shards/validation-00000.h5], tokenizer: bytes}
train: {name: one, steps: 10, batch: 8, microbatch: 4, warmup: 1, eval_every: 0, eval_sequences: 4}
YAML
trireme train tiny.yaml
mpirun -n 2 trireme train tiny.yaml --set train.name=two
trireme sample one --prompt "Permission is" --tokens 20
for tool in g++ cmake git; do if command -v "$tool"; then echo "the image holds $tool" >&2; exit 1; fi; done
EOF_INSIDE
echo "check_container: the image trireme works"
