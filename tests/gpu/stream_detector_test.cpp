// No call of the library lands on a stream that it was not given, and none waits that should not.
#include "gpu/stream_detector.h"

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gpu/gpu_pipeline.h"
#include "gpu/gpu_test.h"
#include "penstock/base/units.h"
#include "penstock/host/cuda.h"
#include "penstock/host/growable.h"
#include "penstock/host/slot_ring.h"
#include "penstock/ops/iterate.h"

namespace ps::test {
namespace {

constexpr std::size_t bytes = 64 * KiB;

testing::AssertionResult saw_only_right_calls(const StreamDetector& detector) {
  testing::AssertionResult result = testing::AssertionFailure();
  for (const std::string& violation : detector.violations()) result << "\n  " << violation;
  if (!detector.violations().empty()) return result;
  if (detector.seen() == 0) return result << "the detector saw nothing at all";
  return testing::AssertionSuccess();
}

// A stream with what the calls below need, all of it made before a detector looks.
class Bench {
 public:
  Bench(const Device& gpu, Stream on)
      : stream(std::move(on)),
        pool_(gpu),
        device_(gpu, bytes),
        pinned_(gpu, bytes),
        event_(gpu),
        ring_(gpu, {.slots = 4, .slot_bytes = bytes}),
        growable_(gpu, {.capacity = 256 * MiB, .initial = 1}) {
    for (const auto& [name, call] : calls()) call();
    stream.synchronize();
  }

  using Named = std::pair<const char*, std::function<void()>>;
  // Everything that enqueues, each alone.
  std::vector<Named> calls() {
    return {
        {"copy", [this] { copy(device_.view(), pinned_.view(), stream); }},
        {"fill", [this] { fill(device_.view(), 1, stream); }},
        {"iterate",
         [this] {
           const TensorView data = floats(device_.view(), 0, 1000);
           iterate({.in = data, .out = data}, stream);
         }},
        {"record", [this] { stream.record(event_); }},
        {"wait", [this] { stream.wait(event_); }},
        {"call", [this] { stream.call([] {}); }},
        {"notify", [this] { stream.notify([] {}); }},
        {"allocate and free", [this] { pool_.free(pool_.allocate(bytes, stream), stream); }},
        {"grow",
         [this] {
           growable_.grow(growable_.mapped() + 1, stream);
           fill(growable_.view(), 1, stream);
         }},
        {"release_after", [this] { ring_.acquire().release_after(stream); }},
        {"done", [this] { (void)stream.done(); }},
    };
  }

  const Stream stream;

 private:
  Pool pool_;
  DeviceBuffer device_;
  PinnedBuffer pinned_;
  Event event_;
  SlotRing ring_;
  GrowableBuffer growable_;
};

class StreamDetectorGpu : public GpuTest {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    if (IsSkipped()) return;
    if (const std::string why = StreamDetector::why_not(); !why.empty()) GTEST_SKIP() << why;
    given.emplace();
    other.emplace();
  }

