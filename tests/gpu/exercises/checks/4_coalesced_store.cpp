// The transposed matrix, and the number of lines that the stores touched.
#include "gpu/exercises/4_coalesced_store.h"

#include <exception>
#include <stdexcept>
#include <string>
#include <vector>

#include "gpu/exercises/exercise.h"
#include "gpu/lesson/run.h"

namespace {

using namespace ps::lesson;

void check(cudaError_t status, const char* call) {
  if (status == cudaSuccess) return;
  throw std::runtime_error(std::string(call) + ": " + cudaGetErrorString(status));
}

std::string problem() {
  constexpr unsigned tiles = 9, width = tiles * side;
  constexpr std::size_t bytes = std::size_t{width} * width * sizeof(float);
  std::vector<float> values(std::size_t{width} * width), got(values.size());
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);

  // One allocation: the matrix, its transpose, the two counts. The process ends soon.
  void* allocated = nullptr;
  check(cudaMalloc(&allocated, 2 * bytes + 16), "cudaMalloc");
  char* const memory = static_cast<char*>(allocated);
  auto* const in = reinterpret_cast<float*>(memory);
  auto* const counts = reinterpret_cast<unsigned long long*>(memory + 2 * bytes);
  const Counted out{reinterpret_cast<float*>(memory + bytes), counts, counts + 1};
  check(cudaMemset(memory + bytes, 0xFF, bytes), "cudaMemset");  // NaN everywhere
  check(cudaMemset(counts, 0, 16), "cudaMemset");
  check(cudaMemcpy(in, values.data(), bytes, cudaMemcpyHostToDevice), "cudaMemcpy");
  transpose(in, out, tiles, nullptr);
  check(cudaGetLastError(), "the launch");
  check(cudaDeviceSynchronize(), "the kernel");
  unsigned long long counted[2] = {};
  check(cudaMemcpy(got.data(), out.data, bytes, cudaMemcpyDeviceToHost), "cudaMemcpy");
  check(cudaMemcpy(counted, counts, sizeof(counted), cudaMemcpyDeviceToHost), "cudaMemcpy");

  for (std::size_t i = 0; i < got.size(); ++i) {
    const float want = values[i % width * width + i / width];
    if (got[i] == want) continue;
    return "row " + std::to_string(i / width) + ", column " + std::to_string(i % width) + " is " +
           std::to_string(got[i]) + " instead of " + std::to_string(want);
  }
  const auto [stores, lines] = counted;
  if (stores == 0) return "nothing went through out.store(), so nothing could be counted";
  if (lines == stores) return {};
  return "the result is right, but " + std::to_string(stores) + " stores of warps touched " +
         std::to_string(lines) + " lines; one each is enough";
}

}  // namespace

int main() {
  const std::string why_not = why_no_gpu(80);
  return why_not.empty() ? verdict_of(4, problem) : no_verdict(4, why_not);
}
