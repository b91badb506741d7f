// The CPU's attention with what every CPU has: vectors of four.
#include <cstring>

#include "ops/attention/cpu_rows.h"

namespace ps::detail {
namespace {

struct Lanes {
  using Vector [[gnu::vector_size(16)]] = float;
  using Bits [[gnu::vector_size(16)]] = int;
  static constexpr std::size_t lanes = 4, rows = 4, vectors = 2;

  static Vector load(const float* from) {
    Vector vector;
    std::memcpy(&vector, from, sizeof vector);
    return vector;
  }
  static void store(float* to, Vector vector) { std::memcpy(to, &vector, sizeof vector); }
  static Vector all(float x) { return Vector{x, x, x, x}; }
  static Vector fma(Vector a, Vector b, Vector c) { return a * b + c; }
  static Vector greater(Vector a, Vector b) { return a > b ? a : b; }
  static Vector less(Vector a, Vector b) { return a < b ? a : b; }
};

}  // namespace

const AttentionRows* attention_rows_baseline() {
  static constexpr AttentionRows functions = VectorRows<Lanes>::functions();
  return &functions;
}

}  // namespace ps::detail