  std::optional<CallersStream> given, other;
};

// ---- it can see ------------------------------------------------------------------------------

TEST_F(StreamDetectorGpu, ReportsWorkOnAnyStreamButTheGivenOne) {
  const DeviceBuffer memory(gpu, bytes);
  const PinnedBuffer pinned(gpu, bytes);
  void* const data = memory.view().data;
  void* scratch = nullptr;
  cudaEvent_t event = nullptr;
  ASSERT_EQ(cudaEventCreate(&event), cudaSuccess);
  const std::pair<const char*, std::function<cudaError_t(cudaStream_t)>> calls[] = {
      {"cuMemset", [&](auto on) { return cudaMemsetAsync(data, 1, bytes, on); }},
      {"cuMemcpy",
       [&](auto on) {
         return cudaMemcpyAsync(data, pinned.view().data, bytes, cudaMemcpyDefault, on);
       }},
      {"cuLaunchHostFunc", [&](auto on) { return cudaLaunchHostFunc(on, [](void*) {}, nullptr); }},
      {"cuEventRecord", [&](auto on) { return cudaEventRecord(event, on); }},
      {"cuStreamWaitEvent", [&](auto on) { return cudaStreamWaitEvent(on, event, 0); }},
      {"cuMemAlloc", [&](auto on) { return cudaMallocAsync(&scratch, bytes, on); }},
      {"cuMemFreeAsync", [&](auto on) { return cudaFreeAsync(scratch, on); }},
      {"cuStreamSynchronize", [&](auto on) { return cudaStreamSynchronize(on); }},
  };
  for (const auto& [name, call] : calls) ASSERT_EQ(call(given->get()), cudaSuccess) << name;
  const auto violations = [&](const auto& call, cudaStream_t on) {
    const StreamDetector detector({.streams = {given->get()}, .may_wait = true});
    EXPECT_EQ(call(on), cudaSuccess);
    EXPECT_GT(detector.seen(), 0U);
    return detector.violations();
  };
  for (const cudaStream_t wrong :
       {cudaStream_t{nullptr}, cudaStreamLegacy, cudaStreamPerThread, other->get()}) {
    for (const auto& [name, call] : calls) {
      const auto reported = violations(call, wrong);
      ASSERT_EQ(reported.size(), 1U) << name << " on " << wrong;
      EXPECT_NE(reported[0].find(name), std::string::npos) << reported[0];
    }
  }
  for (const auto& [name, call] : calls) {
    EXPECT_TRUE(violations(call, given->get()).empty()) << name << ", where it belongs";
  }
  EXPECT_EQ(cudaEventDestroy(event), cudaSuccess);
}

TEST_F(StreamDetectorGpu, ReportsTheLibrarysWorkOnAnotherStream) {
  Bench elsewhere(gpu, borrow(gpu, other->get()));
  for (const auto& [name, call] : elsewhere.calls()) {
    const StreamDetector detector({.streams = {given->get()}});
    call();
    EXPECT_FALSE(detector.violations().empty()) << name;
  }
  elsewhere.stream.synchronize();
}

TEST_F(StreamDetectorGpu, ReportsCallsThatWaitForTheDevice) {
  const DeviceBuffer memory(gpu, bytes);
  void* const data = memory.view().data;
  void* more = nullptr;
  char host[16] = {};
  const std::pair<const char*, std::function<cudaError_t()>> calls[] = {
      {"cudaMemcpy", [&] { return cudaMemcpy(host, data, sizeof(host), cudaMemcpyDefault); }},
      {"cudaMemset", [&] { return cudaMemset(data, 0, bytes); }},
      {"cudaDeviceSynchronize", [] { return cudaDeviceSynchronize(); }},
      {"cudaMalloc", [&] { return cudaMalloc(&more, bytes); }},
      {"cudaFree", [&] { return cudaFree(more); }},
      {"cudaStreamSynchronize", [&] { return cudaStreamSynchronize(given->get()); }},
  };
  for (const auto& [name, call] : calls) {
    const StreamDetector detector({.streams = {given->get()}});
    EXPECT_EQ(call(), cudaSuccess) << name;
    EXPECT_FALSE(detector.violations().empty()) << name;
  }
}

// ---- and what it sees of the library is right ------------------------------------------------

TEST_F(StreamDetectorGpu, EveryCallKeepsToItsStreamAndDoesNotWait) {
  for (const Stream& stream : {Stream(gpu), borrow(gpu, given->get()), borrow(gpu, nullptr),
                               borrow(gpu, cudaStreamLegacy), borrow(gpu, cudaStreamPerThread)}) {
    Bench bench(gpu, stream);
    for (const auto& [name, call] : bench.calls()) {
      const StreamDetector detector({.streams = {cuda_stream(stream)}});
      call();
      EXPECT_TRUE(saw_only_right_calls(detector)) << name << " on " << cuda_stream(stream);
    }
    const StreamDetector detector({.streams = {cuda_stream(stream)}, .may_wait = true});
    stream.synchronize();
    EXPECT_TRUE(saw_only_right_calls(detector));
  }
}

TEST_F(StreamDetectorGpu, ARunKeepsToItsStreams) {
  for (const bool host_stages : {true, false}) {
    GpuPipeline pipeline(gpu, {.host_stages = host_stages});
    const Stream after = borrow(gpu, given->get());
    pipeline.run({.items = 40, .after = after});
    std::vector<cudaStream_t> streams = pipeline.streams();
    streams.push_back(given->get());
    const StreamDetector detector({.streams = streams, .may_wait = true});
    EXPECT_EQ(pipeline.run({.items = 40, .after = after}).items, 40U);
    EXPECT_TRUE(saw_only_right_calls(detector)) << "host stages " << host_stages;
  }
}

TEST_F(StreamDetectorGpu, ARunOnTheCallersStreamsUsesNoOther) {
  GpuPipeline pipeline(gpu, {.streams = {borrow(gpu, nullptr), borrow(gpu, given->get()),
                                         borrow(gpu, other->get())}});
  pipeline.run_well(20);
  const StreamDetector detector(
      {.streams = {cuda_stream(borrow(gpu, nullptr)), given->get(), other->get()},
       .may_wait = true});
  pipeline.run_well(20);
  EXPECT_TRUE(saw_only_right_calls(detector));
}

}  // namespace
}  // namespace ps::test
