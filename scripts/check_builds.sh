#!/usr/bin/env bash
# Compiles the program for many processors with many compilers, and runs it for other processors by
# emulation.
#   scripts/check_builds.sh                    every compiler found here, for each -march below; then x86-64-v2 under qemu
#   scripts/check_builds.sh --install          the same, after installing every g++ and clang that the distribution offers (root)
#   scripts/check_builds.sh --slice            base/ and kernels/ for x86-64-v2 and -v4 with this g++, warnings as errors: CI's part
#   scripts/check_builds.sh --emulate          x86-64-v2: kernels' tests and a tiny training under qemu
#   scripts/check_builds.sh --aarch64          cross-compile for Arm, then the same under qemu; installs arm64 libraries (root)
#   scripts/check_builds.sh --roots [SUITE..]  all but --slice in fresh roots of bookworm, trixie and noble (root, debootstrap)
# $TRIREME_COMPILERS and $TRIREME_MARCHES, lists of words, choose fewer. Prints one row of a Markdown table for each build: compiler,
# -march, seconds, warnings, result. Logs: build/builds/.
set -euo pipefail
cd "$(dirname "$0")/.."

builds=build/builds
marches=${TRIREME_MARCHES:-x86-64-v2 x86-64-v3 x86-64-v4 znver4 sapphirerapids native}
failed=0

row() { printf '| %s | %s | %s | %s | %s |\n' "$@"; }
heading() { row compiler -march seconds warnings result && row --- --- --- --- ---; }

version_of() { "$1" --version | sed -nE '1s/.* ([0-9]+\.[0-9]+\.[0-9]+).*/\1/p'; }

# build NAME COMPILER MARCH TARGETS [OPTION...]: configures and compiles build/builds/NAME and prints its row.
build() {
  local name=$1 compiler=$2 march=$3 targets=$4 log=$builds/$1.log begin=$SECONDS result=ok
  shift 4
  # A g++ older than the distribution's own brings an older libstdc++, which lacks what the distribution's libraries take from theirs.
  # shellcheck disable=SC2086  # a list of targets
  { cmake -S . -B "$builds/$name" -G Ninja -DTRIREME_ARCH="$march" -DTRIREME_CUDA=OFF -DCMAKE_CXX_COMPILER="$compiler" \
      -DCMAKE_EXE_LINKER_FLAGS=-Wl,--allow-shlib-undefined "$@" &&
    cmake --build "$builds/$name" --target $targets -- -k 0; } > "$log" 2>&1 || { result="fails: $log"; failed=1; }
  row "$(basename "$compiler") $(version_of "$compiler")" "$march" $((SECONDS - begin)) "$(grep -c 'warning:' "$log" || true)" "$result"
  [ "$result" = ok ]
}

# Every one that is new enough.
versions() { printf 'g++-%s\n' 12 13 14 15 16 && printf 'clang++-%s\n' {16..24}; }

