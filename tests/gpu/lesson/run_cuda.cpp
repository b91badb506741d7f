#include "gpu/lesson/run.h"

#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <cstring>
#include <random>
#include <stdexcept>
#include <vector>

namespace ps::lesson {
namespace {

constexpr unsigned blocks = 132;
constexpr std::uint32_t poison = 0xFFFFFFFF;
constexpr std::size_t vector_words = sizeof(uint4) / sizeof(std::uint32_t);

void check(cudaError_t status, const char* call) {
  if (status == cudaSuccess) return;
  throw std::runtime_error(fmt::format("{}: {}", call, cudaGetErrorString(status)));
}

class Words {
 public:
  explicit Words(std::size_t count) : count_(count) {
    check(cudaMalloc(&data_, count * sizeof(std::uint32_t)), "cudaMalloc");
  }
  ~Words() { cudaFree(data_); }
  Words(const Words&) = delete;
  Words& operator=(const Words&) = delete;

  void set(const std::vector<std::uint32_t>& values) {
    check(cudaMemcpy(data_, values.data(), bytes(), cudaMemcpyHostToDevice), "cudaMemcpy");
  }
  std::vector<std::uint32_t> get() const {
    std::vector<std::uint32_t> values(count_);
    check(cudaMemcpy(values.data(), data_, bytes(), cudaMemcpyDeviceToHost), "cudaMemcpy");
    return values;
  }
  uint4* vectors() const { return static_cast<uint4*>(data_); }

 private:
  std::size_t bytes() const { return count_ * sizeof(std::uint32_t); }

  void* data_ = nullptr;
  std::size_t count_;
};

// Where the word comes from that belongs at `index`: the same tile, its vectors turned round.
// Behind the end of a shorter tile nothing is written.
std::uint32_t expected(const std::vector<std::uint32_t>& in, std::size_t index,
                       const RunOptions& options) {
  const std::size_t word = index % vector_words, vector = index / vector_words;
  const std::size_t tile = vector / threads, place = vector % threads;
  const bool is_last = tile % options.tiles == options.tiles - 1;
  const std::size_t count = is_last ? options.last : threads;
  if (place >= count) return poison;
  return in[(tile * threads + count - 1 - place) * vector_words + word];
}

}  // namespace

Outcome run(const RunOptions& options) {
  static std::mt19937 random;
  const std::size_t count = std::size_t{blocks} * options.tiles * threads * vector_words;
  std::vector<std::uint32_t> values(count);
  for (std::uint32_t& value : values) value = static_cast<std::uint32_t>(random()) & ~1U;
  Words in(count), out(count);
  in.set(values);
  out.set(std::vector<std::uint32_t>(count, poison));
  // What cudaMemcpy has staged may still be on its way; the kernel's stream does not wait for it.
  check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");

  Job job{in.vectors(), out.vectors(), options.tiles, options.last, options.late};
  void* arguments[] = {&job};
  cudaStream_t stream = nullptr;
  check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
  auto* const kernel = reinterpret_cast<const void*>(options.kernel);
  cudaError_t status =
      cudaLaunchKernel(kernel, dim3(blocks), dim3(options.block), arguments, 0, stream);
  if (status == cudaSuccess) status = cudaStreamSynchronize(stream);
  cudaStreamDestroy(stream);

  Outcome outcome{.words = count};
  if (status != cudaSuccess) {
    outcome.error = cudaGetErrorName(status);
    cudaGetLastError();
    return outcome;
  }
  if (options.take_stuck != nullptr) outcome.stuck = options.take_stuck();
  const std::vector<std::uint32_t> got = out.get();
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint32_t want = expected(values, i, options);
    if (got[i] == want) continue;
    if (outcome.wrong++ > 0) continue;
    outcome.first = i;
    outcome.got = got[i];
    outcome.expected = want;
  }
  return outcome;
}

std::string describe(const Outcome& outcome) {
  if (!outcome.error.empty()) return fmt::format("the launch failed: {}", outcome.error);
  if (outcome.stuck == Stuck::at_a_barrier) return "a wait at a barrier never ended";
  if (outcome.stuck == Stuck::not_ahead) return "the loader is never far enough ahead";
  if (outcome.wrong == 0) return fmt::format("all {} words are right", outcome.words);
  return fmt::format("{} of {} words are wrong; the first, {}, is {:#010x} instead of {:#010x}",
                     outcome.wrong, outcome.words, outcome.first, outcome.got, outcome.expected);
}

std::string why_no_gpu(int capability) {
  int count = 0, major = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  if (status != cudaSuccess) {
    cudaGetLastError();
    return cudaGetErrorString(status);
  }
  if (count == 0) return "there is none";
  check(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0),
        "cudaDeviceGetAttribute");
  if (major * 10 >= capability) return {};
  return fmt::format("the GPU has compute capability {}.x, and {}.0 is needed", major,
                     capability / 10);
}

}  // namespace ps::lesson
