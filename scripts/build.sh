#!/usr/bin/env bash
# build.sh PRESET [TARGET...]: configures a preset where that is due, and builds it.
set -euo pipefail
cd "$(dirname "$0")/.."

preset=$1
shift
# Paths count from the build folder: other builds of the same sources, the wheel's and those of other
# clones, then find what was compiled here.
export CCACHE_BASEDIR=$PWD CCACHE_NOHASHDIR=1
# PENSTOCK_GPU_TESTS=ON or OFF: with or without the tests that only a GPU can run; else as before.
if [[ ! -f build/$preset/build.ninja || -n ${PENSTOCK_GPU_TESTS:-} ]]; then
  cmake --preset "$preset" ${PENSTOCK_GPU_TESTS:+"-DPENSTOCK_GPU_TESTS=$PENSTOCK_GPU_TESTS"}
fi
cmake --build --preset "$preset" ${1:+--target "$@"}
