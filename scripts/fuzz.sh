#!/usr/bin/env bash
# fuzz.sh [SECONDS]: runs every fuzzer for that long (600), at the same time, from the kept corpus;
# what covers something new is added to it, made small. Uses clang 19.
set -euo pipefail
cd "$(dirname "$0")/.."

seconds=${1:-600}
scripts/setup.sh build clang
scripts/build.sh fuzz
failed=0
for fuzzer in build/fuzz/bin/fuzz_*; do
  name=${fuzzer##*/fuzz_}
  mkdir -p "build/fuzz/found/$name" "tests/fuzz/corpus/$name"
  "$fuzzer" -max_total_time="$seconds" -max_len=16384 -timeout=10 -print_final_stats=1 \
    -artifact_prefix="build/fuzz/$name-" "build/fuzz/found/$name" "tests/fuzz/corpus/$name" \
    >"build/fuzz/$name.log" 2>&1 &
done
for job in $(jobs -p); do wait "$job" || failed=1; done
for fuzzer in build/fuzz/bin/fuzz_*; do
  name=${fuzzer##*/fuzz_}
  echo "== $name"
  grep -E "^(stat::|==|SUMMARY|Done)" "build/fuzz/$name.log" || true
  # By edges alone: counts would keep a file for every length of everything.
  "$fuzzer" -merge=1 -use_counters=0 "tests/fuzz/corpus/$name" "build/fuzz/found/$name" 2>&1 | tail -1
done
exit $failed
