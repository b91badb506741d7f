#include "penstock/outofcore/expert_store.h"

#include <fmt/format.h>

#include <array>
#include <limits>
#include <string>

#include "outofcore/expert_checks.h"
#include "penstock/base/checked.h"
#include "penstock/base/error.h"

namespace ps {
namespace {

using detail::throw_invalid;

constexpr std::size_t part_alignment = 256;
constexpr std::size_t file_page = 4096;

void check_range(const char* name, std::int64_t value, std::int64_t least, std::int64_t most,
                 std::int64_t multiple = 1) {
  if (value >= least && value <= most && value % multiple == 0) return;
  const std::string of = multiple == 1 ? "" : fmt::format("a multiple of {} ", multiple);
  throw_invalid(name, fmt::format("{}from {} to {}", of, least, most), std::to_string(value));
}

void check(const ExpertShape& shape) {
  check_range("layers", shape.layers, 1, 1 << 16);
  check_range("experts", shape.experts, 1, 1024);
  check_range("hidden", shape.hidden, 8, 1 << 20, 8);
  check_range("width", shape.width, 8, 1 << 19, 8);
  if (shape.dtype != DType::bf16 && shape.dtype != DType::f16 && shape.dtype != DType::f32) {
    throw_invalid("dtype", "bf16, f16 or f32", std::string(name(shape.dtype)));
  }
  if (shape.layout > GateUpLayout::interleaved) {
    throw_invalid("layout", "concatenated or interleaved",
                  std::to_string(static_cast<int>(shape.layout)));
  }
}

// Offsets in a block.
struct Parts {
  std::size_t gate_up = 0, down = 0, gate_up_bias = 0, down_bias = 0, end = 0;

