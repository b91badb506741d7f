#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>
#include <utility>

#include "gemm/support/fill.h"
#include "gemm/support/matrices.h"
#include "penstock/host/cuda.h"
#include "support/check_cuda.h"

namespace gemm {
namespace {

// Matrices has a check() of its own.
constexpr auto ok = ladder::check;

constexpr std::size_t guard = 256;             // elements of NaN before and after each C
constexpr std::size_t whole_check = 1u << 20;  // elements up to which all are compared

float as_float(__nv_bfloat16 value) { return __bfloat162float(value); }

// Rows or columns to look at: the first and last ones, the borders of tiles, and some others.
std::vector<unsigned> lines_of(unsigned extent, unsigned seed) {
  std::vector<unsigned> lines;
  for (const unsigned border : {0u, 8u, 16u, 64u, 128u, 192u, 256u, 512u, extent}) {
    for (const unsigned line : {border - 1, border, border + 1}) {
      if (line < extent) lines.push_back(line);
    }
  }
  for (unsigned i = 0; i < 24; ++i) {
    seed = seed * 1664525u + 1013904223u;
    lines.push_back((seed >> 4) % extent);
  }
  std::sort(lines.begin(), lines.end());
  lines.erase(std::unique(lines.begin(), lines.end()), lines.end());
  return lines;
}

std::vector<unsigned> all_lines(unsigned extent) {
  std::vector<unsigned> lines(extent);
  for (unsigned i = 0; i < extent; ++i) lines[i] = i;
  return lines;
}

// The given rows of a matrix in device memory.
std::vector<__nv_bfloat16> download(const __nv_bfloat16* matrix, const std::vector<unsigned>& rows,
                                    std::size_t columns) {
  std::vector<__nv_bfloat16> host(rows.size() * columns);
  for (std::size_t i = 0; i < rows.size() && columns > 0; ++i) {
    ok(cudaMemcpy(&host[i * columns], matrix + rows[i] * columns, columns * 2,
                  cudaMemcpyDeviceToHost),
       "cudaMemcpy");
  }
  return host;
}

std::size_t cache_bytes() {
  int device = 0, bytes = 0;
  ok(cudaGetDevice(&device), "cudaGetDevice");
  ok(cudaDeviceGetAttribute(&bytes, cudaDevAttrL2CacheSize, device), "cudaDeviceGetAttribute");
  return static_cast<std::size_t>(bytes);
}

}  // namespace

// The sums of the lines that are looked at, and the sums of what was added in size.
struct Matrices::Reference {
  std::vector<unsigned> rows, columns;
  std::vector<double> sums, sizes;
};

Matrices::Matrices(const ps::Stream& stream, const Size& size, std::size_t sets, std::size_t offset)
    : stream_(stream), size_(size) {
  const std::size_t a = std::size_t{size.m} * size.k, b = std::size_t{size.n} * size.k,
                    c = std::size_t{size.m} * size.n;
  const auto padded = [](std::size_t count) { return (count + 255) / 256 * 256 + 256; };
  const std::size_t set_elements = padded(a) + padded(b) + padded(c) + 2 * guard + 3 * offset;
  if (sets == 0) sets = std::clamp<std::size_t>(1 + 3 * cache_bytes() / (2 * (a + b + c)), 2, 64);
  for (std::size_t i = 0; i < sets; ++i) {
    memory_.emplace_back(stream.device(), set_elements * sizeof(__nv_bfloat16));
    auto* const at_a = memory_.back().view().as<__nv_bfloat16>() + offset;
    auto* const at_b = at_a + padded(a) + offset;
    auto* const at_c = at_b + padded(b) + offset + guard;
    const auto seed = static_cast<std::uint32_t>(2 * i + 1);
    fill_random(at_a, a, seed, ps::cuda_stream(stream));
    fill_random(at_b, b, seed + 1, ps::cuda_stream(stream));
    problems_.push_back({at_a, at_b, at_c, size.m, size.n, size.k});
    poison(i);
  }
}

void Matrices::poison(std::size_t set) const {
  const Problem& p = problems_[set];
  // Every bit set is a NaN.
  ok(cudaMemsetAsync(p.c - guard, 0xff, (std::size_t{p.m} * p.n + 2 * guard) * 2,
                     ps::cuda_stream(stream_)),
     "cudaMemsetAsync");
}

Error Matrices::check(std::size_t set) const {
  const Problem& p = problems_[set];
  const std::size_t count = std::size_t{p.m} * p.n;
  ps::DeviceBuffer counter(stream_.device(), sizeof(unsigned long long));
  auto* const found = counter.view().as<unsigned long long>();
  const auto nans = [&](const __nv_bfloat16* in, std::size_t elements) {
    ok(cudaMemsetAsync(found, 0, sizeof(*found), ps::cuda_stream(stream_)), "cudaMemsetAsync");
    count_nan(in, elements, found, ps::cuda_stream(stream_));
    unsigned long long answer = 0;
    stream_.synchronize();
    ok(cudaMemcpy(&answer, found, sizeof(answer), cudaMemcpyDeviceToHost), "cudaMemcpy");
    return answer;
  };
  if (const auto missing = nans(p.c, count); missing > 0) {
    throw std::runtime_error(
        fmt::format("{} of {} elements of C are NaN or were never written", missing, count));
  }
  if (nans(p.c - guard, guard) != guard || nans(p.c + count, guard) != guard) {
    throw std::runtime_error("something was written before or behind C");
  }

  const Reference& expected = reference(set);
  const auto c = download(p.c, expected.rows, p.n);
  Error error;
  for (std::size_t i = 0; i < expected.rows.size(); ++i) {
    for (std::size_t j = 0; j < expected.columns.size(); ++j) {
      const std::size_t at = i * expected.columns.size() + j;
      // Rounding to bf16, and that of the float sums before it.
      const double sum = expected.sums[at];
      const double tolerance = std::abs(sum) / 256 + expected.sizes[at] * 1e-6 + 1e-30;
      const double given = as_float(c[i * p.n + expected.columns[j]]);
      const double off = std::abs(given - sum) / tolerance;
      if (!(off <= 1)) {
        throw std::runtime_error(fmt::format("C[{}, {}] is {}; expected {} within {}",
                                             expected.rows[i], expected.columns[j], given, sum,
                                             tolerance));
      }
      error.largest = std::max(error.largest, off);
      ++error.checked;
    }
  }
  return error;
}

const Matrices::Reference& Matrices::reference(std::size_t set) const {
  references_.resize(problems_.size());
  if (references_[set]) return *references_[set];
  const Problem& p = problems_[set];
  const bool whole = std::size_t{p.m} * p.n <= whole_check;
  auto made = std::make_shared<Reference>();
  made->rows = whole ? all_lines(p.m) : lines_of(p.m, 1);
  made->columns = whole ? all_lines(p.n) : lines_of(p.n, 2);
  const auto a = download(p.a, made->rows, p.k), b = download(p.b, made->columns, p.k);
  for (std::size_t i = 0; i < made->rows.size(); ++i) {
    for (std::size_t j = 0; j < made->columns.size(); ++j) {
      double sum = 0, size = 0;
      for (std::size_t k = 0; k < p.k; ++k) {
        const double product = double{as_float(a[i * p.k + k])} * as_float(b[j * p.k + k]);
        sum += product;
        size += std::abs(product);
      }
      made->sums.push_back(sum);
      made->sizes.push_back(size);
    }
  }
  references_[set] = std::move(made);
  return *references_[set];
}

}  // namespace gemm
