#!/usr/bin/env bash
# python.sh [--stubs]: makes the wheel, installs it beside the pinned tools, and runs the tests of the
# package; with --stubs, writes the types of the extension module anew instead of testing.
set -euo pipefail
cd "$(dirname "$0")/.."

# With the presets' options, so that the compiler cache has what they compiled.
scripts/wheel.sh -Ccmake.define.PENSTOCK_WERROR=ON

# Tests need more than the package does: the pinned tools are seen from here, the sources are not.
tools=$PWD/build/venv
tests=build/wheel/tests
[[ -x $tests/bin/python ]] || "$tools/bin/python" -m venv --without-pip "$tests"
"$tools/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))' \
  >"$("$tests/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/tools.pth"
"$tools/bin/pip" --python "$tests/bin/python" install --quiet --disable-pip-version-check \
  --force-reinstall --no-deps build/wheel/dist/penstock-*.whl

python=$PWD/$tests/bin/python
if [[ ${1:-} == --stubs ]]; then
  "$python" -m nanobind.stubgen -q -P -m penstock._core -o python/penstock/_core.pyi
  exit
fi
"$python" -m pytest tests/python
"$python" -m pytest tests/bench
echo "-- examples/python/robot.py"
"$python" examples/python/robot.py
