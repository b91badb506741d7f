#!/usr/bin/env bash
# gpu_check.sh [PART...]: runs GPU tests under compute-sanitizer and prints one line per part.
#
#   memory         memcheck, and races between streams over pool memory: all tests
#   ladders        memcheck: the ladders on small sizes, and attention with wrong lengths and pages
#                  (`memory` has all their tests)
#   races          racecheck, races in shared memory: the kit, resample, moe, attention, compress, the ladders
#   barriers       synccheck, wrong use of barriers: the same and streamed experts
#   uninitialised  initcheck, reads of memory that was never written: the operators, streamed experts,
#                  the ladders
#   mistakes       the tutorial's wrong kernels, which the tools must find
#
# Without arguments every part runs except `ladders`. A part that takes longer than
# $PENSTOCK_CHECK_SECONDS (default: no limit) is stopped, counts as failed, and the next one starts.
# The outcome of each part is recorded in tests/gpu/sanitizers.txt.
set -euo pipefail
cd "$(dirname "$0")/.."

bin=build/gpu/bin

# check TOOL [OPTION...] PROGRAM...: exits with 86 if the tool finds an error. The tool
# underestimates how many barriers a block may have, so the number is given.
check() {
  echo "== $*"
  compute-sanitizer --tool "$1" --error-exitcode 86 --num-cuda-barriers 64 "${@:2}"
}

# finds TOOL PROGRAM...: fails unless the tool finds an error.
finds() {
  local code=0
  check "$@" || code=$?
  if ((code != 86)); then
    echo "expected $1 to find an error in '${*:2}', got exit code $code" >&2
    exit 1
  fi
}

# These cannot run under compute-sanitizer: tests that lose the device on purpose, the stream detector
# and the device trace (only one tool can subscribe to CUPTI's callbacks), and tests that need a
# stream's destruction not to wait.
left_out='DeviceLossGpu*:StreamDetectorGpu*:DeviceTraceGpu*'
left_out+=':CallGpu.SurvivesTheLastHandleAndDropsWhatItCaptured:StreamGpu.WorkOutlivesTheLastHandle'
left_out+=':LessonGpu*'          # separate programs, see `mistakes`
# Short kernels, in which the SM clocks do not advance under the tool.
left_out+=':AttentionLadder.Traced*:GemmLadder.Traced*:KitGemm.Traced*:MoeLadder.Traced*'
# Compares the trace with the time between events around the kernel, to which the tool adds its own.
left_out+=':KitTraceGpu.FitsIntoTheKernelsOwnInterval'

