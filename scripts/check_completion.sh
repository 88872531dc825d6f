#!/usr/bin/env bash
# Compares what bash, zsh and fish offer for command lines of trireme with what its --help lists.
#   scripts/check_completion.sh [PROGRAM [SHELL]]     default: build/trireme, all three
# Exit code: 1 after naming each difference; 77 if none of them is installed. Missing shells are named.
set -euo pipefail
cd "$(dirname "$0")/.."
program=$(realpath "${1:-build/trireme}")
work=$(mktemp -d "${TMPDIR:-/tmp}/check_completion.XXXXXX")
trap 'rm -rf "$work"' EXIT
mkdir "$work/bin" "$work/here" "$work/here/a dir"
ln -s "$program" "$work/bin/trireme"
export PATH=$work/bin:$PATH HOME=$work
cd "$work/here"
touch own.yaml "b c.yaml"

# Candidates for a command line that ends at the cursor, one a line, sorted. Bash: the function that the script defines, with the
# words that bash would hand it; files are bash's own part.
cat > "$work/bash" << 'END'
source "$1"
line=$2
read -ra COMP_WORDS <<< "$line"
[[ $line != *' ' ]] || COMP_WORDS+=("")
COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
_trireme
if [ ${#COMPREPLY[@]} -gt 0 ]; then printf '%s\n' "${COMPREPLY[@]}"; else compgen -f -- "${COMP_WORDS[COMP_CWORD]}" || true; fi
END
# Zsh in a terminal of its own; list-choices shows what the completion system would insert.
cat > "$work/zsh" << 'END'
zmodload zsh/zpty
zpty shell zsh -f -i
zpty -w shell "PS1= ; unsetopt zle_bracketed_paste 2> /dev/null; stty cols 400 -echo; autoload -Uz compinit; compinit -u -D"
zpty -w shell "source $1; cd ${(q)PWD}"
zpty -w shell 'compadd() { if [[ " $* " == *\ -(O|A|D)\ * ]]; then builtin compadd "$@"; return; fi
  local -a got; builtin compadd -O got "$@"; print -rl -- CANDIDATE\ ${^got} >> $HOME/zsh.found; builtin compadd "$@"; }'
zpty -w shell 'show() { zle list-choices; print DONE >> $HOME/zsh.found }; zle -N show; bindkey "^Xs" show'
zpty -w -n shell "$2"$'\C-Xs'
for try in {1..100}; do
  sleep 0.1
  grep -q DONE $HOME/zsh.found 2> /dev/null && break
done
zpty -d shell
sed -n 's/^CANDIDATE //p' $HOME/zsh.found 2> /dev/null
rm -f $HOME/zsh.found
END
candidates() {
  local shell=$1 line=$2
  # shellcheck disable=SC2016  # fish expands it
  case $shell in
    bash) bash --norc "$work/bash" "$work/trireme.bash" "$line" ;;
    zsh) zsh -f "$work/zsh" "$work/trireme.zsh" "$line" ;;
    fish) fish --no-config -c 'source $argv[1]; complete -C $argv[2]' "$work/trireme.fish" "$line" | cut -f 1 ;;
  esac | sed 's/[ /]*$//' | LC_ALL=C sort -u
}

# Commands and options that --help lists.
help_of() { local words; read -ra words <<< "$1"; trireme "${words[@]}" --help; }
commands_in_help() { help_of "$1" | awk '/^Subcommands:/ { on = 1; next } /^[^ ]/ { on = 0 } on && /^  [a-z]/ { print $1 }' | LC_ALL=C sort; }
options_in_help() { help_of "$1" | grep -oE '^  (-h,)?--[a-z-]+' | sed 's/^ *\(-h,\)*//' | LC_ALL=C sort; }

failures=0
compare() {  # SHELL LINE WANTED
  local found
  found=$(candidates "$1" "$2")
  [ "$found" = "$3" ] && return
  failures=$((failures + 1))
  echo "check_completion: $1: '$2' offers [${found//$'\n'/ }], not [${3//$'\n'/ }]"
}

check_shell() {
  local shell=$1 level group
  for group in none $(commands_in_help ""); do
    level=${group#none}
    [ "$(commands_in_help "$level")" != "" ] || continue
    compare "$shell" "trireme ${level:+$level }" "$(commands_in_help "$level")"
    compare "$shell" "trireme help ${level:+$level }" "$(commands_in_help "$level")"
  done
  for level in "data build" "tokenizer encode" train plan "bench save" version; do
    compare "$shell" "trireme $level --" "$(options_in_help "$level")"
  done
  compare "$shell" "trireme che" checkpoint
  compare "$shell" "trireme data build --pack " $'best-fit\nconcatenate'
  compare "$shell" "trireme completion " $'bash\nfish\nzsh'
  compare "$shell" "trireme train --set train.eval_every" "train.eval_every="
  compare "$shell" "trireme train own" own.yaml
  compare "$shell" "trireme eval --json o" own.yaml
}

tried=""
for shell in ${2:-bash zsh fish}; do
  if ! command -v $shell > /dev/null; then echo "check_completion: skipped: $shell is not installed"; continue; fi
  trireme completion $shell > "$work/trireme.$shell"
  check_shell $shell
  tried="$tried $shell"
done
[ "$tried" != "" ] || exit 77
[ "$failures" = 0 ] || { echo "check_completion: $failures differences"; exit 1; }
echo "check_completion: every line offers what --help lists in:$tried"