# One at a time: the OpenMP runtimes of clangs exclude each other.
install_compiler() {
  local version=${1##*-} packages=("$1")
  if [ "$1" = "clang++-$version" ]; then packages=("clang-$version" "libomp-$version-dev"); fi
  has_package "${packages[0]}" && install "${packages[@]}"
}
has_package() { apt-cache show "$1" > /dev/null 2>&1; }
install() { DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends --quiet "$@" > "$builds/apt.log" 2>&1 || { tail "$builds/apt.log" >&2; return 1; }; }

# Each compiler for each -march: the whole program. With an argument, compilers that are not here are installed.
check_matrix() {
  local name march
  heading
  for name in ${TRIREME_COMPILERS:-$(versions)}; do
    if [ -n "${1:-}" ] && ! install_compiler "$name" 2> /dev/null; then
      ! has_package "${name/clang++/clang}" || row "$name" - 0 0 "cannot be installed with its OpenMP"
      continue
    fi
    command -v "$name" > /dev/null || continue
    for march in $marches; do
      # An older compiler may not know a newer processor.
      if ! echo | "$name" -march="$march" -x c++ -fsyntax-only - 2> /dev/null; then
        row "$name $(version_of "$name")" "$march" 0 0 "not known to this compiler"
        continue
      fi
      build "$name-$march" "$name" "$march" trireme || true
      rm -rf "${builds:?}/$name-$march"
    done
  done
}

check_slice() {
  local options=(-DTRIREME_WERROR=ON -DBUILD_TESTING=OFF)
  heading
  build slice-v2 "$(command -v g++)" x86-64-v2 'base kernels' "${options[@]}" || true
  build slice-v4 "$(command -v g++)" x86-64-v4 'base kernels' "${options[@]}" || true
}

# train_tiny COMMAND...: the program, possibly under an emulator, makes shards, trains four steps,
# continues for two and verifies.
train_tiny() {
  local place trireme=("$@")
  place=$(mktemp -d)
  (
    cd "$place"
    head -c 60000 "$OLDPWD/base/json.cpp" "$OLDPWD/ARCHITECTURE.md" "$OLDPWD/README.md" > train.txt
    head -c 20000 "$OLDPWD/CONTRIBUTING.md" > held.txt
    cat > tiny.yaml << 'YAML'
model: {family: llama, layers: 2, width: 64, heads: 2, vocab: 257, context: 64}
kernels: {dtype: bf16}
data: {train: [shards/train-00000.h5], validation: [shards/validation-00000.h5], tokenizer: bytes}
train: {name: tiny, steps: 4, batch: 4, microbatch: 2, warmup: 1, eval_every: 0, eval_sequences: 4}
YAML
    "${trireme[@]}" data build train.txt --validation-input held.txt --output shards --tokenizer bytes
    "${trireme[@]}" train tiny.yaml
    "${trireme[@]}" train tiny.yaml --set train.steps=6
    "${trireme[@]}" checkpoint verify runs/tiny
  ) > "$builds/train.log" 2>&1 || { tail -n 20 "$builds/train.log" >&2; return 1; }
  grep -E '^ *(step +)?6\b|whole|verified' "$builds/train.log" | tail -n 2
  rm -rf "$place"
}

# run_emulated EMULATOR BUILD: the kernels' tests and a tiny training of a build for another processor.
run_emulated() {
  local begin=$SECONDS emulator=$1 tree=$PWD/$builds/$2
  # shellcheck disable=SC2086  # the emulator has options
  OMP_NUM_THREADS=2 $emulator "$tree/test/test_kernels" '~[unsanitized]' > "$builds/kernels.log" 2>&1 || { tail -n 30 "$builds/kernels.log" >&2; failed=1; }
  echo "$emulator: kernels: $(tail -n 2 "$builds/kernels.log" | tr -d '\n'), $((SECONDS - begin)) s"
  begin=$SECONDS
  # shellcheck disable=SC2086
  if OMP_NUM_THREADS=2 train_tiny $emulator "$tree/trireme"; then echo "$emulator: data build, train, resume, verify: ok, $((SECONDS - begin)) s"; else failed=1; fi
}

# find_emulator PROCESSOR: sets emulator.
find_emulator() {
  command -v "qemu-$1-static" > /dev/null || command -v "qemu-$1" > /dev/null || install qemu-user-static || install qemu-user
  emulator=$(command -v "qemu-$1-static" || command -v "qemu-$1")
}

# File by file, so that each file includes what it needs.
check_x86_64_v2() {
  find_emulator x86_64
  heading
  build emulated-v2 "$(command -v g++)" x86-64-v2 'trireme test_kernels' -DTRIREME_UNITY=OFF || return 0
  run_emulated "$emulator -cpu Nehalem" emulated-v2  # it has x86-64-v2 and no more
}

# Arm's libraries lie in a folder of their own, $TRIREME_ARM_ROOT: beside this machine's some packages exclude each other.
check_aarch64() {
  local root=${TRIREME_ARM_ROOT:-/var/tmp/trireme-roots/arm64}
  install g++-12-aarch64-linux-gnu debootstrap
  find_emulator aarch64
  [ -e "$root/complete" ] || make_arm_root "$root"
  heading
  build aarch64 "$(command -v aarch64-linux-gnu-g++-12)" armv8.2-a 'trireme test_kernels' -DCMAKE_TOOLCHAIN_FILE="$PWD/cmake/aarch64.cmake" -DCMAKE_SYSROOT="$root" || return 0
  run_emulated "$emulator -L $root" aarch64
}

# Packages of Debian 12, unpacked and not installed: its Catch2 is headers alone, and its libraries are older than any compiler here.
make_arm_root() {
  local root=$1 package libraries
  libraries=$(sed -nE 's/^(command|header) +[^ ]+ +((lib|zlib|catch2|nlohmann)[^ ]*) .*/\2/p' scripts/setup.sh | sort -u | paste -sd,)
  rm -rf "$root"
  mkdir -p "$root"
  debootstrap --arch=arm64 --foreign --variant=minbase --include="$libraries,libc6-dev,libstdc++-12-dev" bookworm "$root" \
    "${TRIREME_MIRROR:-http://deb.debian.org/debian}" > "$builds/arm-root.log" 2>&1
  for package in "$root"/var/cache/apt/archives/*.deb; do dpkg-deb --fsys-tarfile "$package" | tar -C "$root" -x --keep-directory-symlink; done
  touch "$root/complete"
}

check_roots() {
  local suites=("$@") suite
  [ ${#suites[@]} -gt 0 ] || suites=(bookworm trixie noble)
  for suite in "${suites[@]}"; do
    scripts/fresh_root.sh "$suite" --command 'scripts/check_builds.sh --install'
    # Arm's libraries are of Debian 12 everywhere.
    [ "$suite" != bookworm ] || scripts/fresh_root.sh "$suite" --keep --command 'scripts/check_builds.sh --aarch64'
  done
}

mkdir -p "$builds"
case ${1:-} in
  '') check_matrix && check_x86_64_v2 ;;
  --install) check_matrix install && check_x86_64_v2 ;;
  --slice) check_slice ;;
  --emulate) check_x86_64_v2 ;;
  --aarch64) check_aarch64 ;;
  --roots) check_roots "${@:2}" ;;
  *) sed -n '2,12s/^# //p' "$0"; exit 2 ;;
esac
exit "$failed"
