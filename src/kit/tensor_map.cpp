// The rules of the driver's encoding of tiled tensor maps (CUDA 13.0), checked where a message can
// still say which one was broken. The documentation also shows strides as products of the
// dimensions before them; no driver asks for that, and permuted views would be lost with it.
#include "penstock/kit/tensor_map.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <span>
#include <string_view>

#include "kit/tiled_map.h"
#include "penstock/base/error.h"

namespace ps::kit {
namespace {

using ps::detail::throw_invalid;

constexpr std::int64_t max_dimension = std::int64_t{1} << 32;
constexpr std::int64_t stride_limit = std::int64_t{1} << 40;  // bytes
constexpr std::int64_t max_box = 256;
constexpr std::int64_t max_element_stride = 8;
constexpr std::int64_t chunk = 16;  // bytes that the copy engine moves at once

std::string_view name_of(Swizzle swizzle) {
  constexpr std::array<std::string_view, 4> names{"none", "b32", "b64", "b128"};
  const auto index = static_cast<std::size_t>(swizzle);
  return index < names.size() ? names[index] : "";
}

std::string_view name_of(Interleave interleave) {
  constexpr std::array<std::string_view, 3> names{"none", "b16", "b32"};
  const auto index = static_cast<std::size_t>(interleave);
  return index < names.size() ? names[index] : "";
}

std::string_view name_of(L2Promotion promotion) {
  constexpr std::array<std::string_view, 4> names{"none", "b64", "b128", "b256"};
  const auto index = static_cast<std::size_t>(promotion);
  return index < names.size() ? names[index] : "";
}

std::string_view name_of(Fill fill) {
  constexpr std::array<std::string_view, 2> names{"zero", "nan"};
  const auto index = static_cast<std::size_t>(fill);
  return index < names.size() ? names[index] : "";
}

std::string list(std::span<const std::int64_t> values) {
  return fmt::format("[{}]", fmt::join(values, ", "));
}

// Of per-dimension values those that the tensor has dimensions for, and any given beyond.
std::string list(const MapExtents& values, std::size_t rank) {
  std::size_t count = std::min(rank, values.size());
  for (std::size_t d = count; d < values.size(); ++d) {
    if (values[d] > 1 || values[d] < 0) count = d + 1;
  }
  return list(std::span(values).first(count));
}

template <class Enum>
void check_known(std::string_view argument, Enum value) {
  if (name_of(value).empty()) {
    throw_invalid(argument, "one of its enumerators", std::to_string(static_cast<int>(value)));
  }
}

// The driver's number of an element type.
int type_number(DType type) {
  switch (type) {
    case DType::u8:
    case DType::boolean:
      return 0;
    case DType::i32:
      return 3;
    case DType::i64:
      return 5;
    case DType::f16:
      return 6;
    case DType::f32:
      return 7;
    case DType::f64:
      return 8;
    case DType::bf16:
      return 9;
  }
  throw_invalid("tensor", "an element type that tensor maps support", name(type));
}

void check_tensor(const TensorMapOptions& options) {
  const TensorView& tensor = options.tensor;
  const std::size_t rank = tensor.rank();
  const bool wide = options.interleave == Interleave::b32;
  if (rank < 1 || rank > max_map_rank) {
    throw_invalid("tensor", "1 to 5 dimensions", tensor.describe());
  }
  if (options.interleave != Interleave::none && rank < 3) {
    throw_invalid("tensor", "at least 3 dimensions with interleave", tensor.describe());
  }
  for (std::size_t d = 0; d < rank; ++d) {
    if (tensor.extent(d) < 1 || tensor.extent(d) > max_dimension) {
      throw_invalid("tensor", fmt::format("1 to 2^32 elements in dimension {}", d),
                    tensor.describe());
    }
  }
  const Place place = tensor.place();
  if (place.memory == Memory::host ||
      (place.memory == Memory::device && place.device == cpu_index)) {
    throw_invalid("tensor",
                  "memory that the GPU can access: device memory or page-locked host memory",
                  tensor.describe());
  }
  const std::uintptr_t alignment = wide ? 32 : 16;
  const auto address = reinterpret_cast<std::uintptr_t>(tensor.data());
  if (address % alignment != 0) {
    throw_invalid("tensor",
                  fmt::format("an address that is a multiple of {} bytes{}", alignment,
                              wide ? " with interleave b32" : ""),
                  fmt::format("{:#x}", address));
  }
}

void check_strides(const TensorMapOptions& options) {
  const TensorView& tensor = options.tensor;
  const auto element = static_cast<std::int64_t>(size_of(tensor.dtype()));
  const bool wide = options.interleave == Interleave::b32;
  const std::int64_t multiple = wide ? 32 : chunk;
  const std::size_t last = tensor.rank() - 1;
  // Steps along a dimension of one element are never made, here and below.
  if (tensor.strides()[last] != 1 && tensor.extent(last) > 1) {
    throw_invalid("tensor", "an innermost stride of 1 element",
                  fmt::format("strides {}", list(tensor.strides())));
  }
  for (std::size_t d = 0; d < last; ++d) {
    if (tensor.extent(d) == 1) continue;
    // No overflow: the view's farthest byte is below 2^63.
    const std::int64_t bytes = tensor.strides()[d] * element;
    if (bytes < 0 || bytes >= stride_limit || bytes % multiple != 0) {
      throw_invalid("tensor",
                    fmt::format("a stride in dimension {} that is a multiple of {} bytes{}, from 0 "
                                "and below 2^40",
                                d, multiple, wide ? " with interleave b32" : ""),
                    fmt::format("{} bytes: strides {} of {}", bytes, list(tensor.strides()),
                                name(tensor.dtype())));
    }
  }
}

void check_box(const TensorMapOptions& options) {
  const TensorView& tensor = options.tensor;
  const std::size_t rank = tensor.rank();
  const MapExtents& box = options.box;
  for (std::size_t d = 0; d < rank; ++d) {
    if (box[d] < 1 || box[d] > max_box) {
      throw_invalid(fmt::format("box[{}]", d), "1 to 256 elements",
                    fmt::format("{} in {}", box[d], list(box, rank)));
    }
  }
  for (std::size_t d = rank; d < box.size(); ++d) {
    if (box[d] != 0) {
      throw_invalid("box", fmt::format("{} values, one per dimension of the tensor", rank),
                    list(std::span(box).first(d + 1)));
    }
  }
  if (options.interleave != Interleave::none) return;
  const std::int64_t elements = box[rank - 1];
  const std::int64_t bytes = elements * static_cast<std::int64_t>(size_of(tensor.dtype()));
  const auto given = [&] {
    return fmt::format("{} of {}, {} bytes", elements, name(tensor.dtype()), bytes);
  };
  if (bytes % chunk != 0) {
    throw_invalid(fmt::format("box[{}]", rank - 1),
                  "a multiple of 16 bytes along the innermost dimension", given());
  }
  const std::int64_t widest = span(options.swizzle);
  if (options.swizzle != Swizzle::none && bytes > widest) {
    throw_invalid(fmt::format("box[{}]", rank - 1),
                  fmt::format("at most the {} bytes of swizzle {} along the innermost dimension",
                              widest, name_of(options.swizzle)),
                  given());
  }
}

void check_element_strides(const TensorMapOptions& options) {
  const std::size_t rank = options.tensor.rank();
  const MapExtents& strides = options.element_strides;
  for (std::size_t d = 0; d < rank; ++d) {
    if (strides[d] < 1 || strides[d] > max_element_stride) {
      throw_invalid(fmt::format("element_strides[{}]", d), "1 to 8",
                    fmt::format("{} in {}", strides[d], list(strides, rank)));
    }
  }
  for (std::size_t d = rank; d < strides.size(); ++d) {
    if (strides[d] != 0 && strides[d] != 1) {
      throw_invalid("element_strides",
                    fmt::format("{} values, one per dimension of the tensor", rank),
                    list(std::span(strides).first(d + 1)));
    }
  }
  // The driver would take it and pass over it.
  if (options.interleave == Interleave::none && strides[rank - 1] != 1) {
    throw_invalid(fmt::format("element_strides[{}]", rank - 1),
                  "1 along the innermost dimension without interleave",
                  std::to_string(strides[rank - 1]));
  }
}

void check_modes(const TensorMapOptions& options) {
  if (options.interleave == Interleave::b32 && options.swizzle != Swizzle::b32) {
    throw_invalid("swizzle", "b32 with interleave b32", name_of(options.swizzle));
  }
  if (options.fill == Fill::nan && !is_floating(options.tensor.dtype())) {
    throw_invalid("fill", "zero for elements that are not floating-point numbers",
                  fmt::format("nan for {}", name(options.tensor.dtype())));
  }
}

}  // namespace

void check(const TensorMapOptions& options) {
  check_known("swizzle", options.swizzle);
  check_known("interleave", options.interleave);
  check_known("l2_promotion", options.l2_promotion);
  check_known("fill", options.fill);
  check_tensor(options);
  check_strides(options);
  check_box(options);
  check_element_strides(options);
  check_modes(options);
}

TensorMap encode(const TensorMapOptions& options) {
  return detail::encode_tiled(detail::tiled_map(options), options);
}

std::string describe(const TensorMapOptions& options) {
  const TensorView& tensor = options.tensor;
  return fmt::format(
      "{} at {:#x} with strides {}, box {}, element strides {}, swizzle {}, interleave {}, L2 "
      "promotion {}, fill {}",
      tensor.describe(), reinterpret_cast<std::uintptr_t>(tensor.data()), list(tensor.strides()),
      list(options.box, tensor.rank()), list(options.element_strides, tensor.rank()),
      name_of(options.swizzle), name_of(options.interleave), name_of(options.l2_promotion),
      name_of(options.fill));
}

namespace detail {

TiledMap tiled_map(const TensorMapOptions& options) {
  check(options);
  const TensorView& tensor = options.tensor;
  const std::size_t rank = tensor.rank();
  TiledMap map{.type = type_number(tensor.dtype()),
               .rank = static_cast<unsigned>(rank),
               .address = tensor.data()};
  for (std::size_t i = 0; i < rank; ++i) {
    const std::size_t d = rank - 1 - i;
    map.dimensions[i] = static_cast<std::uint64_t>(tensor.extent(d));
    map.box[i] = static_cast<std::uint32_t>(options.box[d]);
    map.element_strides[i] = static_cast<std::uint32_t>(options.element_strides[d]);
    if (i > 0 && tensor.extent(d) > 1) {
      map.stride_bytes[i - 1] =
          static_cast<std::uint64_t>(tensor.strides()[d]) * size_of(tensor.dtype());
    }
  }
  return map;
}

}  // namespace detail
TensorMapOptions ragged_options(const TensorView& matrix) {
  constexpr std::int64_t box = 16;
  const std::int64_t stride = matrix.strides()[0];
  const std::int64_t shape[] = {matrix.extent(0) + box, box, matrix.extent(1)};
  const std::int64_t strides[] = {stride, stride, 1};
  auto* const before = static_cast<std::byte*>(matrix.data()) -
                       box * stride * static_cast<std::int64_t>(size_of(matrix.dtype()));
  return {.tensor = TensorView(before, matrix.dtype(), shape, strides, matrix.place()),
          .box = {1, box, 64},
          .swizzle = Swizzle::b128};
}

}  // namespace ps::kit
