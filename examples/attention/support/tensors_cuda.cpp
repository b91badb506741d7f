#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>
#include <stdexcept>

#include "attention/support/numbers.h"
#include "attention/support/tensors.h"
#include "penstock/base/error.h"
#include "penstock/ops/attention.h"

namespace ladder::attention {
namespace {

constexpr std::size_t guard = 2 * dim;  // elements of NaN before and after the result
constexpr double few = 1 << 19;         // scores up to which all rows are compared

std::size_t count_of(const Shape& shape) { return std::size_t{shape.heads} * shape.rows * dim; }

Shape checked(const Shape& shape, ps::DType type) {
  if (shape.heads < 1 || shape.rows < 1) {
    ps::detail::throw_invalid("shape", "at least one head and one row",
                              fmt::format("{}, {}", shape.heads, shape.rows));
  }
  if (type != ps::DType::bf16 && type != ps::DType::f16) {
    ps::detail::throw_invalid("type", "bf16 or f16", std::string(name(type)));
  }
  return shape;
}

// Rows to look at: the first and last ones, the borders of tiles, and some others.
std::vector<unsigned> rows_of(unsigned rows) {
  std::vector<unsigned> found;
  for (const unsigned border : {0U, 16U, 32U, 64U, 128U, 256U, rows / 2, rows - 128, rows}) {
    for (const unsigned row : {border - 1, border, border + 1}) {
      if (row < rows) found.push_back(row);
    }
  }
  std::ranges::sort(found);
  const auto repeated = std::ranges::unique(found);
  found.erase(repeated.begin(), repeated.end());
  return found;
}

std::size_t workspace_bytes(const ps::DeviceBuffer& q, const Shape& shape, ps::DType type) {
  // The shapes alone count.
  const ps::TensorView each(q.view().data, type, {shape.heads, shape.rows, 1, dim}, q.view().place);
  return ps::attention_workspace_bytes({.q = each, .k = each, .v = each});
}

}  // namespace

Tensors::Tensors(const ps::Stream& stream, const Shape& shape, ps::DType type)
    : stream_(stream),
      shape_(checked(shape, type)),
      type_(type),
      q_(random_numbers(stream, count_of(shape), type, 1)),
      k_(random_numbers(stream, count_of(shape), type, 2)),
      v_(random_numbers(stream, count_of(shape), type, 3)),
      out_(stream.device(), (count_of(shape) + 2 * guard) * element_bytes),
      counter_(stream.device(), sizeof(unsigned)),
      workspace_(stream.device(), workspace_bytes(q_, shape, type)) {
  ps::fill(counter_.view(), 0, stream);
  poison();
}

Problem Tensors::problem(bool causal, float scale) const {
  return {.q = q_.view().data,
          .k = k_.view().data,
          .v = v_.view().data,
          .out = out_.view().sub(guard * element_bytes, count_of(shape_) * element_bytes).data,
          .heads = shape_.heads,
          .rows = shape_.rows,
          .causal = causal,
          .scale = scale,
          .counter = counter_.view().as<unsigned>(),
          .workspace = workspace_.view()};
}

void Tensors::poison() const { ps::fill(out_.view(), nan_byte, stream_); }

std::size_t Tensors::check(const Problem& p) const {
  const std::size_t count = count_of(shape_);
  const auto out_at = [&](std::size_t at) {
    return out_.view().data + at * element_bytes;  // from the guard on
  };
  if (const auto missing = count_nan(stream_, out_at(guard), type_, count); missing > 0) {
    throw std::runtime_error(
        fmt::format("{} of {} elements are NaN or were never written", missing, count));
  }
  if (count_nan(stream_, out_at(0), type_, guard) != guard ||
      count_nan(stream_, out_at(guard + count), type_, guard) != guard) {
    throw std::runtime_error("something was written before or after the result");
  }
  const double epsilon = type_ == ps::DType::f16 ? 0x1p-10 : 0x1p-7;
  const std::vector<Row>& rows = references(p);
  for (const Row& row : rows) {
    const std::vector<float> got =
        download(p.out, std::size_t{row.head} * shape_.rows + row.row, 1);
    for (std::size_t i = 0; i < dim; ++i) {
      const double expected = row.reference.out[i];
      const double tolerance = tolerance_of(expected, row.reference.sizes[i], epsilon);
      if (std::abs(got[i] - expected) <= tolerance) continue;
      throw std::runtime_error(fmt::format("head {}, row {}, column {}: {}; expected {} within {}",
                                           row.head, row.row, i, got[i], expected, tolerance));
    }
  }
  return rows.size() * dim;
}

const std::vector<Tensors::Row>& Tensors::references(const Problem& p) const {
  std::vector<Row>& made = references_[{p.causal, p.scale}];
  if (!made.empty()) return made;
  const bool all = double{1} * shape_.heads * shape_.rows * shape_.rows <= few;
  const unsigned step = all ? 1 : std::max(1U, shape_.heads / 3);  // at most four heads
  for (unsigned head = 0; head < shape_.heads; head += step) {
    const std::size_t first = std::size_t{head} * shape_.rows;
    const std::vector<float> q = download(p.q, first, shape_.rows);
    const std::vector<float> k = download(p.k, first, shape_.rows);
    const std::vector<float> v = download(p.v, first, shape_.rows);
    std::vector<unsigned> rows = rows_of(shape_.rows);
    if (all) {
      rows.resize(shape_.rows);
      for (unsigned i = 0; i < shape_.rows; ++i) rows[i] = i;
    }
    for (const unsigned row : rows) {
      const std::size_t keys = dim * (p.causal ? std::size_t{row} + 1 : shape_.rows);
      made.push_back({head, row,
                      reference_row(std::span(q).subspan(row * std::size_t{dim}, dim),
                                    std::span(k).first(keys), std::span(v).first(keys), p.scale)});
    }
  }
  return made;
}

std::vector<float> Tensors::download(const void* matrix, std::size_t row, std::size_t rows) const {
  return downloaded(stream_, static_cast<const std::byte*>(matrix) + row * dim * element_bytes,
                    type_, rows, dim, dim);
}

}  // namespace ladder::attention