kit='KitBarrierGpu.*:KitRing*:KitCpAsyncGpu.*:KitMatrixGpu.*:KitMma*:KitWarpGpu.*'
kit+=':KitClusterGpu.*:KitSchedulerGpu.*:KitTensorLoadGpu.Swizzled:KitTensorStoreGpu.Swizzled'
kit+=':KitWgmmaLoadedGpu/*:KitClusterStores/*'
# Every resample kernel.
resample='ResampleGpu.AgreesWithAPlainSearch:ResampleGpu.FloatsOfEveryKindHaveTheBitsOfTheCpu'
resample+=':ResampleGpu.ShortEpisodesHaveTheBitsOfTheCpu:ResampleGpu.LongRowsHaveTheBitsOfTheCpu'
resample+=':ResampleGpu.Gradients*:ResampleGpu.ChecksNameWhatIsWrong'
resample+=':ResampleGpu.EpisodesOfManySamplesKeepToTheirOwn:ResampleGpu.EpisodesOfWrongOffsets*'
resample+=':ResampleGpu.ManyRowsOfSeveralSensorsAreThoseOfTheCpu:ResampleGpu.RowsMayStandBackwards'
experts='MoeGpu.AnyNumberOfRows:MoeGpu.AllTokensOnOneExpert:MoeGpu.PartsHaveTheBitsOfTheWhole'
experts+=':RouteGpu.*:MoePortableGpu.AnyNumberOfRowsInEveryLayout:MoePortableGpu.OneStep'
experts+=':MoePortableGpu.ManyItemsOfEveryNumberOfSteps'
experts+=':MoeDecodeGpu.AnyNumberOfRows:MoeDecodeGpu.AllTokensOnOneExpert:MoeDecodeGpu.ManyExperts'
# All of MoeNarrowGpu but its 1,000 repeats.
experts+=':MoeNarrowGpu.A*:MoeNarrowGpu.L*:MoeNarrowGpu.S*:MoeNarrowGpu.W*'
experts+=':MoeDecodeGpu.WeightsWithContiguousColumns:RoundRoutesGpu.MayBeCaptured'
experts+=':*/MoeLayoutsGpu.EitherBias/*'
# Calls that wait until experts are loaded. Other tests of streamed experts take long under the tools.
# Those of compressed experts hang: the tools wait for each kernel, also while a stream waits for what
# the next kernel decompresses.
streamed='StreamedExpertsGpu.WithEveryKernel:StreamedExpertsGpu.OnTwoStreams'
streamed+=':StreamedExpertsGpu.PrefetchWhatIdsOnTheGpuSay'
streamed+=':ExpertsOnTheHostGpu.WithEveryLayoutAndType:ExpertsOnTheHostGpu.AFixedShareGivesTheSameBits'
attention='*/AttentionGpu.SmallSizes/Portable:*/AttentionGpu.WithoutQueriesOrKeys/Portable'
attention+=':AttentionSharedMemoryGpu.*'
attention_hopper='*/AttentionGpu.SmallSizes/Sm90:*/AttentionGpu.WithoutQueriesOrKeys/Sm90'
attention_hopper+=':*/AttentionGpu.MayBeCaptured/Sm90:*/AttentionTilesGpu.FewRows/*'
decode='*/AttentionDecodeGpu.SizesAroundThoseOfBlocks/Portable'
decode+=':*/AttentionDecodeGpu.WithoutQueriesOrKeys/Portable'
decode+=':*/AttentionDecodeGpu.PagesOfEverySize/Portable:*/AttentionDecodeGpu.F32/Portable'
decode+=':*/AppendAttentionGpu.RowsWithoutRoomAndBadPages/Portable'
decode+=':*/AppendAttentionGpu.RowsThatNoQuerySees/Portable'
decode_hopper='*/AttentionDecodeGpu.SizesAroundThoseOfBlocks/Decode'
decode_hopper+=':*/AttentionDecodeGpu.WithoutQueriesOrKeys/Decode'
decode_hopper+=':*/AttentionDecodeGpu.PagesOfEverySize/Decode'
decode_hopper+=':*/AppendAttentionGpu.RowsWithoutRoomAndBadPages/Decode'
decode_hopper+=':*/AppendAttentionGpu.RowsThatNoQuerySees/Decode'
compress='CompressGpu.GivesBackEveryBitPattern:CompressGpu.FewThreadBlocksDoAllTheWork'
compress+=':CompressGpu.DamagedDataGivesTheBitsOfTheCpu:CompressGpu.MayBeCaptured'
append='AppendKVGpu.*'
portable='CopyLadderGpu.SmallSizesWithoutHopper:CopyLadderGpu.SmallSizesOfPipelines'
portable+=':AttentionLadder.SmallSizesWithoutHopper:AttentionLadder.SmallSizesOfPipelines:DecodeLadder.SmallSizes'
portable+=':GemmLadder.SmallSizesWithoutHopper:GemmGpu.PortableTakesAnySizeAndStride'
hopper='CopyLadderGpu.SmallSizesOnHopper:GemmLadder.SmallSizesOnHopper'
hopper+=':AttentionLadder.SmallSizesOnHopper'
hopper+=':GemmGpu.Sm90KernelsWithTheSameSplitGiveTheSameBits'
# Kernels that must stay inside their arguments whatever the arrays of lengths and pages hold.
wrong='*/AttentionGpu.WrongLengthsStayInsideTheTensors/*'
wrong+=':*/AttentionGpu.WrongPaddingAndPagesStayInsideTheTensors/*'
wrong+=':*/AttentionDecodeGpu.WrongLengthsStayInsideTheTensors/*'
wrong+=':*/AttentionDecodeGpu.WrongPaddingAndPagesStayInsideTheTensors/*'
wrong+=':AppendKVGpu.SurvivesAbsurdBegins:*/AppendAttentionGpu.SurvivesAbsurdBegins/*'
elementwise='IterateGpu.AnySize:TransformGpu.AnySize:TransformGpu.CastsBetweenAllTypes'
elementwise+=':TransformGpu.InPlaceOfAnyInput:TransformTemplateGpu.*'

memory() {
  # Some tests provoke API errors on purpose.
  check memcheck --track-stream-ordered-races all --report-api-errors no \
    $bin/test_gpu "--gtest_filter=-$left_out"
}

ladders() {
  check memcheck $bin/test_gpu "--gtest_filter=$portable:$hopper:$wrong"
}

