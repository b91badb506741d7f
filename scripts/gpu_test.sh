#!/usr/bin/env bash
# gpu_test.sh [cpp [GTEST OPTION...] | python [PYTEST OPTION...]]: runs the tests that need a GPU, those
# in C++ and those in Python, or one of the two; the Python tests include those that need torch. When
# both pass, the result is recorded in tests/gpu/green.txt.
#
# The tests are built first, unless build/gpu holds only what was built elsewhere (build/gpu/bin and
# build/gpu/package, without build.ninja). Nothing is downloaded. The interpreter, $PENSTOCK_PYTHON or
# python3, needs numpy, torch, pytest, hypothesis and, for building, nanobind.
set -euo pipefail
cd "$(dirname "$0")/.."

export PENSTOCK_PYTHON=${PENSTOCK_PYTHON:-python3}
bin=build/gpu/bin
tests=(-DPENSTOCK_GPU_TESTS=ON test_gpu test_gpu_ptds)

build_all() {
  local sources
  rm -f $bin/sources.txt
  sources=$("$PENSTOCK_PYTHON" tools/gpu_evidence.py hash)
  scripts/python_module.sh gpu "${tests[@]}"
  echo "$sources" >$bin/sources.txt
}

# All tests of a program but those that trace the device, in five processes at the same time.
run_shards() {
  local i processes=() status=0
  mkdir -p build/logs
  for i in 0 1 2 3 4; do
    GTEST_TOTAL_SHARDS=5 GTEST_SHARD_INDEX=$i "$bin/$1" '--gtest_filter=-DeviceTraceGpu.*' \
      >"build/logs/$1.$i.log" 2>&1 &
    processes+=($!)
  done
  for i in 0 1 2 3 4; do
    wait "${processes[i]}" || status=$?
    cat "build/logs/$1.$i.log"
  done
  return $status
}

run_cpp() {
  local test
  for test in test_gpu test_gpu_ptds; do
    echo "== $test $*"
    if (($#)); then
      "$bin/$test" "$@"
    else
      run_shards $test
      # Once CUPTI has traced a process, its first work behind a closed gate waits: those tests have a
      # process of their own.
      "$bin/$test" '--gtest_filter=DeviceTraceGpu.*'
    fi
  done
}

run_python() {
  echo "== Python tests that need a GPU or torch"
  PYTHONPATH=$PWD/build/gpu/package "$PENSTOCK_PYTHON" -m pytest -p no:cacheprovider \
    -m "gpu or torch" --require-gpu --durations=5 tests/python "$@"
}

built=elsewhere
[[ -f build/gpu/build.ninja || ! -x $bin/test_gpu ]] && built=here
case ${1:-all} in
  all)
    [[ $built == here ]] && build_all
    run_cpp
    run_python
    "$PENSTOCK_PYTHON" tools/gpu_evidence.py keep "$built"
    ;;
  cpp)
    [[ $built == here ]] && scripts/build.sh gpu "${tests[@]}"
    run_cpp "${@:2}"
    ;;
  python)
    [[ $built == here ]] && scripts/python_module.sh gpu
    run_python "${@:2}"
    ;;
  *)
    echo "gpu_test: expected cpp or python, got '$1'" >&2
    exit 2
    ;;
esac
