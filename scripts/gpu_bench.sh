#!/usr/bin/env bash
# Builds the benchmarks if they can be built here, then runs tools/gpu_bench.py with the same
# arguments (see --help). Binaries that were carried here without their build files run as they are.
set -euo pipefail
cd "$(dirname "$0")/.."

build=yes
for word in "$@"; do
  case $word in --list | --stale | --import* | --help | -h) build=no ;; esac
done
if [[ $build == yes ]] && { [[ -f build/gpu/build.ninja ]] || ! compgen -G "build/gpu/bin/bench_*" >/dev/null; }; then
  scripts/build.sh gpu
fi
exec python3 tools/gpu_bench.py "$@"
