#!/usr/bin/env bash
# Writes the pages in docs/pages/ anew from the reports beside them, and their screenshots.
set -euo pipefail
cd "$(dirname "$0")/.."

preset=$(scripts/preset.sh)
export PENSTOCK=$PWD/build/$preset/bin/penstock PENSTOCK_KEEP_SCREENSHOTS=1
"$PENSTOCK" report docs/pages/gpu.json --title "Penstock on one GPU" --output docs/pages/gpu.html
"$PENSTOCK" report docs/pages/cpu.json --title "Penstock without a GPU" --output docs/pages/cpu.html
"$PENSTOCK" report docs/pages/two_level.json --title "Streams outside, roles inside" \
  --output docs/pages/two_level.html
# From: penstock ladder moe --trace DIR; moe.json is its moe_overlapped.json.
if [[ -f docs/pages/moe.json ]]; then
  "$PENSTOCK" report docs/pages/moe.json --title "Inside the products of moe" \
    --output docs/pages/moe.html
fi
# From: penstock ladder attention --trace DIR; attention.json is its attention_persistent.json.
if [[ -f docs/pages/attention.json ]]; then
  "$PENSTOCK" report docs/pages/attention.json --title "Inside the tile loop of attention" \
    --output docs/pages/attention.html
fi
# experts.json is the report.json of the command in docs/penstock-moe.md.
"$PENSTOCK" report docs/pages/experts.json --title "Streamed experts without a GPU" \
  --output docs/pages/experts.html
build/venv/bin/pytest -q tests/page -k in_docs
