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
tests=(-DPENSTOCK_GPU_TESTS=ON test_gpu test_gpu_ptds test_ops)

build_all() {
  local sources
  rm -f $bin/sources.txt
  sources=$("$PENSTOCK_PYTHON" tools/gpu_evidence.py hash)
  scripts/python_module.sh gpu "${tests[@]}"
  echo "$sources" >$bin/sources.txt
}

# parallel NAME COUNT COMMAND...: runs COMMAND once for each of COUNT shards, all at the same time, with
# $SHARD set to the shard's number, and then prints what each of them printed.
parallel() {
  local name=$1 count=$2 i processes=() status=0
  shift 2
  mkdir -p build/logs
  for ((i = 0; i < count; i++)); do
    SHARD=$i "$@" >"build/logs/$name.$i.log" 2>&1 &
    processes+=($!)
  done
  for ((i = 0; i < count; i++)); do
    wait "${processes[i]}" || status=$?
    cat "build/logs/$name.$i.log"
  done
  return $status
}

# All tests of a program but those that trace the device.
run_shard() {
  GTEST_TOTAL_SHARDS=5 GTEST_SHARD_INDEX=$SHARD "$bin/$1" '--gtest_filter=-DeviceTraceGpu.*'
}

run_cpp() {
  local test
  if ((!$#)); then
    # The products of CPUs with AVX-512 or AMX, which machines without a GPU may lack.
    "$bin/test_ops" '--gtest_filter=*/CpuProduct.*'
  fi
  for test in test_gpu test_gpu_ptds; do
    echo "== $test $*"
    if (($#)); then
      "$bin/$test" "$@"
    else
      parallel "$test" 5 run_shard "$test"
      # Once CUPTI has traced a process, its first work behind a closed gate waits: those tests have a
      # process of their own.
      "$bin/$test" '--gtest_filter=DeviceTraceGpu.*'
    fi
  done
}

pytest() {
  PYTHONPATH=$PWD/build/gpu/package "$PENSTOCK_PYTHON" -m pytest -p no:cacheprovider \
    -m "gpu or torch" --require-gpu --durations=5 tests/python "$@"
}

run_python_shard() {
  # Many processes share the cores; torch's threads would otherwise wait for each other.
  OMP_NUM_THREADS=${OMP_NUM_THREADS:-2} pytest --shard "$SHARD/4"
}

run_python() {
  echo "== Python tests that need a GPU or torch"
  if (($#)); then
    pytest "$@"
  else
    parallel python 4 run_python_shard
  fi
}

built=elsewhere
[[ -f build/gpu/build.ninja || ! -x $bin/test_gpu ]] && built=here
case ${1:-all} in
  all)
    [[ $built == here ]] && build_all
    # Both at the same time. The output of the Python tests comes last.
    mkdir -p build/logs
    run_python >build/logs/python.log 2>&1 &
    python=$!
    run_cpp
    status=0
    wait $python || status=$?
    cat build/logs/python.log
    ((status == 0)) || exit "$status"
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
