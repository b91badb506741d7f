#!/usr/bin/env bash
# build.sh PRESET [TARGET...]: configures a preset where that is due, and builds it.
set -euo pipefail
cd "$(dirname "$0")/.."

preset=$1
shift
[[ -f build/$preset/build.ninja ]] || cmake --preset "$preset"
cmake --build --preset "$preset" ${1:+--target "$@"}
