#!/usr/bin/env bash
# gpu_test.sh [cpp [GTEST OPTION...] | python [PYTEST OPTION...]]: runs the tests that need a GPU, those
# in C++ and those in Python, or one of the two; the Python tests include those that need torch, of the
# package and, without options, of its benchmarks. When both pass, the result is recorded in
# tests/gpu/green.txt.
#
# Tests that are skipped count as failures. Exceptions in Python are listed in tests/support/gpu_run.py.
# PENSTOCK_SKIPPED_PRODUCTS=1 accepts skipped tests of products on the CPU: those that need AVX-512,
# AVX512_BF16 or AMX, if this CPU has not.
#
# The tests are built first, unless build/gpu holds only what was built elsewhere (build/gpu/bin and
# build/gpu/package, without build.ninja). Nothing is downloaded. The interpreter, $PENSTOCK_PYTHON or
# python3, needs numpy, torch, transformers, accelerate, pyarrow, pytest, hypothesis and, for building,
# nanobind.
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

logs=build/logs/gpu_test

# Tests that still run end with this script, which then shows where each of them was. A shell that is
# about to wait may miss a signal, so it is repeated.
stop_rest() {
  local running
  running=$(jobs -p)
  [[ $running ]] || return 0
  for _ in {1..50}; do
    kill $running 2>/dev/null || true
    sleep 0.1
    running=$(jobs -pr)
    [[ $running ]] || break
  done
  echo "gpu_test: stopped. Last lines of the logs in $logs:"
  tail -n 3 $logs/*.log
}

# parallel NAME COUNT COMMAND...: runs COMMAND once for each of COUNT shards, all at the same time, with
# $SHARD set to the shard's number, and then prints what each of them printed. Fails if one of them did.
parallel() {
  local name=$1 count=$2 i code processes=() status=0
  shift 2
  trap stop_rest EXIT
  for ((i = 0; i < count; i++)); do
    SHARD=$i "$@" >"$logs/$name.$i.log" 2>&1 &
    processes+=($!)
  done
  for ((i = 0; i < count; i++)); do
    code=0
    wait "${processes[i]}" || code=$?
    if ((code)); then
      status=$code
      echo "FAILED $name, shard $i, with exit code $code" >>"$logs/$name.$i.log"
    fi
    cat "$logs/$name.$i.log"
  done
  return $status
}

# run_shard PROGRAM FILTER COUNT: in place of this shell, so that it can be stopped.
run_shard() {
  GTEST_TOTAL_SHARDS=$3 GTEST_SHARD_INDEX=$SHARD exec "$bin/$1" "--gtest_filter=$2"
}

# The products of CPUs with AVX-512 or AMX, which machines without a GPU may lack.
run_products() {
  local log=$logs/test_ops.0.log
  parallel test_ops 1 run_shard test_ops '*/CpuProduct.*' 1 || return
  [[ ! ${PENSTOCK_SKIPPED_PRODUCTS:-} ]] || return 0
  if grep -qF '[  SKIPPED ]' "$log"; then
    echo "FAILED test_ops: skipped tests; PENSTOCK_SKIPPED_PRODUCTS=1 accepts them" | tee -a "$log"
    return 1
  fi
}

# Runs every program, whether or not one before it failed.
run_cpp() {
  local test status=0
  if ((!$#)); then
    run_products || status=$?
  fi
  for test in test_gpu test_gpu_ptds; do
    echo "== $test $*"
    if (($#)); then
      "$bin/$test" "$@" || status=$?
    else
      parallel "$test" 5 run_shard "$test" '-DeviceTraceGpu.*' 5 || status=$?
      # Once CUPTI has traced a process, its first work behind a closed gate waits: those tests have a
      # process of their own.
      parallel "$test.trace" 1 run_shard "$test" 'DeviceTraceGpu.*' 1 || status=$?
    fi
  done
  return $status
}

pytest=(env "PYTHONPATH=$PWD/build/gpu/package" "$PENSTOCK_PYTHON" -m pytest -p no:cacheprovider
  -m "gpu or torch" --require-gpu --durations=5)

# run_pytest COUNT FOLDER: in place of this shell, as run_shard.
run_pytest() {
  # Many processes share the cores; torch's threads would otherwise wait for each other.
  OMP_NUM_THREADS=${OMP_NUM_THREADS:-2} exec "${pytest[@]}" --shard "$SHARD/$1" "$2"
}

run_python() {
  local status=0
  echo "== Python tests that need a GPU or torch"
  if (($#)); then
    "${pytest[@]}" tests/python "$@"
  else
    parallel python 4 run_pytest 4 tests/python || status=$?
    parallel bench 1 run_pytest 1 tests/bench || status=$?
    return $status
  fi
}

# The names of the tests and shards that failed, from the logs.
failures() {
  sed -nE 's/^(\[  FAILED  \] [^ ,]*\.[^ ,]*).*/\1/p; /^(FAILED|ERROR) /p' $logs/*.[0-9].log | sort -u
}

built=elsewhere
[[ -f build/gpu/build.ninja || ! -x $bin/test_gpu ]] && built=here
rm -rf $logs
mkdir -p $logs
case ${1:-all} in
  all)
    [[ $built == here ]] && build_all
    # Both at the same time. The output of the Python tests comes last.
    status=0
    run_python >$logs/all-python.log 2>&1 &
    python=$!
    run_cpp || status=$?
    wait $python || status=$?
    cat $logs/all-python.log
    if ((status)); then
      echo "gpu_test: failed:"
      failures
      exit "$status"
    fi
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
