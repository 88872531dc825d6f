#!/usr/bin/env bash
# Installs a build under a DESTDIR and into a prefix with a blank, and tries what is installed.
#   scripts/check_install.sh [BUILD]     default: build
set -euo pipefail
cd "$(dirname "$0")/.."
build=$(realpath "${1:-build}")
work=$(mktemp -d "${TMPDIR:-/tmp}/check_install.XXXXXX")
trap 'rm -rf "$work"' EXIT

fail() { echo "check_install: $*" >&2; exit 1; }

files="bin/trireme share/man/man1/trireme.1 share/bash-completion/completions/trireme share/zsh/site-functions/_trireme
  share/fish/vendor_completions.d/trireme.fish share/trireme/configs/gpt2-124m.yaml share/doc/trireme/README.md
  share/doc/trireme/docs/install.md share/doc/trireme/LICENSE"

check_tree() {  # ROOT
  local root=$1 file version
  for file in $files; do [ -s "$root/$file" ] || fail "$root has no $file"; done
  version=$(cd / && "$root/bin/trireme" --version) || fail "the installed program does not start"
  [ "$version" = "$("$build/trireme" --version)" ] || fail "the installed program is another version: $version"
  (cd "$work" && "$root/bin/trireme" plan "$root/share/trireme/configs/gpt2-124m.yaml" > /dev/null) || fail "plan fails"
  "$build/trireme" man | cmp "$root/share/man/man1/trireme.1" || fail "the man page is another"
  "$build/trireme" completion bash | cmp "$root/share/bash-completion/completions/trireme" || fail "bash's completion is another"
  "$build/trireme" completion zsh | cmp "$root/share/zsh/site-functions/_trireme" || fail "zsh's completion is another"
  "$build/trireme" completion fish | cmp "$root/share/fish/vendor_completions.d/trireme.fish" || fail "fish's completion is another"
  if grep -rqF "$build" "$root/share"; then fail "$(grep -rlF "$build" "$root/share" | head -n 1) names the build directory"; fi
  if readelf -d "$root/bin/trireme" | grep -E 'RPATH|RUNPATH' | grep -qF "$build"; then fail "the run path names the build directory"; fi
}

# With a component named, cmake keeps the list of files that `make install` wrote.
DESTDIR=$work/package cmake --install "$build" --component Unspecified --prefix /usr > /dev/null
check_tree "$work/package/usr"
cmake --install "$build" --component Unspecified --prefix "$work/a prefix" > /dev/null
check_tree "$work/a prefix"
[ ! -e "$work/usr" ] || fail "something was installed outside of the prefix"
echo "check_install: $(find "$work/package" -type f | wc -l) files, the same under DESTDIR and in a prefix"
