#!/usr/bin/env bash
# Runs a program on an emulated processor, in Linux on Bochs: tests of AVX-512, AVX512-BF16 and AMX where no machine has them.
#   scripts/emulate.sh build SOURCE                    compiles Bochs from a clone of github.com/bochs-emu/Bochs
#   scripts/emulate.sh [--cpu MODEL] PROGRAM [ARG...]  default model: sapphire_rapids; prints what the program prints
# Ends with the program's exit status. Emulation is about a hundred times slower than a processor: choose few tests. Bochs lies in
# $TRIREME_BOCHS (default /var/tmp/trireme-bochs). Linux is $TRIREME_VMLINUZ (default: the newest of /boot), from 5.16 on for AMX.
# Compile the program with TRIREME_ARCH=x86-64-v4: an AMD's own instructions are missing there.
# Needs the packages busybox-static, cpio, genisoimage, isolinux and, for a kernel, linux-image-cloud-amd64.
set -euo pipefail

scripts=$(cd "$(dirname "$0")" && pwd)
bochs=${TRIREME_BOCHS:-/var/tmp/trireme-bochs}

# AMX needs XFD in Linux: Bochs 3.0 has no such register, so a patch adds it.
build() {
  local source=$1/bochs built
  built=$(mktemp -d)
  # shellcheck disable=SC2064  # the directory of now
  trap "rm -rf '$built'" EXIT
  cp -r "$source" "$built/bochs"
  cd "$built/bochs"
  patch -p1 < "$scripts/emulate_xfd.patch"
  CFLAGS="-O3 -w" CXXFLAGS="-O3 -w" ./configure --enable-all-optimizations --enable-cpu-level=6 --enable-x86-64 --enable-avx \
    --enable-evex --enable-amx --enable-pci --disable-docbook --without-x --without-x11 --with-nogui
  make -j"$(nproc)"
  mkdir -p "$bochs"
  cp bochs bios/BIOS-bochs-latest bios/VGABIOS-lgpl/VGABIOS-lgpl-latest.bin "$bochs/"
}

# The program and its libraries, as a file system in memory.
file_system() {
  local program=$1 root=$2 library
  shift 2
  mkdir -p "$root"/{bin,dev,proc,sys,tmp}
  cp /bin/busybox "$root/bin/"
  cp "$program" "$root/program"
  for library in $(ldd "$program" | grep -o '/[^ ]*'); do cp -L --parents "$library" "$root"; done
  cat > "$root/init" << END
#!/bin/busybox sh
export OMP_NUM_THREADS=2 HOME=/tmp
busybox mount -t proc proc /proc
busybox mount -t sysfs sys /sys
busybox mount -t devtmpfs dev /dev
busybox mount -t tmpfs tmp /tmp
cd /tmp
/program$(printf ' %q' "$@")
echo "exit status: \$?"
busybox sleep 1000
END
  chmod +x "$root/init"
  (cd "$root" && find . | cpio --quiet -o -H newc)
}

# Bochs reports fast strings, and disables them. Linux then copies wrongly, unless it does without fsrm.
boot() {
  cat << END
default linux
prompt 0
label linux
 kernel vmlinuz
 append initrd=files rdinit=/init console=ttyS0 quiet panic=1 mitigations=off nokaslr tsc=reliable clearcpuid=fsrm
END
}

machine() {
  cat << END
cpu: model=$1, ips=100000000, ignore_bad_msrs=1
memory: guest=1024, host=1024
romimage: file=$bochs/BIOS-bochs-latest
vgaromimage: file=$bochs/VGABIOS-lgpl-latest.bin
boot: cdrom
ata0-master: type=cdrom, path=$2/image, status=inserted
com1: enabled=1, mode=file, dev=$2/output
display_library: nogui
clock: sync=none
log: $2/log
panic: action=fatal
END
}

if [ "${1:-}" = build ]; then
  build "${2:?build needs the clone of Bochs}"
  exit
fi
model=sapphire_rapids
if [ "${1:-}" = --cpu ]; then model=$2 && shift 2; fi
program=${1:?a program to run, see the head of this file}
shift
# shellcheck disable=SC2012  # names of kernels
linux=${TRIREME_VMLINUZ:-$(ls -v /boot/vmlinuz-* 2> /dev/null | tail -1)}
[ -x "$bochs/bochs" ] || { echo "emulate: no Bochs in $bochs: run scripts/emulate.sh build SOURCE" >&2; exit 1; }
[ -r "$linux" ] || { echo "emulate: no kernel to boot: set TRIREME_VMLINUZ, or install linux-image-cloud-amd64" >&2; exit 1; }

work=$(mktemp -d)
emulator=
trap '[ -z "$emulator" ] || kill -9 "$emulator" 2> /dev/null; rm -rf "$work"' EXIT
mkdir "$work/disc"
file_system "$program" "$work/root" "$@" > "$work/disc/files"
cp "$linux" "$work/disc/vmlinuz"
cp /usr/lib/ISOLINUX/isolinux.bin /usr/lib/syslinux/modules/bios/ldlinux.c32 "$work/disc/"
boot > "$work/disc/isolinux.cfg"
genisoimage -quiet -o "$work/image" -b isolinux.bin -c boot.cat -no-emul-boot -boot-load-size 4 -boot-info-table "$work/disc"
machine "$model" "$work" > "$work/machine"
: > "$work/output"
"$bochs/bochs" -q -f "$work/machine" > "$work/console" 2>&1 < /dev/null &
emulator=$!
disown  # no message when it is killed
status=
while read -r line; do
  line=${line%$'\r'}
  case $line in
    "exit status: "*) status=${line#exit status: } && break ;;
    *) echo "$line" ;;
  esac
done < <(tail -n +1 -f --pid="$emulator" "$work/output")
[ -n "$status" ] || { echo "emulate: the machine ended early:" >&2; tail -5 "$work/console" >&2; exit 1; }
exit "$status"
