#!/usr/bin/env bash
# preset.sh [--why]: prints the preset that suits this machine: gpu where a CUDA toolkit of 12.8 or newer
# works, else cpu. With --why, prints instead why there is no such toolkit, or nothing if there is one.
set -euo pipefail

minimum=12.8
nvcc=${CUDACXX:-$(command -v nvcc || echo "${CUDA_HOME:-/usr/local/cuda}/bin/nvcc")}

# A toolkit without its runtime library, or beside a compiler that it refuses, cannot do this.
can_link() {
  local folder status=0
  folder=$(mktemp -d)
  echo 'int main() {}' >"$folder/a.cu"
  "$nvcc" -o "$folder/a" "$folder/a.cu" >/dev/null 2>&1 || status=1
  rm -rf "$folder"
  return $status
}

# What keeps the toolkit from being used; nothing if it can be.
problem() {
  local version
  version=$("$nvcc" --version 2>/dev/null | sed -n 's/.*release \([0-9.]*\),.*/\1/p') || true
  if [[ -z $version ]]; then
    echo "no CUDA toolkit was found ($nvcc does not run)"
  elif ! printf '%s\n' "$minimum" "$version" | sort -V -C; then
    echo "the CUDA toolkit is too old ($nvcc is $version, older than $minimum)"
  elif ! can_link; then
    echo "the CUDA toolkit does not work ($nvcc cannot build an empty program)"
  fi
}

problem=$(problem)
if [[ ${1:-} == --why ]]; then
  echo "$problem"
elif [[ -z $problem ]]; then
  echo gpu
else
  echo cpu
fi
