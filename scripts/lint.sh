#!/usr/bin/env bash
# lint.sh [--quick]: runs clang-tidy over the host sources that changed since they were last clean;
# with --quick, without the tests and without the checks that follow paths through the code.
set -euo pipefail
cd "$(dirname "$0")/.."

builds=()
for preset in gpu cpu asan; do
  [[ ! -f build/$preset/compile_commands.json ]] || builds+=("build/$preset")
done
# The extension module, where its wheel was made.
if [[ ${1:-} != --quick ]]; then
  for commands in build/wheel-*/compile_commands.json; do
    [[ ! -f $commands ]] || builds+=("${commands%/*}")
  done
fi
exec build/venv/bin/python tools/lint.py --clang-tidy build/venv/bin/clang-tidy \
  --stamps "build/lint${1:-}" "$@" "${builds[@]}"
