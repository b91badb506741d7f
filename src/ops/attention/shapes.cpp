#include "ops/attention/shapes.h"

#include <fmt/format.h>

#include <initializer_list>
#include <span>
#include <string>
#include <string_view>

#include "ops/attention/mask.h"
#include "penstock/base/error.h"

namespace ps::attending {
namespace {

using detail::check_last_contiguous;
using detail::check_multiple;
using detail::check_range;
using detail::check_same_type;
using detail::check_shape;
using detail::check_type;
using detail::described;
using detail::given;
using detail::Named;
using detail::throw_invalid;

constexpr std::int64_t most_heads = 65535;
constexpr std::int64_t most_sequences = 1 << 24;
constexpr std::int64_t most_pages = 1 << 30;
constexpr std::int64_t most_dim = 256;
constexpr std::int64_t dim_multiple = 8;

void check_cumulative(const Named& cumulative) {
  check_type(cumulative, {DType::i32});
  if (cumulative.view.rank() == 1 && cumulative.view.extent(0) > 0) return;
  throw_invalid(cumulative.name(), "shape (B + 1): where each sequence begins, and the end",
                described(cumulative.view));
}

void check_dims(const Named& argument, const Extents& of) {
  check_range(argument, "heads", of.heads, 1, most_heads);
  check_range(argument, "a head dimension", of.dim, dim_multiple, most_dim);
  check_multiple(argument, "a head dimension", of.dim, dim_multiple);
}

Extents extents(const Named& argument, const Named& cumulative) {
  const TensorView& view = argument.view;
  const bool several_lengths = given(cumulative.view);
  if (view.rank() != (several_lengths ? 3 : 4)) {
    throw_invalid(argument.name(),
                  several_lengths ? fmt::format("shape (rows, heads, dimension), because of {}",
                                                cumulative.name())
                                  : std::string("shape (sequences, rows, heads, dimension)"),
                  described(view));
  }
  if (several_lengths) check_cumulative(cumulative);
  Extents found;
  found.sequences = several_lengths ? cumulative.view.extent(0) - 1 : view.extent(0);
  const std::size_t row = view.rank() - 3;
  found.rows = view.extent(row);
  found.heads = view.extent(row + 1);
  found.dim = view.extent(row + 2);
  check_range(several_lengths ? cumulative : argument, "sequences", found.sequences, 0,
              most_sequences);
  check_range(argument, "rows", found.rows, 0, detail::attention_most_rows - 1);
  check_dims(argument, found);
  return found;
}

// The shape of `like` with another head dimension.
void check_like(const Named& argument, const Named& like, std::int64_t dim,
                std::string_view meaning) {
  const std::span<const std::int64_t> shape = like.view.shape();
  if (shape.size() == 3) return check_shape(argument, {shape[0], shape[1], dim}, meaning);
  check_shape(argument, {shape[0], shape[1], shape[2], dim}, meaning);
}

void check_optional_array(const Named& argument, std::int64_t count, std::string_view meaning,
                          std::initializer_list<DType> types) {
  if (!given(argument.view)) return;
  check_shape(argument, {count}, meaning);
  check_type(argument, types);
}

}  // namespace

Extents extents_of_queries(const Views& views) { return extents(views.q, views.cu_q); }

Extents extents_of_keys(const Named& argument, const Views& views) {
  const TensorView& pages = views.pages.view;
  if (!views.paged()) return extents(argument, views.cu_k);
  if (given(views.cu_k.view)) {
    throw_invalid("cu_k", "none, because of pages", described(views.cu_k.view));
  }
  check_type(views.pages, {DType::i32});
  if (pages.rank() != 2) {
    throw_invalid("pages", "shape (B, most pages of a sequence)", described(pages));
  }
  check_last_contiguous(views.pages);
  if (pages.extent(0) > 1 && pages.strides()[0] < 0) {
    throw_invalid("pages", "a stride of 0 or more",
                  fmt::format("{} in {}", pages.strides()[0], described(pages)));
  }
  const TensorView& view = argument.view;
  if (view.rank() != 4) {
    throw_invalid(argument.name(), "shape (pages, rows of a page, heads, dimension)",
                  described(view));
  }
  check_range(argument, "pages", view.extent(0), 0, most_pages);
  check_range(argument, "rows of a page", view.extent(1), 1, detail::attention_most_rows - 1);
  check_range(views.pages, "sequences", pages.extent(0), 0, most_sequences);
  check_range(views.pages, "pages of a sequence", pages.extent(1), 0,
              (detail::attention_most_rows - 1) / view.extent(1));
  Extents found{.sequences = pages.extent(0),
                .rows = pages.extent(1) * view.extent(1),
                .heads = view.extent(2),
                .dim = view.extent(3),
                .pages = view.extent(0),
                .page_rows = view.extent(1)};
  check_dims(argument, found);
  return found;
}

void check_heads(const Views& views, const Shapes& shapes) {
  const std::int64_t heads_q = shapes.q.heads, heads_k = shapes.k.heads;
  if (heads_q % heads_k == 0) return;
  throw_invalid("q", fmt::format("heads that are a multiple of the {} heads of k", heads_k),
                fmt::format("{} in {}", heads_q, described(views.q.view)));
}

Shapes checked_shapes(const Views& views) {
  const Shapes shapes{extents_of_queries(views), extents_of_keys(views.k, views),
                      extents_of_keys(views.v, views)};
  const auto& [q, k, v] = shapes;
  check_type(views.q, {DType::bf16, DType::f16, DType::f32});
  for (const Named* each : {&views.k, &views.v, &views.out}) check_same_type(*each, views.q);
  if (k.sequences != q.sequences) {
    throw_invalid(given(views.cu_k.view) ? "cu_k"
                  : views.paged()        ? "pages"
                                         : views.k.name(),
                  fmt::format("{} sequences, as in q", q.sequences),
                  fmt::format("{} sequences", k.sequences));
  }
  check_like(views.k, views.k, q.dim, "the head dimension of q");
  check_like(views.v, views.k, v.dim, "all of k but the head dimension");
  check_like(views.out, views.q, v.dim, "sequences, rows and heads of q, head dimension of v");
  check_heads(views, shapes);
  check_optional_array(views.sinks, q.heads, "one per head of q",
                       {DType::f32, DType::bf16, DType::f16});
  for (const Named* each : {&views.first_k, &views.lengths_k}) {
    check_optional_array(*each, q.sequences, "one per sequence", {DType::i32});
  }
  if (given(views.lse.view)) {
    check_type(views.lse, {DType::f32});
    if (given(views.cu_q.view)) {
      check_shape(views.lse, {q.heads, q.rows}, "heads and rows of q");
    } else {
      check_shape(views.lse, {q.sequences, q.heads, q.rows}, "sequences, heads and rows of q");
    }
  }
  return shapes;
}

}  // namespace ps::attending
