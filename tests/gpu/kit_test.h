// What the tests of the kernel kit share. For .cu files. All of it belongs to the file that
// includes it: device variables do.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <random>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "gpu/gpu_test.h"
#include "penstock/kit/address.cuh"
#include "penstock/kit/cache_hint.cuh"
#include "penstock/kit/fence.cuh"
#include "penstock/kit/launch.cuh"

namespace ps::test {
namespace {

// A wait that a mistake would make endless ends after this long, and the test fails instead.
constexpr unsigned long long patience_ns = 6'000'000'000;

// Set by a wait that was given up. KitTest::finish() looks at it.
__device__ unsigned stuck;

// Whether to give up; `deadline` is 0 before the first call of a wait.
__device__ inline bool give_up(unsigned long long& deadline) {
  unsigned long long now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  if (deadline == 0) deadline = now + patience_ns;
  if (now < deadline && *static_cast<volatile unsigned*>(&stuck) == 0) return false;
  atomicExch(&stuck, 1U);
  return true;
}

// A barrier of the kit whose wait() ends: try_wait() and all else are the kit's own.
template <class Base>
struct Patient : Base {
  __device__ void wait(unsigned parity) {
    unsigned long long deadline = 0;
    while (!Base::try_wait(parity)) {
      if (give_up(deadline)) return;
    }
  }
};

// Dynamic shared memory from a multiple of 1024 bytes on: ask for 1024 bytes more than needed.
__device__ inline unsigned char* aligned_shared() {
  extern __shared__ unsigned char dynamic_shared[];
  return dynamic_shared + (1024 - kit::shared_address(dynamic_shared) % 1024) % 1024;
}

// Fills shared memory that an asynchronous copy will write or read next; ends with a barrier.
__device__ inline void fill_shared(unsigned char* shared, unsigned bytes, unsigned char value) {
  for (unsigned i = threadIdx.x; i < bytes; i += blockDim.x) shared[i] = value;
  kit::fence_shared_to_async();
  __syncthreads();
}

// The kit's cache hints by number.
constexpr unsigned hints = 3;
__device__ inline kit::CacheHint hint_of(unsigned number) {
  return number == 0 ? kit::evict_normal() : number == 1 ? kit::evict_first() : kit::evict_last();
}

// Some nanoseconds that differ between threads and rounds, so that every order of events is met.
__device__ inline void loiter(unsigned round) {
  const unsigned mixed = (threadIdx.x / 32 * 7919 + round * 104729 + blockIdx.x) * 2654435761U;
  if (mixed >> 30 == 0) __nanosleep((mixed >> 16) % 2048);
}

// Memory of the GPU that begins as poison or as a copy.
template <class T>
class DeviceArray {
 public:
  explicit DeviceArray(std::size_t count) : count_(count) {
    allocate();
    kit::detail::check(cudaMemset(data_, poison, bytes()), "cudaMemset");
    kit::detail::check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  }
  explicit DeviceArray(const std::vector<T>& values) : count_(values.size()) {
    allocate();
    kit::detail::check(cudaMemcpy(data_, values.data(), bytes(), cudaMemcpyHostToDevice),
                       "cudaMemcpy");
    kit::detail::check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  }
  ~DeviceArray() { cudaFree(data_); }
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;

  T* data() const { return data_; }
  std::size_t bytes() const { return count_ * sizeof(T); }

  // What it holds once all kernels have ended.
  std::vector<T> values() const {
    std::vector<T> copy(count_);
    kit::detail::check(cudaMemcpy(copy.data(), data_, bytes(), cudaMemcpyDeviceToHost),
                       "cudaMemcpy");
    return copy;
  }

 private:
  void allocate() { kit::detail::check(cudaMalloc(&data_, bytes()), "cudaMalloc"); }

