#!/usr/bin/env bash
# build.sh PRESET [-DNAME=VALUE...] [TARGET...]: configures a preset if it has no build folder yet or
# if options are given, and builds the targets, or everything.
set -euo pipefail
cd "$(dirname "$0")/.."

preset=$1
shift
options=()
while [[ ${1:-} == -D* ]]; do
  options+=("$1")
  shift
done
# Paths count from the build folder: other builds of the same sources, the wheel's and those of other
# clones, then find what was compiled here.
export CCACHE_BASEDIR=$PWD CCACHE_NOHASHDIR=1
if [[ ! -f build/$preset/build.ninja ]] || ((${#options[@]})); then
  cmake --preset "$preset" "${options[@]}"
fi
cmake --build --preset "$preset" ${1:+--target "$@"}
