#!/usr/bin/env bash
# gpu_bench.sh [NAME...]: runs the benchmarks, all or those named; each writes its results file, and
# docs/results.md follows. The tutorial's ladders also leave traces, for its pictures.
set -euo pipefail
cd "$(dirname "$0")/.."

bin=build/gpu/bin
operators=python/penstock/bench/operators
python=${PENSTOCK_PYTHON:-python3}

# The plain kernel beside the library's, as ncu sees them; its reports are left for Nsight Compute.
profiles() {
  local program=$PWD/$bin/penstock cases=() case
  for case in tiny small large very-long; do cases+=(--case "$case, regular times"); done
  mkdir -p build/profiles
  (cd build/profiles && "$program" bench resample --mode ncu --kernel baseline --kernel best \
    "${cases[@]}" --json >results.json)
  mv build/profiles/results.json "$1"
}

run() {
  local name=$1 results=bench/results/$1.json
  echo "== $name"
  if [[ -x $bin/bench_$name ]]; then
    "$bin/bench_$name" --output "$results"
  elif [[ -f $operators/$name.py ]]; then
    local counters=()
    [[ $name == resample ]] && command -v ncu >/dev/null && counters=(--counters)
    "$bin/penstock" bench "$name" --output "$results" "${counters[@]}"
  elif [[ -f bench/$name.py ]]; then
    "$python" "bench/$name.py" --output "$results"
  elif [[ $name == resample_profiles ]]; then
    profiles "$results"
  elif [[ $name == ladder_* ]]; then
    local ladder=${name#ladder_} traces=build/traces
    local more=()
    [[ $ladder == copy || $ladder == gemm ]] && more=(--trace "$traces")
    [[ $ladder == resample ]] && more=(--all-shapes)
    rm -f "$traces/${ladder}"_*
    "$bin/penstock" ladder "$ladder" "${more[@]}" --json >"$results.part"
    mv "$results.part" "$results"
    if compgen -G "$traces/${ladder}_*.json" >/dev/null; then
      "$python" tools/picture.py cut "$traces/${ladder}"_*.json docs/tutorial/traces
    fi
  else
    echo "gpu_bench: no benchmark is called $name" >&2
    exit 2
  fi
}

if [[ -f build/gpu/build.ninja ]] || ! compgen -G "$bin/bench_*" >/dev/null; then
  scripts/build.sh gpu
fi
names=("$@")
if ((${#names[@]} == 0)); then
  mapfile -t names < <(cd "$bin" && printf '%s\n' bench_* | sed 's/^bench_//')
  names+=(ladder_host ladder_copy ladder_gemm ladder_resample)
  if "$python" -c 'import penstock' 2>/dev/null; then
    for file in "$operators"/[a-z]*.py bench/*.py; do
      name=$(basename "$file" .py)
      if [[ $name == loading ]] && ! "$python" -c 'import pyarrow' 2>/dev/null; then
        echo "gpu_bench: loading is left out: $python has no package pyarrow (pip install pyarrow)"
        continue
      fi
      names+=("$name")
    done
    if command -v ncu >/dev/null; then names+=(resample_profiles); fi
  else
    echo "gpu_bench: what is in Python is left out: $python has no package penstock (pip install .)"
  fi
fi
mkdir -p bench/results
for name in "${names[@]}"; do run "$name"; done
"$python" tools/results.py
"$python" tools/tutorial.py