  explicit Parts(const ExpertShape& shape) {
    const std::size_t element = size_of(shape.dtype);
    const auto d = static_cast<std::size_t>(shape.hidden),
               n = static_cast<std::size_t>(shape.width);
    const auto part = [&](std::size_t elements) {
      const std::size_t begin = end;
      end += align_up(elements * element, part_alignment, "shape");
      return begin;
    };
    gate_up = part(2 * n * d);
    down = part(d * n);
    gate_up_bias = part(shape.gate_up_bias ? 2 * n : 0);
    down_bias = part(shape.down_bias ? d : 0);
    // Whole pages, which files are read into fastest, where they are few.
    if (end >= 100 * file_page) end = align_up(end, file_page, "shape");
  }
};

// (count, rows, columns) in blocks of `block` bytes.
TensorView matrices(std::byte* data, std::int64_t count, std::int64_t rows, std::int64_t columns,
                    std::size_t block, const ExpertShape& shape, Place place) {
  const auto between = static_cast<std::int64_t>(block / size_of(shape.dtype));
  const std::array<std::int64_t, 3> sizes = {count, rows, columns};
  const std::array<std::int64_t, 3> strides = {between, shape.transposed ? 1 : columns,
                                               shape.transposed ? rows : 1};
  return TensorView(data, shape.dtype, sizes, strides, place);
}

TensorView vectors(std::byte* data, std::int64_t count, std::int64_t size, std::size_t block,
                   const ExpertShape& shape, Place place) {
  const std::array<std::int64_t, 2> sizes = {count, size};
  const std::array<std::int64_t, 2> strides = {
      static_cast<std::int64_t>(block / size_of(shape.dtype)), 1};
  return TensorView(data, shape.dtype, sizes, strides, place);
}

// Without the first dimension.
TensorView first_of(const TensorView& view) {
  return view.elements() == 0 ? TensorView()
                              : TensorView(view.data(), view.dtype(), view.shape().subspan(1),
                                           view.strides().subspan(1), view.place());
}

}  // namespace

std::size_t ExpertStore::block_bytes(const ExpertShape& shape) {
  check(shape);
  return Parts(shape).end;
}

std::size_t ExpertStore::bytes_needed(const ExpertShape& shape) {
  const std::size_t block = block_bytes(shape);
  const auto blocks = static_cast<std::size_t>(shape.layers * shape.experts);
  if (blocks > std::numeric_limits<std::int64_t>::max() / block) {
    throw_invalid("shape", "fewer than 2^63 bytes of experts",
                  fmt::format("{} experts of {} bytes", blocks, block));
  }
  return blocks * block;
}

ExpertStore::ExpertStore(const Device& device, const ExpertShape& shape)
    : shape_(shape),
      block_bytes_(block_bytes(shape)),
      arena_(
          std::make_shared<PinnedArena>(device, PinnedArenaOptions{.bytes = bytes_needed(shape)})),
      memory_(arena_->view()) {
  memory_.bytes = bytes_needed(shape);
}

ExpertStore::ExpertStore(MemoryView memory, const ExpertShape& shape)
    : shape_(shape), block_bytes_(block_bytes(shape)), memory_(memory) {
  const std::size_t needed = bytes_needed(shape);
  if (memory.data == nullptr || memory.bytes != needed) {
    throw_invalid("memory", fmt::format("{} bytes", needed),
                  memory.data == nullptr ? "none" : fmt::format("{} bytes", memory.bytes));
  }
  if (memory.place.memory == Memory::device && memory.place.device != cpu_index) {
    throw_invalid("memory", "host memory", name(memory.place));
  }
  if (reinterpret_cast<std::uintptr_t>(memory.data) % part_alignment != 0) {
    throw_invalid("memory", fmt::format("an address that is a multiple of {}", part_alignment),
                  fmt::format("{}", static_cast<const void*>(memory.data)));
  }
}

MemoryView ExpertStore::block(std::int64_t layer, std::int64_t expert) const {
  detail::check_expert(shape_, layer, expert);
  const auto number = static_cast<std::size_t>(layer * shape_.experts + expert);
  if (arena_) arena_->wait((number + 1) * block_bytes_);
  return memory_.sub(number * block_bytes_, block_bytes_);
}

void ExpertStore::set_weights(const ExpertShape& shape, MemoryView first, std::int64_t count,
                              MoeOptions& options) {
  const Parts parts(shape);
  const auto matrix = [&](std::size_t at, std::int64_t rows, std::int64_t columns) {
    return matrices(first.data + at, count, rows, columns, parts.end, shape, first.place);
  };
  const auto vector = [&](std::size_t at, std::int64_t size) {
    return vectors(first.data + at, count, size, parts.end, shape, first.place);
  };
  options.gate_up = matrix(parts.gate_up, 2 * shape.width, shape.hidden);
  options.down = matrix(parts.down, shape.hidden, shape.width);
  options.layout = shape.layout;
  options.gate_up_bias =
      shape.gate_up_bias ? vector(parts.gate_up_bias, 2 * shape.width) : TensorView();
  options.down_bias = shape.down_bias ? vector(parts.down_bias, shape.hidden) : TensorView();
}

ExpertViews ExpertStore::views(const ExpertShape& shape, MemoryView block) {
  MoeOptions options;
  set_weights(shape, block, 1, options);
  return {.gate_up = first_of(options.gate_up),
          .down = first_of(options.down),
          .gate_up_bias = first_of(options.gate_up_bias),
          .down_bias = first_of(options.down_bias)};
}

TensorView ExpertStore::gate_up(std::int64_t layer, std::int64_t expert) const {
  return views(shape_, block(layer, expert)).gate_up;
}
TensorView ExpertStore::down(std::int64_t layer, std::int64_t expert) const {
  return views(shape_, block(layer, expert)).down;
}
TensorView ExpertStore::gate_up_bias(std::int64_t layer, std::int64_t expert) const {
  return views(shape_, block(layer, expert)).gate_up_bias;
}
TensorView ExpertStore::down_bias(std::int64_t layer, std::int64_t expert) const {
  return views(shape_, block(layer, expert)).down_bias;
}

}  // namespace ps
