#!/usr/bin/env bash
# Proves that a stock system and a clone are enough: makes a fresh root of a distribution, clones this
# checkout's HEAD into it, and runs a newcomer's commands there. Prints the last lines and time of each.
#   scripts/fresh_root.sh [bookworm|trixie|noble] [TARGET...]                 targets of make; default: train test
#   scripts/fresh_root.sh bookworm|trixie|noble [--keep] --command COMMAND    another command; --keep: in the existing root
# Needs root, debootstrap and 4 GB under $TRIREME_ROOTS (default /var/tmp/trireme-roots). The base system is kept there as a tar
# file; the root itself, NAME/, is recreated each time and kept for inspection. The mirror is $TRIREME_MIRROR, or the one apt uses here.
set -euo pipefail

suite=${1:-trixie}
shift || true
keep=
command=
targets=()
while [ $# -gt 0 ]; do
  case $1 in
    --keep) keep=yes ;;
    --command) command=${2:?--command needs a command} && shift ;;
    *) targets+=("$1") ;;
  esac
  shift
done
[ -n "$command" ] || [ ${#targets[@]} -gt 0 ] || targets=(train test)
roots=${TRIREME_ROOTS:-/var/tmp/trireme-roots}
root=$roots/$suite
checkout=$(cd "$(dirname "$0")/.." && pwd)

if [ "$(id -u)" != 0 ]; then echo "fresh_root: chroot and mounts need root" >&2; exit 1; fi
command -v debootstrap > /dev/null || { echo "fresh_root: needs the package debootstrap" >&2; exit 1; }

# The first archive apt reads packages from, where this machine runs the wanted distribution; else that distribution's own.
mirror() {
  local origin=Debian default=http://deb.debian.org/debian
  if [ "$suite" = noble ]; then origin=Ubuntu default=http://archive.ubuntu.com/ubuntu; fi
  local found
  # shellcheck disable=SC2016  # apt fills them in
  found=$(apt-get indextargets --format '$(ORIGIN) $(REPO_URI)' 'Created-By: Packages' | awk -v o="$origin" '$1 == o { print $2; exit }')
  echo "${TRIREME_MIRROR:-${found:-$default}}"
}

make_base() {
  echo "fresh_root: debootstrap $suite"
  rm -rf "$root.base"
  local components=main script=()
  if [ "$suite" = noble ]; then
    components=main,universe                       # as a stock Ubuntu has them
    script=(/usr/share/debootstrap/scripts/gutsy)  # which every later Ubuntu uses; Debian 12's debootstrap does not know noble's name
  fi
  debootstrap --components="$components" "$suite" "$root.base" "$(mirror)" "${script[@]}" > "$root.log" 2>&1 || { tail "$root.log" >&2; exit 1; }
  tar -C "$root.base" -cf "$root.tar.new" .
  mv "$root.tar.new" "$root.tar"
  rm -rf "$root.base"
}

# Copies the network's configuration: name servers, hosts, apt's proxies. Nothing else is copied.
carry_network() {
  cp /etc/resolv.conf /etc/hosts "$root/etc/"
  apt-config dump | grep -iE '^Acquire::(http|https)::Proxy' > "$root/etc/apt/apt.conf.d/80proxy" || true
}

# inside COMMAND: runs it in the root, with mounts that vanish with the process.
inside() {
  # shellcheck disable=SC2016  # the inner shell fills them in
  unshare --mount --pid --fork --propagation private bash -euc '
    root=$1
    mount -t proc proc "$root/proc"
    mount --rbind /sys "$root/sys"
    mount --rbind /dev "$root/dev"
    mount -t tmpfs tmpfs "$root/dev/shm"
    exec chroot "$root" /usr/bin/env -i HOME=/root TERM=dumb PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
      ${http_proxy:+http_proxy="$http_proxy"} ${https_proxy:+https_proxy="$https_proxy"} \
      bash -c "cd /root/trireme && $2" < /dev/null
  ' bash "$root" "$1"
}

timed() {
  local begin=$SECONDS log=$root.${2:-command}.log status=0
  echo "== $suite: $1"
  inside "$1" > "$log" 2>&1 || status=$?
  tail -n "${TAIL:-12}" "$log"
  echo "== $suite: $1: exit $status after $((SECONDS - begin)) s (all of it: $log)"
  return "$status"
}

mkdir -p "$roots"
if [ -z "$keep" ] || [ ! -e "$root/root/trireme" ]; then
  [ -e "$root.tar" ] || make_base
  rm -rf "$root"
  mkdir "$root"
  tar -C "$root" -xf "$root.tar"
  carry_network
  git clone --quiet "$checkout" "$root/root/trireme"
  timed 'scripts/setup.sh' setup  # first by itself: a stock system has no make
else
  git -C "$root/root/trireme" pull --quiet --ff-only
fi
[ -z "$command" ] || TAIL=80 timed "$command"
for target in "${targets[@]}"; do timed "make $target" "$target"; done
