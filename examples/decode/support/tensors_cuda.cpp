#include "decode/support/tensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <span>
#include <stdexcept>

#include "attention/support/numbers.h"
#include "decode/support/library.h"

namespace ladder::decode {
namespace {

using attention::element_bytes;
using attention::nan_byte;

constexpr ps::DType type = ps::DType::bf16;
constexpr double epsilon = 0x1p-7;      // the spacing of bf16
constexpr std::size_t guard = 2 * dim;  // elements of NaN before and after the result
constexpr std::size_t few = 1 << 18;    // scores up to which all rows are compared

std::size_t count_of_cache(const Shape& shape, const Placement& placement) {
  return placement.rows() * shape.heads_k * dim;
}

// Partial results.
std::size_t count_of_partials(const Shape& shape) {
  return std::max(shape.lengths.size() * shape.heads_q * most_splits,
                  std::size_t{2} * most_parts * tile_rows);
}

ps::DeviceBuffer uploaded(const ps::Stream& stream, const std::vector<int>& numbers) {
  // Also without numbers there is memory.
  const std::size_t bytes = std::max<std::size_t>(numbers.size(), 1) * sizeof(int);
  ps::DeviceBuffer there(stream.device(), bytes);
  const ps::PinnedBuffer here(stream.device(), bytes);
  std::ranges::copy(numbers, here.view().as<int>());
  ps::copy(there.view(), here.view(), stream);
  stream.synchronize();
  return there;
}

// Sequences or heads to look at.
std::set<unsigned> some_of(unsigned count, bool all) {
  std::set<unsigned> some{0, count / 2, count - 1};
  for (unsigned i = 0; all && i < count; ++i) some.insert(i);
  return some;
}

}  // namespace

Tensors::Tensors(const ps::Stream& stream, const Shape& shape)
    : stream_(stream),
      shape_(shape),
      placement_(place(shape)),
      q_(attention::random_numbers(stream, results(), type, 1)),
      k_(attention::random_numbers(stream, count_of_cache(shape, placement_), type, 2)),
      v_(attention::random_numbers(stream, count_of_cache(shape, placement_), type, 3)),
      out_(stream.device(), (results() + 2 * guard) * element_bytes),
      lengths_(uploaded(stream, shape.lengths)),
      starts_(uploaded(stream, placement_.starts)),
      pages_(uploaded(stream, placement_.pages)),
      stats_(stream.device(), count_of_partials(shape) * sizeof(Stats)),
      sums_(stream.device(), count_of_partials(shape) * dim * sizeof(float)),
      workspace_(stream.device(), ps::attention_workspace_bytes(library_options(
                                      without_workspace(), stream.device().place()))) {
  const std::size_t row_bytes = shape.heads_k * dim * element_bytes;
  for (const Placement::Rows& unused : placement_.unused) {
    for (const ps::DeviceBuffer* const cache : {&k_, &v_}) {
      ps::fill(cache->view().sub(unused.first * row_bytes, unused.count * row_bytes), nan_byte,
               stream);
    }
  }
  poison();
}

std::size_t Tensors::results() const { return shape_.lengths.size() * shape_.heads_q * dim; }

Problem Tensors::without_workspace() const {
  return {.q = q_.view().data,
          .out = out_.view().sub(guard * element_bytes, results() * element_bytes).data,
          .k = k_.view().data,
          .v = v_.view().data,
          .rows = placement_.rows(),
          .sequences = static_cast<unsigned>(shape_.lengths.size()),
          .heads_q = shape_.heads_q,
          .heads_k = shape_.heads_k,
          .lengths = lengths_.view().as<int>(),
          .starts = starts_.view().as<int>(),
          .pages = shape_.paged ? pages_.view().as<int>() : nullptr,
          .table_width = placement_.table_width,
          .page_rows = ps::kit::Divisor(shape_.page_rows),
          .page_count = placement_.page_count,
          .scale = usual_scale,
          .partials = {stats_.view().as<Stats>(), sums_.view().as<float>()}};
}

Problem Tensors::problem(float scale) const {
  Problem p = without_workspace();
  p.scale = scale;
  p.workspace = workspace_.view();
  return p;
}

void Tensors::poison() const {
  for (const ps::DeviceBuffer* const written : {&out_, &stats_, &sums_}) {
    ps::fill(written->view(), nan_byte, stream_);
  }
}

std::size_t Tensors::check(const Problem& p) const {
  const auto nan_from = [&](std::size_t at, std::size_t elements) {  // from the guard on
    return attention::count_nan(stream_, out_.view().data + at * element_bytes, type, elements);
  };
  if (const auto missing = nan_from(guard, results()); missing > 0) {
    throw std::runtime_error(
        fmt::format("{} of {} elements are NaN or were never written", missing, results()));
  }
  if (nan_from(0, guard) != guard || nan_from(guard + results(), guard) != guard) {
    throw std::runtime_error("something was written before or after the result");
  }
  const std::vector<float> all = result();
  const std::vector<Row>& rows = references(p.scale);
  for (const Row& row : rows) {
    const float* const got =
        all.data() + (std::size_t{row.sequence} * shape_.heads_q + row.head_q) * dim;
    for (std::size_t i = 0; i < dim; ++i) {
      const double expected = row.reference.out[i];
      const double tolerance = attention::tolerance_of(expected, row.reference.sizes[i], epsilon);
      if (std::abs(got[i] - expected) <= tolerance) continue;
      throw std::runtime_error(
          fmt::format("sequence {}, head {}, column {}: {}; expected {} within {}", row.sequence,
                      row.head_q, i, got[i], expected, tolerance));
    }
  }
  return rows.size() * dim;
}

std::vector<float> Tensors::result() const {
  return attention::downloaded(stream_, out_.view().data + guard * element_bytes, type, 1,
                               results(), results());
}

const std::vector<Tensors::Row>& Tensors::references(float scale) const {
  std::vector<Row>& made = references_[scale];
  if (!made.empty()) return made;
  const auto sequences = static_cast<unsigned>(shape_.lengths.size());
  const bool all = shape_.keys() * shape_.heads_q <= few;
  const unsigned group = shape_.heads_q / shape_.heads_k;
  const std::vector<float> q =
      attention::downloaded(stream_, q_.view().data, type, sequences * shape_.heads_q, dim, dim);
  for (const unsigned b : some_of(sequences, all)) {
    for (const unsigned head_k : some_of(shape_.heads_k, all)) {
      const std::vector<float> k = gather(k_, b, head_k), v = gather(v_, b, head_k);
      for (const unsigned in_group : some_of(group, all)) {
        const unsigned head_q = head_k * group + in_group;
        const auto query = std::span(q).subspan((b * shape_.heads_q + head_q) * dim, dim);
        const std::vector<double> none(dim);
        made.push_back({b, head_q,
                        k.empty() ? attention::ReferenceRow{none, none}
                                  : attention::reference_row(query, k, v, scale)});
      }
    }
  }
  return made;
}

std::vector<float> Tensors::gather(const ps::DeviceBuffer& from, unsigned sequence,
                                   unsigned head_k) const {
  std::vector<float> found;
  const std::size_t stride = std::size_t{shape_.heads_k} * dim;
  const auto length = static_cast<unsigned>(shape_.lengths[sequence]);
  for (unsigned key = 0; key < length; key += shape_.page_rows) {
    const std::size_t rows = std::min(shape_.page_rows, length - key);
    const std::int64_t row = placement_.row_of(sequence, key);
    if (row < 0) {
      found.resize(found.size() + rows * dim);
      continue;
    }
    const std::size_t at = static_cast<std::size_t>(row) * stride + std::size_t{head_k} * dim;
    const std::vector<float> page = attention::downloaded(
        stream_, from.view().data + at * element_bytes, type, rows, dim, stride);
    found.insert(found.end(), page.begin(), page.end());
  }
  return found;
}

}  // namespace ladder::decode
