// Attention in double precision, row by row.
#pragma once

#include <span>
#include <vector>

namespace ladder::attention {

struct ReferenceRow {
  std::vector<double> out;
  std::vector<double> sizes;  // the same sums of the values' magnitudes: what rounding scales with
};

// Of one query: `k` and `v` hold as many rows of q's length as there are keys, at least one. Throws
// InvalidArgument if they do not.
ReferenceRow reference_row(std::span<const float> q, std::span<const float> k,
                           std::span<const float> v, double scale);

// How far a result may be off: probabilities and the result are rounded to a type with this
// relative spacing ("epsilon"), 2^-7 for bf16 and 2^-10 for f16.
double tolerance_of(double out, double size, double epsilon);

}  // namespace ladder::attention
