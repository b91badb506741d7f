#include "ops/resample/views.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstdlib>

#include "penstock/base/error.h"

namespace ps::resampling {
namespace {

using detail::throw_invalid;

struct Bytes {
  std::uintptr_t begin = 0, end = 0;
};

// From the first to the last byte, with whatever lies between.
Bytes bytes_of(const TensorView& view) {
  const auto data = reinterpret_cast<std::uintptr_t>(view.data());
  if (view.elements() == 0) return {data, data};
  std::int64_t behind = 0, ahead = 1;
  for (std::size_t d = 0; d < view.rank(); ++d) {
    const std::int64_t reach = (view.shape()[d] - 1) * view.strides()[d];
    (reach < 0 ? behind : ahead) += reach;
  }
  const auto size = static_cast<std::int64_t>(size_of(view.dtype()));
  return {data + static_cast<std::uintptr_t>(behind * size),
          data + static_cast<std::uintptr_t>(ahead * size)};
}

// Whether each stride leads past all that smaller ones reach.
bool elements_apart(const TensorView& view) {
  struct Dimension {
    std::int64_t stride, extent;
  };
  std::array<Dimension, max_rank> all{};  // from the smallest stride up
  std::size_t count = 0;
  for (std::size_t d = 0; d < view.rank(); ++d) {
    if (view.shape()[d] <= 1) continue;
    const Dimension own{std::abs(view.strides()[d]), view.shape()[d]};
    std::size_t place = count++;
    for (; place > 0 && all[place - 1].stride > own.stride; --place) all[place] = all[place - 1];
    all[place] = own;
  }
  std::int64_t reach = 0;
  for (const Dimension& each : std::span(all.data(), count)) {
    if (each.stride <= reach) return false;
    reach += each.stride * (each.extent - 1);
  }
  return true;
}

}  // namespace

std::string Named::name() const {
  return sensor < 0 ? argument : fmt::format("sensors[{}].{}", sensor, argument);
}

bool given(const TensorView& view) { return view.data() != nullptr || view.elements() > 0; }

std::string described(const TensorView& view) {
  const bool unset = !given(view) && view.dtype() == DType::u8 && view.rank() == 1;
  return unset ? "none" : view.describe();
}

std::int64_t step(const TensorView& view, std::size_t dimension) {
  return view.elements() == 0 ? 0 : view.strides()[dimension];
}

void check_type(const Named& argument, std::initializer_list<DType> types) {
  if (std::ranges::find(types, argument.view.dtype()) != types.end()) return;
  std::string list;
  for (const DType* type = types.begin(); type != types.end(); ++type) {
    list += type == types.begin() ? "" : type + 1 == types.end() ? " or " : ", ";
    list += name(*type);
  }
  throw_invalid(argument.name(), "elements of type " + list, described(argument.view));
}

void check_same_type(const Named& argument, const Named& as) {
  if (argument.view.dtype() == as.view.dtype()) return;
  throw_invalid(
      argument.name(),
      fmt::format("elements of type {}, the type of {}", name(as.view.dtype()), as.name()),
      described(argument.view));
}

void check_shape(const Named& argument, std::initializer_list<std::int64_t> shape,
                 std::string_view meaning) {
  if (std::ranges::equal(argument.view.shape(), shape)) return;
  throw_invalid(argument.name(), fmt::format("shape [{}]: {}", fmt::join(shape, ", "), meaning),
                described(argument.view));
}

void check_memory(const Named& argument, const Device& device) {
  const TensorView& view = argument.view;
  if (view.elements() == 0) return;
  const std::size_t element = size_of(view.dtype());
  if (reinterpret_cast<std::uintptr_t>(view.data()) % element != 0) {
    throw_invalid(argument.name(),
                  fmt::format("data aligned to {} bytes, the size of an element", element),
                  "an address that is not");
  }
  // On the CPU every memory but a GPU's is within reach.
  const bool reachable = device.kind() == DeviceKind::cpu ? view.place().memory != Memory::device ||
                                                                view.place().device == cpu_index
                                                          : view.place() == device.place();
  if (!reachable) {
    throw_invalid(argument.name(), "memory of " + device.name() + ", the stream's device",
                  view.describe());
  }
}

void check_apart(const Named& result, std::span<const Named> others) {
  if (result.view.elements() == 0) return;
  if (!elements_apart(result.view)) {
    throw_invalid(result.name(), "elements that do not overlap each other",
                  fmt::format("{} with strides [{}]", result.view.describe(),
                              fmt::join(result.view.strides(), ", ")));
  }
  const Bytes mine = bytes_of(result.view);
  for (const Named& other : others) {
    const Bytes its = bytes_of(other.view);
    if (its.begin == its.end || mine.end <= its.begin || its.end <= mine.begin) continue;
    throw_invalid(result.name(), "memory that does not overlap " + other.name(),
                  result.view.describe() + " over a part of it, " + other.view.describe());
  }
}

}  // namespace ps::resampling
