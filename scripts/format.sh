#!/usr/bin/env bash
# format.sh [--check]: lays out the sources, or fails where the layout differs.
set -euo pipefail
cd "$(dirname "$0")/.."

action=(-i)
[[ "${1:-}" == --check ]] && action=(--dry-run -Werror)
git ls-files -z --cached --others --exclude-standard -- '*.h' '*.cuh' '*.cpp' '*.cu' |
  while IFS= read -r -d '' file; do [[ ! -f $file ]] || printf '%s\0' "$file"; done |
  xargs -0 -r -n 32 -P 2 build/venv/bin/clang-format "${action[@]}"
