#!/usr/bin/env bash
# demo.sh [OPTION...]: installs what is missing, builds the program `penstock` and runs `penstock demo`
# with the options. Builds with CUDA only where there is a GPU to run on, and says so if it cannot.
set -euo pipefail
cd "$(dirname "$0")/.."

scripts/setup.sh build
installed=$SECONDS
preset=demo-cpu
if nvidia-smi -L >/dev/null 2>&1; then
  problem=$(scripts/preset.sh --why)
  if [[ -z $problem ]]; then preset=demo-gpu; else echo "demo: the GPU is not used, because $problem"; fi
fi
scripts/build.sh "$preset" penstock_cli
built=$SECONDS
"build/$preset/bin/penstock" demo "$@"
echo "demo: installing packages took $installed s, building $((built - installed)) s," \
  "running $((SECONDS - built)) s. The program is build/$preset/bin/penstock."