races() {
  check racecheck $bin/gpu_racy right
  finds racecheck $bin/gpu_racy race
  # racecheck (2025.3) does not follow these, and reports races that are not there: bulk copies, which
  # it takes for writes of the thread that issued them; one thread that arrives for its whole warp;
  # named barriers at which some threads only arrive; barriers of a cluster. So the ladders' kernels
  # for Hopper are left out, and the attention kernels that load through tensor maps.
  local unseen='KitBarrierGpu.WaitsForAllBytes:KitRingGpu.ByBulkCopies:KitWarpGpu.RolesWithTwoRings'
  unseen+=':KitRingByThreadsGpu.OneOfAWarpArrives:KitWarpGpu.NamedBarriers'
  unseen+=':KitClusterStores/*'
  check racecheck $bin/test_gpu "--gtest_filter=$kit:$resample:$experts:$append:$attention:$decode:$compress:$portable-$unseen"
}

barriers() {
  check synccheck $bin/gpu_racy right
  finds synccheck $bin/gpu_racy divergence
  finds synccheck $bin/gpu_racy uninitialised
  # synccheck (2025.3) wants every thread to wait for every phase of a barrier. The cuda::pipeline of
  # a block arrives in producer_commit() without that, which is reported as "Missing wait".
  local unseen='CopyLadderGpu.SmallSizesOfPipelines:AttentionLadder.SmallSizesOfPipelines'
  local all="$kit:$resample:$experts:$streamed:$append:$attention:$attention_hopper:$decode:$decode_hopper"
  all+=":$compress:$portable:$hopper:KitBulkGpu.*:KitClusterRingGpu.*"
  check synccheck $bin/test_gpu "--gtest_filter=$all-$unseen"
}

uninitialised() {
  check initcheck $bin/gpu_racy right
  finds initcheck $bin/gpu_racy unwritten
  # initcheck (2025.3) does not follow stores through tensor maps, and reports what another kernel reads
  # of them. So MoE's kernels for Hopper are left out.
  local unseen='MoeGpu.*:MoeNarrowGpu.*:*/MoeLayoutsGpu.*:StreamedExpertsGpu.*'
  local all="$elementwise:$resample:$experts:$streamed:$append:$attention:$attention_hopper:$decode"
  all+=":$decode_hopper:$compress:$portable:$hopper"
  check initcheck $bin/test_gpu "--gtest_filter=$all-$unseen"
}

# The tutorial's mistakes, without the delays that make them show without a tool.
mistakes() {
  for name in missing-barrier overwritten-too-early pipeline-per-thread; do
    finds racecheck $bin/mistakes "$name" wrong --hurry
  done
  check racecheck $bin/mistakes missing-barrier right --hurry
  check racecheck $bin/mistakes overwritten-too-early right --hurry
  finds memcheck $bin/mistakes misaligned-bulk wrong
}

# Each part is a process of its own, which can be stopped and fails at its first error.
if [[ ${1:-} == --part ]]; then
  "$2"
  exit
fi

parts=("$@")
(($#)) || parts=(memory races barriers uninitialised mistakes)
for part in "${parts[@]}"; do
  case $part in
    memory | ladders | races | barriers | uninitialised | mistakes) ;;
    *)
      echo "gpu_check: expected memory, ladders, races, barriers, uninitialised or mistakes," \
        "got '$part'" >&2
      exit 2
      ;;
  esac
done

# The sources of what is checked. Binaries from another machine come with a file that says so.
evidence=("${PENSTOCK_PYTHON:-python3}" tools/gpu_evidence.py)
sources=()
if [[ -f build/gpu/build.ninja || ! -x $bin/test_gpu ]]; then
  sources=("$("${evidence[@]}" hash)")
  scripts/build.sh gpu -DPENSTOCK_GPU_TESTS=ON test_gpu gpu_racy mistakes
fi

summary=()
failed=0
for part in "${parts[@]}"; do
  begin=$SECONDS code=0
  timeout --kill-after=10 "${PENSTOCK_CHECK_SECONDS:-0}" scripts/gpu_check.sh --part "$part" ||
    code=$?
  case $code in
    0) outcome=clean kept=clean ;;
    86) outcome='FAILED: the tool found errors' kept=failed ;;
    124 | 137) outcome="STOPPED after \$PENSTOCK_CHECK_SECONDS" kept=stopped ;;
    *) outcome="FAILED with exit code $code" kept=failed ;;
  esac
  "${evidence[@]}" checked "$part" "$kept" "${sources[@]}" || true
  ((code == 0)) || failed=1
  summary+=("$(printf '%-14s%5d s  %s' "$part" $((SECONDS - begin)) "$outcome")")
  echo "${summary[-1]}"
done
echo "== compute-sanitizer"
printf '%s\n' "${summary[@]}"
exit $failed
