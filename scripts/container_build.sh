#!/usr/bin/env bash
# Compiles Trireme for a container, in an image that has what scripts/setup.sh installs. Called by Dockerfile and trireme.def.
#   scripts/container_build.sh [DIR]      default: /install
# DIR/usr/local gets what `make install` installs; DIR/packages names the packages that it needs to run.
# ARCH: the oldest processor that must run it; empty: x86-64-v3 (AVX2), on Arm armv8.2-a. CUDA: ON or OFF (default).
set -euo pipefail
cd "$(dirname "$0")/.."
install=${1:-/install}
build=build/container

case $(uname -m) in
  x86_64) usual=x86-64-v3 ;;
  aarch64) usual=armv8.2-a ;;
  *) usual=native ;;
esac
cmake -S . -B "$build" -G Ninja -DTRIREME_ARCH="${ARCH:-$usual}" -DTRIREME_CUDA="${CUDA:-OFF}" -DBUILD_TESTING=OFF
cmake --build "$build" --target trireme
DESTDIR=$install cmake --install "$build" --prefix /usr/local --strip

# The owners of the libraries that it loads. Where /lib is a link to /usr/lib, packages may name files by either.
# CUDA's come with the image that it runs in.
libraries=$(ldd "$build/trireme" | awk '$3 ~ "^/" { print $3 }' | xargs -n 1 realpath)
for library in $libraries; do
  dpkg-query --search "$library" 2> /dev/null || dpkg-query --search "${library#/usr}" 2> /dev/null || true
done | cut -d: -f1 | sort -u | { grep -vE '^(cuda|libcu|libnccl|libnv)' || true; } > "$install/packages"
echo "container_build: $(wc -w < "$install/packages") packages needed to run: $(xargs < "$install/packages")"
