#include "penstock/outofcore/compressed_expert_store.h"

#include <fmt/format.h>

#include <algorithm>
#include <mutex>
#include <string>
#include <vector>

#include "outofcore/expert_checks.h"
#include "penstock/base/checked.h"
#include "penstock/base/error.h"
#include "penstock/base/units.h"
#include "penstock/host/pinned_arena.h"
#include "penstock/ops/compress.h"

namespace ps {
namespace {

using detail::throw_invalid;

constexpr std::size_t alignment = 64;                        // what a link moves at once
constexpr std::size_t most_elements = std::size_t{1} << 34;  // that compress() takes

std::int64_t elements_of(const ExpertShape& shape) {
  const std::size_t bytes = ExpertStore::block_bytes(shape);  // checks the shape
  if (shape.dtype != DType::bf16) {
    throw Unsupported(
        fmt::format("CompressedExpertStore: expected dtype bf16, given {}", name(shape.dtype)));
  }
  const std::size_t elements = bytes / size_of(DType::bf16);
  if (elements > most_elements) {
    throw_invalid("shape", fmt::format("experts of at most {} weights", most_elements),
                  std::to_string(elements));
  }
  return static_cast<std::int64_t>(elements);
}

PinnedArenaOptions memory_for(const ExpertShape& shape) {
  const std::size_t plain = ExpertStore::bytes_needed(shape);
  const std::size_t blocks = plain / ExpertStore::block_bytes(shape);
  // What is locked ahead stays small beside what is needed.
  return {.bytes =
              blocks * align_up(CompressedExpertStore::most_block_bytes(shape), alignment, "shape"),
          .piece_bytes = std::clamp(plain / 128, std::size_t{1}, 128 * MiB),
          .on_demand = true};
}

}  // namespace

struct CompressedExpertStore::State {
  struct Block {
    std::size_t begin = 0, bytes = 0;  // no bytes: not set
  };

  State(const Device& device, const ExpertShape& given)
      : shape(given),
        elements(elements_of(given)),
        most(most_block_bytes(given)),
        arena(device, memory_for(given)),
        blocks(static_cast<std::size_t>(given.layers * given.experts)) {}

  std::size_t checked_number(std::int64_t layer, std::int64_t expert) const {
    detail::check_expert(shape, layer, expert);
    return static_cast<std::size_t>(layer * shape.experts + expert);
  }
  Block at(std::size_t number) const {
    const std::lock_guard lock(mutex);
    return blocks[number];
  }

  const ExpertShape shape;
  const std::int64_t elements;
  const std::size_t most;
  const PinnedArena arena;

  std::mutex compressing;  // held by set() while it writes to the arena
  mutable std::mutex mutex;
  std::vector<Block> blocks;
  std::int64_t count = 0;
  std::size_t used = 0;  // bytes of the arena
};

CompressedExpertStore::CompressedExpertStore(const Device& device, const ExpertShape& shape)
    : state_(std::make_unique<State>(device, shape)) {}
CompressedExpertStore::~CompressedExpertStore() = default;

std::size_t CompressedExpertStore::most_block_bytes(const ExpertShape& shape) {
  return compressed_bytes_limit(elements_of(shape));
}

const ExpertShape& CompressedExpertStore::shape() const { return state_->shape; }

void CompressedExpertStore::set(std::int64_t layer, std::int64_t expert, MemoryView block) {
  State& state = *state_;
  const std::size_t number = state.checked_number(layer, expert);
  const auto needed = static_cast<std::size_t>(state.elements) * size_of(DType::bf16);
  if (block.data == nullptr || block.bytes != needed) {
    throw_invalid("block", fmt::format("{} bytes", needed),
                  block.data == nullptr ? "none" : fmt::format("{} bytes", block.bytes));
  }
  if (block.place.memory == Memory::device && block.place.device != cpu_index) {
    throw_invalid("block", "host memory", name(block.place));
  }
  const std::lock_guard one_call(state.compressing);
  if (state.at(number).bytes > 0) {
    throw_invalid("expert", fmt::format("one of layer {} that is not set", layer),
                  std::to_string(expert));
  }
  const std::size_t begin = state.used;
  state.arena.wait(begin + state.most);
  const MemoryView room = state.arena.view().sub(begin, state.most);
  const std::size_t bytes =
      compress({.x = TensorView(block.data, DType::bf16, {state.elements}, block.place),
                .out = TensorView(room.data, DType::u8, {static_cast<std::int64_t>(room.bytes)},
                                  room.place)});
  const std::lock_guard lock(state.mutex);
  state.blocks[number] = {begin, bytes};
  state.used = begin + align_up(bytes, alignment, "bytes");
  ++state.count;
}

std::int64_t CompressedExpertStore::count() const {
  const std::lock_guard lock(state_->mutex);
  return state_->count;
}
std::size_t CompressedExpertStore::bytes() const {
  const std::lock_guard lock(state_->mutex);
  return state_->used;
}
std::size_t CompressedExpertStore::locked_bytes() const { return state_->arena.ready(); }

MemoryView CompressedExpertStore::block(std::int64_t layer, std::int64_t expert) const {
  const State::Block found = state_->at(state_->checked_number(layer, expert));
  if (found.bytes == 0) {
    throw_invalid("expert", fmt::format("one of layer {} that is set", layer),
                  std::to_string(expert));
  }
  return state_->arena.view().sub(found.begin, found.bytes);
}

}  // namespace ps
