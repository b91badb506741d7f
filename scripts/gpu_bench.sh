#!/usr/bin/env bash
# gpu_bench.sh [NAME...]: runs the benchmarks, all or those named; each writes its results file.
set -euo pipefail
cd "$(dirname "$0")/.."

bin=build/gpu/bin
if [[ -f build/gpu/build.ninja ]] || ! compgen -G "$bin/bench_*" >/dev/null; then
  scripts/build.sh gpu
fi
names=("$@")
if ((${#names[@]} == 0)); then
  mapfile -t names < <(cd "$bin" && printf '%s\n' bench_* | sed 's/^bench_//')
fi
mkdir -p bench/results
for name in "${names[@]}"; do
  echo "== $name"
  "$bin/bench_$name" --output "bench/results/$name.json"
done
if (($# == 0)); then
  echo "== ladder host"
  "$bin/penstock" ladder host --json >bench/results/ladder_host.json.part
  mv bench/results/ladder_host.json.part bench/results/ladder_host.json
fi
