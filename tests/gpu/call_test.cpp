// Host functions in a GPU's stream.
#include <atomic>
#include <cstring>
#include <future>
#include <memory>
#include <optional>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

#include "gpu/gate.h"
#include "gpu/gpu_test.h"
#include "penstock/base/units.h"
#include "penstock/host/buffer.h"
#include "penstock/host/cuda.h"

namespace ps::test {
namespace {

constexpr std::size_t bytes = 4 * KiB + 1;

class CallGpu : public GpuTest {
 protected:
  std::promise<void> go;
};

TEST_F(CallGpu, HoldsTheStreamUntilTheFunctionRan) {
  const PinnedBuffer in(gpu, bytes);
  const DeviceBuffer out(gpu, bytes);
  const Stream stream(gpu);
  const Event behind(gpu);
  fill(out.view(), poison, stream);
  stream.synchronize();
  stream.call([&, gone = go.get_future().share()] {
    gone.wait();
    std::memset(in.view().data, 5, bytes);
  });
  copy(out.view(), in.view(), stream);
  stream.record(behind);
  EXPECT_FALSE(behind.done());
  EXPECT_FALSE(stream.done());
  EXPECT_TRUE(all_are(look(out.view()), poison)) << "the copy did not wait for the function";
  go.set_value();
  stream.synchronize();
  EXPECT_TRUE(behind.done());
  EXPECT_TRUE(all_are(look(out.view()), 5));
}

TEST_F(CallGpu, NotEvenTheFirstWaitsForTheStream) {
  const Stream stream(gpu);
  bool ran = false;
  {
    const Gate gate(cuda_stream(stream));
    stream.call([&] { ran = true; });
  }
  stream.synchronize();
  EXPECT_TRUE(ran);
}

TEST_F(CallGpu, RunsBehindTheWorkBeforeIt) {
  const PinnedBuffer host(gpu, bytes);
  const DeviceBuffer memory(gpu, bytes);
  const Stream stream(gpu);
  for (std::uint8_t value = 0; value < 50; ++value) {
    std::uint8_t seen = poison;
    fill(memory.view(), value, stream);
    copy(host.view(), memory.view(), stream);
    stream.call([&] { seen = host.view().as<std::uint8_t>()[bytes - 1]; });
    stream.call([&] { std::memset(host.view().data, value + 1, bytes); });
    copy(memory.view(), host.view(), stream);
    stream.synchronize();
    ASSERT_EQ(seen, value);
    ASSERT_TRUE(all_are(look(memory.view()), static_cast<std::uint8_t>(value + 1)));
  }
}

TEST_F(CallGpu, MayItselfCallCuda) {
  const Stream stream(gpu), other(gpu);
  const CallersStream callers;
  const DeviceBuffer memory(gpu, bytes), result(gpu, bytes);
  std::vector<cudaError_t> statuses;
  stream.call([&] {
    fill(memory.view(), 6, other);
    other.synchronize();
    void* scratch = nullptr;
    statuses = {
        cudaMallocAsync(&scratch, bytes, callers.get()),
        cudaMemcpyAsync(scratch, memory.view().data, bytes, cudaMemcpyDefault, callers.get()),
        cudaMemcpyAsync(result.view().data, scratch, bytes, cudaMemcpyDefault, callers.get()),
        cudaFreeAsync(scratch, callers.get()), cudaStreamSynchronize(callers.get())};
  });
  copy(memory.view(), result.view(), stream);
  stream.synchronize();
  EXPECT_EQ(statuses, std::vector<cudaError_t>(5, cudaSuccess));
  EXPECT_TRUE(all_are(look(memory.view()), 6));
}

TEST_F(CallGpu, NotifyDoesNotHoldTheStream) {
  const Stream stream(gpu);
  const DeviceBuffer memory(gpu, bytes);
  const Event behind(gpu);
  std::atomic<bool> ran{false};
  stream.notify([&, gone = go.get_future().share()] {
    gone.wait();
    ran = true;
  });
  fill(memory.view(), 8, stream);
  stream.record(behind);
  behind.synchronize();  // would never come if the stream waited for the function
  EXPECT_TRUE(all_are(look(memory.view()), 8));
  EXPECT_FALSE(ran);
  EXPECT_FALSE(stream.done()) << "the function is still running";
  go.set_value();
  stream.synchronize();
  EXPECT_TRUE(ran);
  EXPECT_TRUE(stream.done());
}

TEST_F(CallGpu, FunctionsRunInOrder) {
  const Stream stream(gpu);
  std::vector<int> order, expected;
  stream.call([] {});
  stream.synchronize();
  {
    const Gate gate(cuda_stream(stream));
    for (int i = 0; i < 60; ++i) {
      expected.push_back(i);
      const auto function = [&order, i] { order.push_back(i); };
      if (i % 3 == 0) {
        stream.notify(function);
      } else {
        stream.call(function);
      }
    }
    EXPECT_FALSE(stream.done());
  }
  stream.synchronize();
  EXPECT_EQ(order, expected);
}

TEST_F(CallGpu, AnExceptionComesOutOfSynchronizeOnce) {
  const Stream stream(gpu);
  bool later = false;
  stream.call([] { throw std::domain_error("first"); });
  stream.notify([] { throw std::domain_error("second"); });
  stream.call([&] { later = true; });
  try {
    stream.synchronize();
    FAIL() << "no exception";
  } catch (const std::domain_error& error) {
    EXPECT_STREQ(error.what(), "first");
  }
  EXPECT_TRUE(later) << "the stream goes on behind a function that threw";
  stream.synchronize();
}

TEST_F(CallGpu, ManyThreadsMayEnqueueOnOneStream) {
  const Stream stream(gpu);
  constexpr int threads = 4, each = 50;
  std::vector<int> ran(threads, 0);
  {
    std::vector<std::jthread> callers;
    for (int t = 0; t < threads; ++t) {
      callers.emplace_back([&, t] {
        for (int i = 0; i < each; ++i) stream.call([&ran, t] { ++ran[t]; });
      });
    }
  }
  stream.synchronize();
  EXPECT_EQ(ran, std::vector<int>(threads, each));
}

TEST_F(CallGpu, HoldsTheCallersStreamsToo) {
  const CallersStream blocking(cudaStreamDefault);
  const DeviceBuffer memory(gpu, bytes);
  for (const cudaStream_t native : {blocking.get(), cudaStreamLegacy, cudaStreamPerThread}) {
    const Stream stream = borrow(gpu, native);
    const PinnedBuffer in(gpu, bytes);
    std::promise<void> now;
    fill(memory.view(), poison, stream);
    stream.synchronize();
    stream.call([&, gone = now.get_future().share()] {
      gone.wait();
      std::memset(in.view().data, 3, bytes);
    });
    EXPECT_EQ(cudaMemcpyAsync(memory.view().data, in.view().data, bytes, cudaMemcpyDefault, native),
              cudaSuccess);
    EXPECT_TRUE(all_are(look(memory.view()), poison)) << "the caller's own copy did not wait";
    now.set_value();
    stream.synchronize();
    EXPECT_TRUE(all_are(look(memory.view()), 3));
  }
}

TEST_F(CallGpu, SurvivesTheLastHandleAndDropsWhatItCaptured) {
  auto captured = std::make_shared<std::promise<void>>();
  const Event done(gpu);
  std::optional<Stream> stream(std::in_place, gpu);
  stream->call([] {});
  stream->synchronize();
  Gate gate(cuda_stream(*stream));
  stream->call([captured] { captured->set_value(); });
  stream->record(done);
  stream.reset();
  EXPECT_FALSE(done.done());
  gate.open();
  captured->get_future().wait();
  done.synchronize();
  while (captured.use_count() > 1) std::this_thread::yield();  // the watchdog ends it otherwise
}

}  // namespace
}  // namespace ps::test
