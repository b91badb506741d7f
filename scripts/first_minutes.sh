#!/usr/bin/env bash
# first_minutes.sh [demo|test ...]: measures what a newcomer waits for. Clones this repository into an
# empty folder, with an empty compiler cache, and times `make demo` and `make test` there on two cores.
# Installing packages comes first and is shown apart. Writes bench/results/first_minutes.json, where other
# targets keep their times; on a machine that is or becomes busy it writes nothing and fails.
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

tool=$source/tools/first_minutes.py
load=$(cut -d' ' -f1 /proc/loadavg)
rows=()
for target in "${targets[@]}"; do
  clone=$scratch/$target
  git clone --quiet "$source" "$clone"
  cd "$clone"
  setup=(scripts/setup.sh)
  [[ $target == demo ]] && setup+=(build)
  install=$(seconds "${setup[@]}")
  export CCACHE_DIR=$scratch/cache-$target
  measured=$(python3 "$tool" run "$scratch/$target.log" make "$target")
  read -r took others <<<"$measured"
  rows+=("$target" "$install" "$took" "$others" "$scratch/$target.log")
  cd "$source"
done
python3 "$tool" write "$results" "$load" "${rows[@]}"
