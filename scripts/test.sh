#!/usr/bin/env bash
# Everything that can be checked without a GPU. Stops at the first failure.
set -euo pipefail
cd "$(dirname "$0")/.."

times=()

phase() {
  local name=$1 start=$SECONDS
  shift
  echo "== $name"
  "$@"
  times+=("$(printf '%6ds  %s' $((SECONDS - start)) "$name")")
  echo "== $name: $((SECONDS - start)) s"
}

show_times() {
  echo "== phases so far"
  printf '%s\n' "${times[@]}"
}

# ThreadSanitizer cannot map its shadow where the kernel randomises addresses too widely.
fixed_addresses() {
  if setarch -R true 2>/dev/null; then setarch -R "$@"; else "$@"; fi
}

phase "setup" scripts/setup.sh
main=$(scripts/preset.sh)
phase "format" scripts/format.sh --check
phase "project checks" build/venv/bin/pytest tests/project
# What was green on a GPU was compiled for it, and cannot run here.
gpu_tests=ON
if python3 tools/gpu_evidence.py current; then gpu_tests=OFF; fi
phase "build $main" scripts/build.sh "$main" "-DPENSTOCK_GPU_TESTS=$gpu_tests"
phase "python" scripts/python.sh
phase "page" env PENSTOCK="$PWD/build/$main/bin/penstock" build/venv/bin/pytest tests/page
# The sanitized builds are without CUDA, whatever the machine has.
phase "build asan" scripts/build.sh asan
phase "lint" scripts/lint.sh --quick
phase "test asan" ctest --preset asan
phase "build tsan" scripts/build.sh tsan
phase "test tsan" fixed_addresses ctest --preset tsan
show_times
python3 tools/gpu_evidence.py show
python3 tools/gpu_bench.py --stale
# The fullest run comes last, so that its summary closes the output.
ctest --preset "$main"
