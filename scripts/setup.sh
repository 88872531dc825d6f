#!/usr/bin/env bash
# Installs missing packages for building and testing Trireme; returns at once if nothing is missing.
#   scripts/setup.sh           install, through apt on Debian and Ubuntu, as root or by sudo
#   scripts/setup.sh --check   only list what is missing; exits 1 if anything is
# If it cannot install, it names the packages and exits 1. It never installs CUDA: an existing toolkit is
# used. Nor does it install Slurm: the test that needs it is skipped; see scripts/local_slurm.sh.
set -euo pipefail

# Requirements: a command, or alternative C++ headers; then the package on Debian and Ubuntu, Fedora, Arch.
needed='
command  g++                                               g++                  gcc-c++             gcc
command  make                                              make                 make                make
command  cmake                                             cmake                cmake               cmake
command  ninja                                             ninja-build          ninja-build         ninja
command  pkg-config                                        pkg-config           pkgconf-pkg-config  pkgconf
command  xz                                                xz-utils             xz                  xz
command  mpicc                                             libopenmpi-dev       openmpi-devel       openmpi
command  mpirun                                            openmpi-bin          openmpi             openmpi
command  h5cc                                              libhdf5-dev          hdf5-devel          hdf5
command  h5dump                                            hdf5-tools           hdf5                hdf5
header   catch2/catch_all.hpp|catch2/catch.hpp             catch2               catch-devel         catch2
header   CLI/CLI.hpp                                       libcli11-dev         cli11-devel         cli11
header   yaml-cpp/yaml.h                                   libyaml-cpp-dev      yaml-cpp-devel      yaml-cpp
header   nlohmann/json.hpp                                 nlohmann-json3-dev   json-devel          nlohmann-json
header   oneapi/dnnl/dnnl.hpp                              libdnnl-dev          onednn-devel        onednn
header   pcre2.h                                           libpcre2-dev         pcre2-devel         pcre2
header   sentencepiece_processor.h                         libsentencepiece-dev sentencepiece-devel sentencepiece
header   utf8proc.h                                        libutf8proc-dev      utf8proc-devel      libutf8proc
header   zlib.h                                            zlib1g-dev           zlib-devel          zlib
header   zstd.h                                            libzstd-dev          libzstd-devel       zstd
header   lzma.h                                            liblzma-dev          xz-devel            xz
header   bzlib.h                                           libbz2-dev           bzip2-devel         bzip2
header   xxhash.h                                          libxxhash-dev        xxhash-devel        xxhash
'

# The preprocessor says which headers it sees: one line of '|'-joined names for each that is there.
visible_headers() {
  command -v g++ > /dev/null || return 0
  local names name condition
  while read -r _ names _; do
    condition=0
    for name in ${names//|/ }; do condition+=" || __has_include(<$name>)"; done
    printf '#if %s\n"%s"\n#endif\n' "$condition" "$names"
  done < <(grep '^header' <<< "$needed") | g++ -E -P -x c++ - | tr -d '"'
}

# The packages that are missing, by their names on the given distribution (a column: 1 Debian, 2 Fedora, 3 Arch).
missing_packages() {
  local column=$1 seen kind what names
  seen=$(visible_headers)
  while read -r kind what names; do
    case $kind in
      command) command -v "$what" > /dev/null && continue ;;
      header) grep -qxF "$what" <<< "$seen" && continue ;;
      *) continue ;;
    esac
    read -r -a names <<< "$names"
    echo "${names[column - 1]}"
  done <<< "$needed" | sort -u | tr '\n' ' '
}

install_by_apt() {
  local packages=$1 root=()
  export DEBIAN_FRONTEND=noninteractive
  if [ "$(id -u)" != 0 ]; then root=(sudo --preserve-env=DEBIAN_FRONTEND); fi
  local install=("${root[@]}" apt-get install --yes --no-install-recommends --quiet)
  # shellcheck disable=SC2086  # a list of names
  if ! "${install[@]}" --simulate $packages > /dev/null 2>&1; then "${root[@]}" apt-get update --quiet; fi
  # shellcheck disable=SC2086
  if ! "${install[@]}" $packages; then
    "${root[@]}" apt-get update --quiet  # the lists were too old: what they name is gone from the mirror
    # shellcheck disable=SC2086
    "${install[@]}" $packages
  fi
}

tell_missing() {
  echo "setup: missing, as Debian and Ubuntu call them: $(missing_packages 1)"
  echo "setup: on Fedora: $(missing_packages 2)(then: module load mpi)"
  echo "setup: on Arch: $(missing_packages 3)"
} >&2

case ${1:-} in
  '' | --check) ;;
  --help) sed -n '2,6s/^# //p' "$0"; exit 0 ;;
  *) echo "setup: unknown argument '$1'; allowed: --check" >&2; exit 2 ;;
esac

missing=$(missing_packages 1)
if [ -z "$missing" ]; then exit 0; fi
if [ "${1:-}" = --check ]; then tell_missing; exit 1; fi
if ! command -v apt-get > /dev/null; then
  tell_missing
  echo "setup: install them with this machine's package manager, then try again" >&2
  exit 1
fi
if [ "$(id -u)" != 0 ] && ! command -v sudo > /dev/null; then
  echo "setup: this needs root, and there is no sudo; as root: apt-get install --no-install-recommends $missing" >&2
  exit 1
fi
echo "setup: installing $missing"
if ! install_by_apt "$missing"; then
  echo "setup: could not install $missing (on Ubuntu the component 'universe' must be enabled)" >&2
  exit 1
fi
still=$(missing_packages 1)
if [ -n "$still" ]; then
  echo "setup: installed, but still not found: $still" >&2
  exit 1
fi