  T* data_ = nullptr;
  std::size_t count_;
};

// Whether every element is, byte for byte, what `expected(index)` says: a NaN is like itself alone.
template <class T, class Expected>
testing::AssertionResult same(const std::vector<T>& got, const Expected& expected) {
  std::size_t wrong = 0, first = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    const T want = expected(i);
    if (std::memcmp(&got[i], &want, sizeof(T)) == 0) continue;
    if (wrong++ == 0) first = i;
  }
  if (wrong == 0) return testing::AssertionSuccess();
  const T want = expected(first);
  return testing::AssertionFailure()
         << wrong << " of " << got.size() << " are wrong; the first, " << first << ", is "
         << testing::PrintToString(got[first]) << " instead of " << testing::PrintToString(want);
}

template <class T>
testing::AssertionResult same(const std::vector<T>& got, const std::vector<T>& expected) {
  if (got.size() != expected.size()) return testing::AssertionFailure() << "sizes differ";
  return same(got, [&](std::size_t i) { return expected[i]; });
}

// Whether every element is within `tolerance` of `expected(index)`. A NaN is not.
template <class Expected>
testing::AssertionResult near(const std::vector<float>& got, const Expected& expected,
                              double tolerance) {
  std::size_t wrong = 0, first = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    if (std::abs(double{got[i]} - double{expected(i)}) <= tolerance) continue;
    if (wrong++ == 0) first = i;
  }
  if (wrong == 0) return testing::AssertionSuccess();
  return testing::AssertionFailure()
         << wrong << " of " << got.size() << " are wrong; the first, " << first << ", is "
         << got[first] << " instead of " << expected(first) << ", beyond " << tolerance;
}

// PENSTOCK_SEED, else another one each time.
inline unsigned seed() {
  const char* const given = std::getenv("PENSTOCK_SEED");
  return given != nullptr ? static_cast<unsigned>(std::strtoul(given, nullptr, 10))
                          : std::random_device()();
}

// A test with random numbers, whose failure says how to have the same ones again. Skips where the
// GPU is older than `capability`, in tenths.
template <int capability>
class KitTestFor : public GpuTest {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    int major = 0;
    ASSERT_EQ(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0), cudaSuccess);
    if (major * 10 < capability) GTEST_SKIP() << "needs compute capability " << capability / 10;
    stream_.emplace();
  }

  // Launches the kernel and waits for its end.
  template <class... Parameter, class... Argument>
  void run(void (*kernel)(Parameter...), const kit::LaunchOptions& options,
           Argument&&... arguments) {
    kit::launch(kernel, options, stream_->get(), std::forward<Argument>(arguments)...);
    finish();
  }

  // Waits for all that was launched on stream(). A wait that was given up ends the test: the next
  // launches would only take as long.
  void finish() {
    kit::detail::check(cudaStreamSynchronize(stream_->get()), "cudaStreamSynchronize");
    unsigned gave_up = 0;
    kit::detail::check(cudaMemcpyFromSymbol(&gave_up, stuck, sizeof(stuck)),
                       "cudaMemcpyFromSymbol");
    if (gave_up == 0) return;
    const unsigned none = 0;
    kit::detail::check(cudaMemcpyToSymbol(stuck, &none, sizeof(none)), "cudaMemcpyToSymbol");
    throw std::runtime_error("a kernel waited at a barrier for seconds and was let go on");
  }

  cudaStream_t stream() const { return stream_->get(); }

  // `count` values of all bits.
  template <class T = std::uint32_t>
  std::vector<T> noise(std::size_t count) {
    std::vector<T> values(count);
    auto* const bytes = reinterpret_cast<unsigned char*>(values.data());
    for (std::size_t at = 0; at < count * sizeof(T); at += 4) {
      const auto four = static_cast<std::uint32_t>(random());
      std::memcpy(bytes + at, &four, std::min<std::size_t>(4, count * sizeof(T) - at));
    }
    return values;
  }

  // A number from `low` to `high`.
  int from(int low, int high) { return std::uniform_int_distribution<int>(low, high)(random); }

  const unsigned seed_ = seed();
  std::mt19937 random{seed_};

 private:
  // The one of GpuTest is for slower tests.
  Watchdog hung_{std::string(testing::UnitTest::GetInstance()->current_test_info()->name()) +
                     ", PENSTOCK_SEED=" + std::to_string(seed_),
                 std::chrono::seconds(60)};
  testing::ScopedTrace trace_{__FILE__, __LINE__, "PENSTOCK_SEED=" + std::to_string(seed_)};
  std::optional<CallersStream> stream_;
};

using KitTest = KitTestFor<80>;
using KitSm90Test = KitTestFor<90>;

}  // namespace
}  // namespace ps::test
