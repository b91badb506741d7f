#!/usr/bin/env bash
# first_minutes.sh [demo|test ...]: measures what a newcomer waits for. Clones this repository into an
# empty folder, with an empty compiler cache, and times `make demo` and `make test` there on two cores.
# Installing packages comes first and is shown apart. Writes bench/results/first_minutes.json, where other
# targets keep their times; run it on an idle machine.
set -euo pipefail
cd "$(dirname "$0")/.."

source=$PWD
results=$source/bench/results/first_minutes.json
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
targets=("$@")
(($#)) || targets=(demo test)

seconds() {
  local start
  start=$(date +%s.%N)
  "$@" >&2 || return  # a command that failed took no time worth keeping
  awk "BEGIN { print $(date +%s.%N) - $start }"
}

two_cores() {
  taskset -c "$(taskset -pc $$ | sed 's/.*: //' | python3 -c '
cores = []
for part in input().split(","):
    first, _, last = part.partition("-")
    cores += range(int(first), int(last or first) + 1)
print(*cores[:2], sep=",")')" "$@"
}

# logged FILE COMMAND...: what the command prints goes to the file, too.
logged() {
  local log=$1
  shift
  "$@" 2>&1 | tee "$log"
}

load=$(cut -d' ' -f1 /proc/loadavg)
rows=()
for target in "${targets[@]}"; do
  clone=$scratch/$target
  git clone --quiet "$source" "$clone"
  cd "$clone"
  setup=(scripts/setup.sh)
  [[ $target == demo ]] && setup+=(--no-python)
  install=$(seconds "${setup[@]}")
  export CCACHE_DIR=$scratch/cache-$target
  took=$(seconds logged "$scratch/$target.log" two_cores make "$target")
  rows+=("$target" "$install" "$took" "$scratch/$target.log")
  cd "$source"
done
python3 tools/first_minutes.py "$results" "$load" "${rows[@]}"
