#!/usr/bin/env bash
# lint.sh [--product]: runs clang-tidy over the host sources that changed since they were last clean;
# with --product, the tests are left out.
set -euo pipefail
cd "$(dirname "$0")/.."

builds=()
for preset in gpu cpu; do
  [[ ! -f build/$preset/compile_commands.json ]] || builds+=("build/$preset")
done
exec build/venv/bin/python tools/lint.py --clang-tidy build/venv/bin/clang-tidy \
  --stamps build/lint "$@" "${builds[@]}"
