#!/usr/bin/env bash
# Makes a bundle: the program, its GPU tests, Open MPI and all libraries they need except glibc and CUDA's,
# in one archive that runs where it is unpacked. For x86-64 machines with AVX2, a glibc not older than this machine's and, for GPUs, the driver and CUDA's libraries.
#   scripts/make_bundle.sh [FILE]     default: build/trireme-bundle.tar.xz
set -euo pipefail
cd "$(dirname "$0")/.."
archive=${1:-build/trireme-bundle.tar.xz}
build=build/bundle
root=$build/packed/trireme

command -v patchelf > /dev/null || { echo "make_bundle: patchelf is missing; on Debian: apt-get install patchelf" >&2; exit 1; }

say() { echo "bundle: $*"; }

compile() {
  # Libraries are looked for beside the program first, for plugins too (that is the old kind of run path), then where CUDA puts its own.
  # shellcheck disable=SC2016  # the loader fills it in
  cmake -S . -B "$build" -G Ninja -DTRIREME_ARCH=x86-64-v3 -DCMAKE_BUILD_WITH_INSTALL_RPATH=ON \
    -DCMAKE_INSTALL_RPATH='$ORIGIN/../lib:/usr/local/cuda/lib64' -DCMAKE_EXE_LINKER_FLAGS=-Wl,--disable-new-dtags > /dev/null
  local targets=(trireme)
  if grep -q '^TRIREME_NVCC:FILEPATH=/' "$build/CMakeCache.txt"; then targets+=(test_gpu test_gpu_parallel test_gpu_step); fi
  cmake --build "$build" --target "${targets[@]}"
}

# Libraries that a program loads, except those of every machine, and of every machine with a GPU.
libraries_of() {
  ldd "$@" 2> /dev/null | awk '$2 == "=>" && $3 ~ "^/" { print $3 }' | sort -u |
    grep -vE '/(ld-linux[^/]*|lib(c|m|dl|pthread|rt|resolv|util)\.so[^/]*|lib(cuda|cudart|cublas|cublasLt|cudnn|nccl|nvidia)[^/]*)$'
}

copy_mpi() {
  local plugins helps pmix
  plugins=$(ompi_info --path pkglibdir | awk '{ print $2 }')
  helps=$(ompi_info --path pkgdatadir | awk '{ print $2 }')
  mkdir -p "$root/libexec" "$root/lib/openmpi" "$root/share/openmpi" "$root/etc"
  cp -L "$(command -v orterun || command -v mpirun)" "$root/libexec/orterun"
  cp -L "$(command -v orted)" "$root/libexec/orted"
  # Only what one machine needs: shared memory and sockets.
  find "$plugins/" -name 'mca_*.so' ! -name '*ucx*' ! -name '*ofi*' ! -name '*openib*' ! -name '*psm*' ! -name '*ucc*' -exec cp -L {} "$root/lib/openmpi/" \;
  cp -L "$helps"/*.txt "$helps"/*.conf "$root/share/openmpi/" 2> /dev/null || true
  pmix=$(find /usr/lib -type d -path '*/pmix*/lib/pmix' | head -n 1)
  if [ -n "$pmix" ]; then
    mkdir -p "$root/lib/pmix"
    cp -L "$pmix"/*.so "$root/lib/pmix/"
  fi
}

# A library that says itself where it looks for others would not look here.
look_here() {
  patchelf --set-rpath '$ORIGIN' "$root"/lib/*.so*
  patchelf --set-rpath '$ORIGIN/..' "$root"/lib/openmpi/*.so
  [ ! -d "$root/lib/pmix" ] || patchelf --set-rpath '$ORIGIN/..' "$root"/lib/pmix/*.so
  patchelf --set-rpath '$ORIGIN/../lib' "$root"/libexec/*
}

write_mpirun() {
  cat > "$root/bin/mpirun" << 'EOF'
#!/bin/sh
# Open MPI of this bundle, on this machine.
root=$(cd "$(dirname "$0")/.." && pwd)
export OPAL_PREFIX="$root" OPAL_PKGDATADIR="$root/share/openmpi" PMIX_INSTALL_PREFIX="$root" PMIX_LIBDIR="$root/lib" PMIX_PKGLIBDIR="$root/lib/pmix"
export LD_LIBRARY_PATH="$root/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" PATH="$root/libexec:$PATH"
export OMPI_MCA_mca_base_component_path="$root/lib/openmpi" PMIX_MCA_mca_base_component_path="$root/lib/pmix"
export OMPI_MCA_plm=isolated OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_hwloc_base_binding_policy=none
exec "$root/libexec/orterun" "$@"
EOF
  chmod +x "$root/bin/mpirun"
}

copy_all() {
  rm -rf "$root"
  mkdir -p "$root/bin" "$root/lib" "$root/corpus"
  cmake --install "$build" --prefix "$PWD/$root" > /dev/null
  for program in test_gpu test_gpu_parallel test_gpu_step; do
    [ ! -x "$build/test/$program" ] || cp "$build/test/$program" "$root/bin/"
  done
  strip --strip-debug "$root"/bin/*
  copy_mpi
  # shellcheck disable=SC2046  # one word for each library
  cp -L $(libraries_of "$root"/bin/* "$root"/libexec/* "$root"/lib/openmpi/*.so "$root"/lib/pmix/*.so) "$root/lib/"
  look_here
  write_mpirun
  ln -s share/trireme/configs "$root/configs"
  mkdir -p "$root/scripts" "$root/test/model"
  cp -r test/model/goldens "$root/test/model/"
  cp scripts/gpu_check.sh scripts/gpu_one_check.sh scripts/gpu_table.py scripts/peer_torch.py "$root/scripts/"
  mkdir -p "$root/docs/gpu"
  cp docs/gpu/predictions.md "$root/docs/gpu/"
  git ls-files '*.h' '*.cpp' '*.cu' '*.md' | xargs cat > "$root/corpus/text.txt"
  git rev-parse HEAD > "$root/commit"
}

compile
copy_all
tar -C "$build/packed" -cf - trireme | xz -T0 -6 > "$archive"
say "$archive, $(du -m "$archive" | cut -f1) MB, of $(cut -c1-12 "$root/commit")"
