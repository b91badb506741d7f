#!/usr/bin/env bash
# Runs clang-tidy over the host sources that changed since they were last clean.
set -euo pipefail
cd "$(dirname "$0")/.."

builds=(build/cpu)
[[ ! -f build/gpu/compile_commands.json ]] || builds+=(build/gpu)
exec build/venv/bin/python tools/lint.py --clang-tidy build/venv/bin/clang-tidy \
  --stamps build/lint "${builds[@]}"
