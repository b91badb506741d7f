#!/usr/bin/env bash
# wheel.sh [-C OPTION...]: makes a manylinux wheel for the Python of build/venv, in build/wheel/dist,
# and tries it in an environment that holds NumPy and nothing else. Options are those of `build`.
set -euo pipefail
cd "$(dirname "$0")/.."

tools=$PWD/build/venv
raw=build/wheel/raw
wheels=build/wheel/dist
clean=build/wheel/clean

# Not isolated: the pinned tools build it, and compile nothing twice; nor what the main build did.
# (A cache tells compilers apart by their names.)
export CCACHE_BASEDIR=$PWD CCACHE_NOHASHDIR=1 CXX=${CXX:-c++} PATH=$tools/bin:$PATH
cuda=OFF
[[ $(scripts/preset.sh) == gpu ]] && cuda=ON
rm -rf "$raw" "$wheels"
python -m build --wheel --no-isolation --outdir "$raw" "-Ccmake.define.PENSTOCK_CUDA=$cuda" \
  "$@" . >build/wheel.log 2>&1 || {
  tail -n 60 build/wheel.log
  exit 1
}
# Refuses a wheel that needs libraries or symbols which no manylinux has.
auditwheel repair --plat auto --wheel-dir "$wheels" "$raw"/penstock-*.whl >>build/wheel.log 2>&1 || {
  tail -n 20 build/wheel.log
  exit 1
}
wheel=$(echo "$wheels"/penstock-*.whl)
[[ $wheel == *manylinux* ]] || {
  echo "wheel: expected a manylinux wheel, got $wheel" >&2
  exit 1
}

[[ -x $clean/bin/python ]] || python -m venv --without-pip "$clean"
pip --python "$clean/bin/python" install --quiet --force-reinstall "$(grep '^numpy==' \
  scripts/requirements.txt)" "$wheel"
"$clean/bin/python" -I tests/python/with_numpy_alone.py
echo "wheel: $wheel"
