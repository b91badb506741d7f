#include "resample/support/work.h"

#include <fmt/format.h>

#include <cstdint>

namespace ladder::resample {
namespace {

bool is_aligned(const void* pointer) {
  return reinterpret_cast<std::uintptr_t>(pointer) % vector_bytes == 0;
}

}  // namespace

std::string why_left(const Work& work, std::size_t most_row_bytes) {
  const std::size_t row_bytes = work.columns * size_of(work.type);
  if (work.samples == 0) return "there are no samples";
  if (row_bytes % vector_bytes != 0) {
    return fmt::format("rows of {} bytes are not a multiple of {}", row_bytes, vector_bytes);
  }
  if (row_bytes > most_row_bytes) {
    return fmt::format("rows of {} bytes exceed {}", row_bytes, most_row_bytes);
  }
  if (!is_aligned(work.values) || !is_aligned(work.out)) {
    return fmt::format("values or results are not aligned to {} bytes", vector_bytes);
  }
  return "";
}

std::string why_left(const Kernel& kernel, const Work& work) {
  return kernel.most_row_bytes == 0 ? "" : why_left(work, kernel.most_row_bytes);
}

}  // namespace ladder::resample
