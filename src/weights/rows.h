// Ranges of rows of a tensor, which are slices of its first dimension.
#pragma once

#include <cstdint>
#include <string_view>

#include "penstock/weights/weight_info.h"

namespace ps::detail {

struct ByteRange {
  std::uint64_t offset = 0;  // from the first byte of the tensor
  std::uint64_t bytes = 0;
};

// Throws InvalidArgument naming the argument, with `where` before it ("reads[2]."): for rows that
// the tensor does not have, and for memory that cannot hold exactly these rows.
ByteRange checked_rows(const WeightInfo& tensor, std::int64_t first_row, std::int64_t rows,
                       MemoryView to, std::string_view where);

}  // namespace ps::detail
