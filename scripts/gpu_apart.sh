#!/usr/bin/env bash
# gpu_apart.sh [FILTER]: runs every GPU test that matches, the kit's if none is given, in a process of
# its own, several at a time: one that hangs or loses the device takes no other with it. Prints what
# the failed ones said, and their names at the end.
set -euo pipefail
cd "$(dirname "$0")/.."

test=build/gpu/bin/test_gpu
logs=$(mktemp -d)
trap 'rm -rf "$logs"' EXIT
export test logs
"$test" --gtest_list_tests "--gtest_filter=${1:-Kit*}" |
  awk '/^[^ ]/ { suite = $1 } /^ / { print suite $1 }' > "$logs/tests"
xargs -a "$logs/tests" -P 8 -I{} bash -c '
  log=$logs/$(tr / - <<< "{}").log
  if "$test" --gtest_brief=1 "--gtest_filter={}" > "$log" 2>&1; then exit 0; fi
  cat "$log"
  echo "{}" >> "$logs/failed"'
echo "$(wc -l < "$logs/tests") tests"
[[ ! -e $logs/failed ]] || { echo "failed:"; sort "$logs/failed"; exit 1; }
