// Sums of neighbours in matrices of several sizes.
#include "gpu/exercises/6_halo.h"

#include <array>
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

std::string problem_of(int rows, int columns) {
  const auto count = static_cast<std::size_t>(rows) * static_cast<std::size_t>(columns);
  std::vector<float> values(count), got(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = static_cast<float>(i * 7919 % 1009);

  void* allocated = nullptr;  // both matrices; the process ends soon
  check(cudaMalloc(&allocated, 2 * count * sizeof(float)), "cudaMalloc");
  auto* const memory = static_cast<float*>(allocated);
  check(cudaMemset(memory, 0xFF, 2 * count * sizeof(float)), "cudaMemset");  // NaN everywhere
  check(cudaMemcpy(memory, values.data(), count * sizeof(float), cudaMemcpyHostToDevice),
        "cudaMemcpy");
  const ps::Place place{ps::Memory::device, 0};
  add_neighbours({memory, ps::DType::f32, {rows, columns}, place},
                 {memory + count, ps::DType::f32, {rows, columns}, place}, nullptr);
  check(cudaDeviceSynchronize(), "the kernel");
  check(cudaMemcpy(got.data(), memory + count, count * sizeof(float), cudaMemcpyDeviceToHost),
        "cudaMemcpy");

  const auto index = [&](int row, int column) {
    return static_cast<std::size_t>(row) * static_cast<std::size_t>(columns) +
           static_cast<std::size_t>(column);
  };
  const auto at = [&](int row, int column) {
    const bool inside = row >= 0 && row < rows && column >= 0 && column < columns;
    return inside ? values[index(row, column)] : 0.0F;
  };
  for (int row = 0; row < rows; ++row) {
    for (int column = 0; column < columns; ++column) {
      const float want = at(row, column) + at(row - 1, column) + at(row + 1, column) +
                         at(row, column - 1) + at(row, column + 1);
      const float is = got[index(row, column)];
      if (is == want) continue;  // whole numbers, exact in any order
      return std::to_string(rows) + " x " + std::to_string(columns) + ": row " +
             std::to_string(row) + ", column " + std::to_string(column) + " is " +
             std::to_string(is) + " instead of " + std::to_string(want);
    }
  }
  return {};
}

std::string problem() {
  constexpr std::array<std::array<int, 2>, 4> shapes{{{16, 32}, {48, 96}, {1, 4}, {33, 100}}};
  for (const auto& [rows, columns] : shapes) {
    std::string found = problem_of(rows, columns);
    if (!found.empty()) return found;
  }
  return {};
}

}  // namespace

int main() {
  const std::string why_not = why_no_gpu(90);
  return why_not.empty() ? verdict_of(6, problem) : no_verdict(6, why_not);
}
