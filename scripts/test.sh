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

# beside NAME COMMAND...: begins a phase that leaves a core idle, next to those that follow; join waits
# for it and shows what it printed.
beside() {
  beside_name=$1
  shift
  echo "== $beside_name, in the background"
  mkdir -p build/logs
  (
    start=$SECONDS status=0
    "$@" || status=$?
    echo $((SECONDS - start)) >"build/logs/$beside_name.seconds"
    exit $status
  ) >"build/logs/$beside_name.log" 2>&1 &
  beside_process=$!
}

join() {
  local status=0
  wait "$beside_process" || status=$?
  echo "== $beside_name"
  cat "build/logs/$beside_name.log"
  times+=("$(printf '%6ds  %s, in the background' "$(<"build/logs/$beside_name.seconds")" "$beside_name")")
  echo "== $beside_name, in the background: $(<"build/logs/$beside_name.seconds") s"
  return $status
}

package() {
  scripts/python.sh && PENSTOCK=$PWD/build/$main/bin/penstock build/venv/bin/pytest tests/page
}

show_times() {
  echo "== phases so far"
  printf '%s\n' "${times[@]}"
}

# ThreadSanitizer cannot map its shadow where the kernel randomises addresses too widely.
fixed_addresses() {
  if setarch -R true 2>/dev/null; then setarch -R "$@"; else "$@"; fi
}

trap 'jobs -p | xargs -r kill' EXIT
phase "setup" scripts/setup.sh
main=$(scripts/preset.sh)
phase "format" scripts/format.sh --check
beside "project checks" build/venv/bin/pytest tests/project
# The GPU tests, rungs and exercises cannot run here. They are compiled only on request, since that takes
# as long as all other kernels; `make gpu-test` compiles them.
gpu_tests=${PENSTOCK_GPU_TESTS:-OFF}
phase "build $main" scripts/build.sh "$main" "-DPENSTOCK_GPU_TESTS=$gpu_tests"
join
beside "python and page" package
# The sanitized builds are without CUDA, whatever the machine has.
phase "build asan" scripts/build.sh asan
join
phase "lint" scripts/lint.sh --quick
phase "test asan" ctest --preset asan
phase "build tsan" scripts/build.sh tsan
phase "test tsan" fixed_addresses ctest --preset tsan
show_times
python3 tools/gpu_evidence.py show
python3 tools/gpu_bench.py --stale
# The fullest run comes last, so that its summary closes the output.
phase "test $main" ctest --preset "$main"
