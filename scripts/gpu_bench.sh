#!/usr/bin/env bash
# Builds the benchmarks and the Python package, then runs tools/gpu_bench.py with the same arguments
# (see --help). Nothing is built if build/gpu holds only what was built elsewhere (build/gpu/bin and
# build/gpu/package, without build.ninja).
set -euo pipefail
cd "$(dirname "$0")/.."

build=yes
for word in "$@"; do
  case $word in --list | --stale | --import* | --help | -h) build=no ;; esac
done
if [[ $build == yes ]] && { [[ -f build/gpu/build.ninja ]] || ! compgen -G "build/gpu/bin/bench_*" >/dev/null; }; then
  if "${PENSTOCK_PYTHON:-python3}" -c 'import nanobind' 2>/dev/null; then
    scripts/python_module.sh gpu -DPENSTOCK_GPU_TESTS=ON all
  else
    scripts/build.sh gpu -DPENSTOCK_GPU_TESTS=ON
  fi
fi
exec python3 tools/gpu_bench.py "$@"
