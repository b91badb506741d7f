#!/usr/bin/env bash
# python.sh [--stubs]: makes a wheel, installs it in an environment of its own, and tests it there;
# with --stubs, writes the types of the extension module anew instead of testing.
set -euo pipefail
cd "$(dirname "$0")/.."

tools=$PWD/build/venv
clean=build/wheel/venv
wheels=build/wheel/dist

# Not isolated: the pinned tools build it, and compile nothing twice; nor what the main build did.
# (A cache tells compilers apart by their names.)
export CCACHE_BASEDIR=$PWD CCACHE_NOHASHDIR=1 CXX=${CXX:-c++}
cuda=OFF
[[ $(scripts/preset.sh) == gpu ]] && cuda=ON
rm -rf "$wheels"
PATH=$tools/bin:$PATH "$tools/bin/python" -m build --wheel --no-isolation --outdir "$wheels" \
  "-Ccmake.define.PENSTOCK_CUDA=$cuda" . >build/wheel.log 2>&1 || {
  tail -n 60 build/wheel.log
  exit 1
}

# The pinned tools are seen from there, the sources are not.
[[ -x $clean/bin/python ]] || "$tools/bin/python" -m venv --without-pip "$clean"
echo "$("$tools/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')" \
  >"$("$clean/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/tools.pth"
"$tools/bin/pip" --python "$clean/bin/python" install --quiet --disable-pip-version-check \
  --force-reinstall --no-deps "$wheels"/penstock-*.whl

python=$PWD/$clean/bin/python
if [[ ${1:-} == --stubs ]]; then
  "$python" -m nanobind.stubgen -q -P -m penstock._core -o python/penstock/_core.pyi
  exit
fi
"$python" -m pytest tests/python
"$python" -m pytest tests/bench
for example in examples/python/*.py; do
  echo "-- $example"
  "$python" "$example"
done
