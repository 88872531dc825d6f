#!/usr/bin/env bash
# Proves that a bundle needs no package: unpacks it into a root that has glibc, bash, a few commands and CUDA's libraries, nothing else,
# and runs it there: doctor, plan, a training on the CPU, two ranks.
#   scripts/bundle_check.sh [FILE]     default: build/trireme-bundle.tar.xz.  Needs root.
set -euo pipefail
cd "$(dirname "$0")/.."
archive=${1:-build/trireme-bundle.tar.xz}
[ "$(id -u)" = 0 ] || { echo "bundle_check: chroot and mounts need root" >&2; exit 1; }
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT

mkdir -p "$root"/{bin,proc,sys,dev,tmp,etc,root,usr/local/cuda/lib64}
ln -s bin "$root/sbin"
ln -s ../bin "$root/usr/bin"
commands=(bash env dirname cat head tail ls mkdir rm uname)
for command in "${commands[@]}"; do cp -L "$(command -v "$command")" "$root/bin/"; done
ln -s bash "$root/bin/sh"
# Their libraries, and those of glibc that programs load by name.
ldd "${commands[@]/#/$root/bin/}" | grep -oE '/[^ ]+\.so[^ ]*' | sort -u | while read -r library; do
  mkdir -p "$root$(dirname "$library")"
  cp -L "$library" "$root$library"
done
glibc=$(dirname "$(ldd "$root/bin/bash" | awk '/libc\.so/ { print $3 }')")
for library in libm.so.6 libdl.so.2 libpthread.so.0 librt.so.1 libresolv.so.2 libutil.so.1; do cp -L "$glibc/$library" "$root$glibc/"; done
printf 'root:x:0:0::/root:/bin/sh\n' > "$root/etc/passwd"
printf '127.0.0.1 localhost %s\n' "$(hostname -s)" > "$root/etc/hosts"
tar -C "$root/root" -xJf "$archive"

cat > "$root/root/check" << 'EOF'
set -euo pipefail
cd /root/trireme
export PATH=$PWD/bin:/bin HOME=/root OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
trireme doctor
trireme plan share/trireme/configs/gpt2-124m.yaml | head -n 12
ls share/man/man1/trireme.1 share/bash-completion/completions/trireme share/zsh/site-functions/_trireme
ls share/fish/vendor_completions.d/trireme.fish share/doc/trireme/README.md
cd /tmp
head -c 50000 /root/trireme/corpus/text.txt > held.txt
tail -c 300000 /root/trireme/corpus/text.txt > train.txt
trireme data build train.txt --validation-input held.txt --output shards --tokenizer bytes
cat > tiny.yaml << 'YAML'
model: {family: llama, layers: 2, width: 64, heads: 2, vocab: 257, context: 64}
data: {train: [shards/train-00000.h5], validation: [shards/validation-00000.h5], tokenizer: bytes}
train: {name: one, steps: 4, batch: 8, microbatch: 4, warmup: 1, eval_every: 0, eval_sequences: 4}
YAML
trireme train tiny.yaml
mpirun -n 2 trireme train tiny.yaml --set train.name=two
EOF
# shellcheck disable=SC2016  # the inner shell fills them in
unshare --mount --pid --fork --propagation private bash -euc '
  mount -t proc proc "$1/proc"
  mount --rbind /dev "$1/dev"
  mount --rbind /sys "$1/sys"
  mount -t tmpfs tmpfs "$1/tmp"
  if [ -d /usr/local/cuda/lib64 ]; then mount --bind /usr/local/cuda/lib64/ "$1/usr/local/cuda/lib64"; fi
  exec chroot "$1" /bin/env -i /bin/bash /root/check' inside "$root" < /dev/null
echo "bundle_check: $archive needs nothing else"
