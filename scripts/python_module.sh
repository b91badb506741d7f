#!/usr/bin/env bash
# python_module.sh PRESET [-DNAME=VALUE...] [TARGET...]: builds the Python package by CMake alone, for
# the interpreter $PENSTOCK_PYTHON (python3 by default), which must have nanobind. The package is
# written to build/PRESET/package, to be used with PYTHONPATH. Other targets are built with it.
set -euo pipefail
cd "$(dirname "$0")/.."

preset=$1
shift
python=$(command -v "${PENSTOCK_PYTHON:-python3}")
folder=build/$preset/package
scripts/build.sh "$preset" -DPENSTOCK_PYTHON=ON "-DPython_EXECUTABLE=$python" "$@" _core penstock_cli
rm -rf "$folder"
cmake --install "build/$preset" --component python --prefix "$folder" >/dev/null
cp -r python/penstock/. "$folder/penstock"
