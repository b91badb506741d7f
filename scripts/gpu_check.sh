#!/usr/bin/env bash
# Runs the GPU tests under compute-sanitizer: memory errors, and races between streams over memory
# that a pool gave. Left out: tests that lose the device on purpose, the stream detector and the
# device trace (the sanitizer takes the one place there is for them), and what needs a stream's destruction not to wait,
# which the sanitizer makes wait.
set -euo pipefail
cd "$(dirname "$0")/.."

if [[ -f build/gpu/build.ninja || ! -x build/gpu/bin/test_gpu ]]; then
  scripts/build.sh gpu test_gpu
fi
left_out='DeviceLossGpu*:StreamDetectorGpu*:DeviceTraceGpu*'
left_out+=':CallGpu.SurvivesTheLastHandleAndDropsWhatItCaptured:StreamGpu.WorkOutlivesTheLastHandle'
# Errors of the API are what some tests provoke.
compute-sanitizer --tool memcheck --track-stream-ordered-races all --report-api-errors no \
  --error-exitcode 1 build/gpu/bin/test_gpu "--gtest_filter=-$left_out"
