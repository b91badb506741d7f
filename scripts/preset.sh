#!/usr/bin/env bash
# Prints the preset that suits this machine: gpu where a CUDA toolkit of 12.8 or newer works, else cpu.
set -euo pipefail

minimum=12.8
nvcc=${CUDACXX:-$(command -v nvcc || echo "${CUDA_HOME:-/usr/local/cuda}/bin/nvcc")}

is_new_enough() {
  local version
  version=$("$nvcc" --version 2>/dev/null | sed -n 's/.*release \([0-9.]*\),.*/\1/p')
  [[ -n $version ]] && printf '%s\n' "$minimum" "$version" | sort -V -C
}

# A toolkit without its runtime library, or beside a compiler that it refuses, cannot do this.
can_link() {
  local folder status=0
  folder=$(mktemp -d)
  echo 'int main() {}' >"$folder/a.cu"
  "$nvcc" -o "$folder/a" "$folder/a.cu" >/dev/null 2>&1 || status=1
  rm -rf "$folder"
  return $status
}

if is_new_enough && can_link; then echo gpu; else echo cpu; fi
