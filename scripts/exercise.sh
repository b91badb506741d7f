#!/usr/bin/env bash
# exercise.sh N [--solution]: builds exercise N of docs/tutorial/exercises.md as it stands, or its
# solution, and checks it. Exercises 1 and 2 need neither CUDA nor a GPU.
set -euo pipefail
cd "$(dirname "$0")/.."

number=${1:-}
kind=exercise
[[ ${2:-} == --solution ]] && kind=solution
file=$(compgen -G "tests/gpu/exercises/${number}_*.c*" || true)
if [[ ! $number =~ ^[0-9]$ || -z $file || $# -gt 2 || (-n ${2:-} && $kind == exercise) ]]; then
  echo "usage: scripts/exercise.sh N [--solution], with N from 1 to 6" >&2
  exit 2
fi
[[ $kind == exercise ]] || file=${file/exercises/exercises\/solutions}

scripts/setup.sh build
preset=$(scripts/preset.sh)
if [[ $file == *.cu && $preset != gpu ]]; then
  echo "exercise $number needs the CUDA toolkit, 12.8 or newer; 1 and 2 do without" >&2
  exit 77
fi
echo "$file"
# The compiler's figures of a kernel are of no interest here.
if ! said=$(scripts/build.sh "$preset" -DPENSTOCK_GPU_TESTS=ON "${kind}_$number" 2>&1); then
  echo "$said" >&2
  echo "exercise $number: does not compile" >&2
  exit 1
fi
exec "build/$preset/bin/${kind}_$number"
