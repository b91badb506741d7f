#!/usr/bin/env bash
# build.sh PRESET [TARGET...]: configures a preset where that is due, and builds it.
set -euo pipefail
cd "$(dirname "$0")/.."

preset=$1
shift
# Paths count from the build folder: other builds of the same sources, the wheel's and those of other
# clones, then find what was compiled here.
export CCACHE_BASEDIR=$PWD CCACHE_NOHASHDIR=1
[[ -f build/$preset/build.ninja ]] || cmake --preset "$preset"
cmake --build --preset "$preset" ${1:+--target "$@"}
