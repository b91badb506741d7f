// The views of a call of attention(), and what their shapes and types say.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "ops/arguments.h"
#include "penstock/ops/attention.h"

namespace ps::attending {

// The names of arguments that another operator may call otherwise.
struct Names {
  std::string_view k = "k", v = "v", cu_q = "cu_q", lengths_k = "lengths_k";
};

struct Views {
  detail::Named q, k, v, sinks, cu_q, cu_k, first_k, lengths_k, pages, lse, out;

  explicit Views(const AttentionOptions& options, const Names& names = {})
      : q{"q", options.q},
        k{names.k, options.k},
        v{names.v, options.v},
        sinks{"sinks", options.sinks},
        cu_q{names.cu_q, options.cu_q},
        cu_k{"cu_k", options.cu_k},
        first_k{"first_k", options.first_k},
        lengths_k{names.lengths_k, options.lengths_k},
        pages{"pages", options.pages},
        lse{"lse", options.lse},
        out{"out", options.out} {}

  // Whether k and v are in pages; a table without entries may have no address.
  bool paged() const { return detail::given(pages.view) || pages.view.rank() == 2; }

  // The inputs, then the results.
  std::array<detail::Named, 11> all() const {
    return {q, k, v, sinks, cu_q, cu_k, first_k, lengths_k, pages, lse, out};
  }
};

// The extents of (sequences, rows, heads, dimension), or of (rows, heads, dimension) with
// cumulative lengths. With pages, rows counts those that a sequence may have.
struct Extents {
  std::int64_t sequences = 0, rows = 0, heads = 0, dim = 0;
  std::int64_t pages = 0, page_rows = 0;
};

struct Shapes {
  Extents q, k, v;
};

// Of q. Throws InvalidArgument as checked_shapes() does.
Extents extents_of_queries(const Views& views);

// Of k or v, whose sequences are described by cu_k, by pages, or by neither.
Extents extents_of_keys(const detail::Named& argument, const Views& views);

// That the heads of k divide those of q.
void check_heads(const Views& views, const Shapes& shapes);

// Throws InvalidArgument if shapes or types do not fit together.
Shapes checked_shapes(const Views& views);

}  // namespace ps::attending
