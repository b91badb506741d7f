#!/usr/bin/env bash
# Runs the GPU tests. Needs no network: binaries that were carried here are run as they are.
set -euo pipefail
cd "$(dirname "$0")/.."

if [[ -f build/gpu/build.ninja || ! -x build/gpu/bin/test_gpu ]]; then
  PENSTOCK_GPU_TESTS=ON scripts/build.sh gpu test_gpu test_gpu_ptds
fi
# Once CUPTI has traced a process, its first work behind a closed gate waits: those tests have a
# process of their own.
parts=("$@")
(($#)) || parts=(--gtest_filter=-DeviceTraceGpu.* --gtest_filter=DeviceTraceGpu.*)
for test in test_gpu test_gpu_ptds; do
  for part in "${parts[@]}"; do
    echo "== $test $part"
    "build/gpu/bin/$test" "$part"
  done
done
# Only a full run is evidence.
(($#)) || python3 tools/gpu_evidence.py keep "$(cat build/gpu/bin/test_gpu.sources)"
