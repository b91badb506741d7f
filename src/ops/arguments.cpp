#include "ops/arguments.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstdlib>

#include "ops/properties.h"
#include "penstock/base/error.h"

namespace ps::detail {
namespace {

constexpr std::size_t gpu_alignment = 256;  // bytes, of a workspace
constexpr std::size_t host_alignment = 64;  // the same on the CPU: what torch gives
constexpr std::size_t run_alignment = 16;   // bytes, of rows that a GPU loads

struct ByteRange {
  std::uintptr_t begin = 0, end = 0;
};

// From the first to the last byte, with everything between them.
ByteRange range_of(const TensorView& view) {
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

bool overlap(const ByteRange& a, const ByteRange& b) {
  return a.begin != a.end && b.begin != b.end && a.begin < b.end && b.begin < a.end;
}

// Whether each stride leads past everything that smaller strides reach.
bool elements_are_distinct(const TensorView& view) {
  struct Dimension {
    std::int64_t stride, extent;
  };
  std::array<Dimension, max_rank> all{};  // sorted by stride
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

std::string with_strides(const TensorView& view) {
  return fmt::format("{} with strides [{}]", view.describe(), fmt::join(view.strides(), ", "));
}

void check_aligned(const Named& argument, std::size_t bytes, std::string_view because) {
  const auto address = reinterpret_cast<std::uintptr_t>(argument.view.data());
  if (address % bytes == 0 || argument.view.elements() == 0) return;
  throw_invalid(argument.name(), fmt::format("data aligned to {} bytes{}", bytes, because),
                fmt::format("address {:#x}", address));
}

bool reaches(const Device& device, const Place& place) {
  if (device.kind() != DeviceKind::cpu) return place == device.place();
  return place.memory != Memory::device || place.device == cpu_index;
}

}  // namespace

std::string Named::name() const {
  if (list.empty()) return std::string(argument);
  return fmt::format("{}[{}]{}{}", list, index, argument.empty() ? "" : ".", argument);
}

bool given(const TensorView& view) { return view.data() != nullptr || view.elements() > 0; }

std::string described(const TensorView& view) {
  const bool unset = !given(view) && view.dtype() == DType::u8 && view.rank() == 1;
  return unset ? "none" : view.describe();
}

std::int64_t step(const TensorView& view, std::size_t dimension) {
  return view.elements() == 0 ? 0 : view.strides()[dimension];
}

std::int64_t stride_or(const TensorView& view, std::size_t dimension, std::int64_t usual) {
  return view.elements() == 0 || view.extent(dimension) < 2 ? usual : view.strides()[dimension];
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
  throw_invalid(argument.name(), fmt::format("shape ({}): {}", fmt::join(shape, ", "), meaning),
                described(argument.view));
}

void check_same_shape(const Named& argument, const Named& as) {
  if (std::ranges::equal(argument.view.shape(), as.view.shape())) return;
  throw_invalid(argument.name(), fmt::format("the shape of {}, {}", as.name(), as.view.describe()),
                described(argument.view));
}

void check_rank(const Named& argument, std::size_t rank, std::string_view meaning) {
  if (argument.view.rank() == rank) return;
  throw_invalid(argument.name(), fmt::format("shape {}", meaning), described(argument.view));
}

void check_range(const Named& argument, std::string_view what, std::int64_t value,
                 std::int64_t least, std::int64_t most) {
  if (value >= least && value <= most) return;
  throw_invalid(argument.name(), fmt::format("{} from {} to {}", what, least, most),
                fmt::format("{} in {}", value, described(argument.view)));
}

void check_multiple(const Named& argument, std::string_view what, std::int64_t value,
                    std::int64_t of) {
  if (value % of == 0) return;
  throw_invalid(argument.name(), fmt::format("{} that is a multiple of {}", what, of),
                fmt::format("{} in {}", value, described(argument.view)));
}

void check_contiguous(const Named& argument) {
  if (argument.view.is_contiguous()) return;
  throw_invalid(argument.name(), "a contiguous view", with_strides(argument.view));
}

void check_last_contiguous(const Named& argument) {
  const TensorView& view = argument.view;
  if (view.elements() == 0) return;
  const std::size_t last = view.rank() - 1;
  if (view.extent(last) < 2 || view.strides()[last] == 1) return;
  throw_invalid(argument.name(), "a contiguous last dimension (a stride of 1)",
                fmt::format("{} with stride {}", view.describe(), view.strides()[last]));
}

void check_memory(const Named& argument, const Device& device) {
  const TensorView& view = argument.view;
  if (view.elements() == 0) return;
  check_aligned(argument, size_of(view.dtype()), ", the size of an element");
  if (!reaches(device, view.place())) {
    throw_invalid(argument.name(), fmt::format("memory of {}, the stream's device", device.name()),
                  view.describe());
  }
}

void check_alignment(const Named& argument, std::size_t bytes) {
  check_aligned(argument, bytes, "");
}

void check_aligned_runs(const Named& argument, std::size_t contiguous) {
  const TensorView& view = argument.view;
  check_alignment(argument, run_alignment);
  const auto each = static_cast<std::int64_t>(run_alignment / size_of(view.dtype()));
  for (std::size_t d = 0; d < view.rank(); ++d) {
    if (d == contiguous || view.extent(d) < 2 || view.strides()[d] % each == 0) continue;
    throw_invalid(
        argument.name(),
        fmt::format("strides that are multiples of {} elements (16 bytes) on a GPU", each),
        fmt::format("{} with stride {} in dimension {}", view.describe(), view.strides()[d], d));
  }
}

void check_aligned_rows(const Named& argument, const Device& device) {
  check_last_contiguous(argument);
  if (argument.view.elements() == 0 || on_cpu(device)) return;
  check_aligned_runs(argument, argument.view.rank() - 1);
}

void check_distinct_elements(const Named& result) {
  if (result.view.elements() == 0 || elements_are_distinct(result.view)) return;
  throw_invalid(result.name(), "elements that do not overlap each other",
                with_strides(result.view));
}

void check_apart(const Named& result, const Named& other) {
  if (!overlap(range_of(result.view), range_of(other.view))) return;
  throw_invalid(result.name(), "memory that does not overlap " + other.name(),
                result.view.describe() + " over a part of it, " + other.view.describe());
}

void check_apart(const Named& result, std::span<const Named> others) {
  for (const Named& other : others) check_apart(result, other);
}

void check_apart_or_in_place(const Named& result, const Named& input) {
  const TensorView &out = result.view, &in = input.view;
  const bool in_place = out.data() == in.data() && out.bytes() == in.bytes();
  if (in_place || !overlap(range_of(out), range_of(in))) return;
  const std::string other = input.name();
  throw_invalid(result.name(),
                fmt::format("the memory of {} with elements of the same size, or memory that does "
                            "not overlap it",
                            other),
                fmt::format("{} over a part of {}, {}", out.describe(), other, in.describe()));
}

void check_workspace(const MemoryView& workspace, std::size_t bytes, const Device& device,
                     std::span<const Named> arguments) {
  if (workspace.bytes < bytes) {
    throw_invalid("workspace", fmt::format("{} bytes or more", bytes),
                  fmt::format("{} bytes", workspace.bytes));
  }
  const TensorView used(workspace.data, DType::u8, {static_cast<std::int64_t>(bytes)},
                        workspace.place);
  const Named argument{"workspace", used};
  check_alignment(argument, device.kind() == DeviceKind::cpu ? host_alignment : gpu_alignment);
  check_memory(argument, device);
  check_apart(argument, arguments);
}

void check_pool(const Pool* pool, std::size_t bytes, const Device& device) {
  if (pool == nullptr) {
    throw_invalid("workspace", fmt::format("a workspace of {} bytes, or a pool", bytes), "neither");
  }
  if (pool->device().place() != device.place()) {
    throw_invalid("pool", "a pool of " + device.name() + ", the stream's device",
                  "one of " + pool->device().name());
  }
}

void require_compute(const Device& device, std::string_view name, const ComputeNeeded& needed) {
  if (device.kind() == DeviceKind::cpu) return;
  const cuda::Properties& gpu = properties_of(device);
  const bool equal = gpu.major == needed.major && gpu.minor == needed.minor;
  const bool later =
      gpu.major > needed.major || (gpu.major == needed.major && gpu.minor > needed.minor);
  if (equal || (later && needed.or_later)) return;
  throw Unsupported(fmt::format("{} on {}: needs compute capability {}.{}{}{}{}, found {}.{}; {}",
                                name, device.name(), needed.major, needed.minor,
                                needed.or_later ? " or later" : "",
                                needed.kernel.empty() ? "" : " for kernel ", needed.kernel,
                                gpu.major, gpu.minor, needed.instead));
}

void throw_no_cuda(const Device& device, std::string_view name) {
  throw Unsupported(fmt::format(
      "{} on {}: this build has no CUDA; build with -DPENSTOCK_CUDA=ON, or use the CPU device",
      name, device.name()));
}

}  // namespace ps::detail
