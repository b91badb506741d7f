#include "penstock/outofcore/disk_expert_store.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <string>
#include <utility>

#include "host/storage/changed.h"
#include "outofcore/expert_checks.h"
#include "outofcore/expert_file.h"
#include "penstock/base/error.h"
#include "penstock/host/buffer.h"

namespace ps {
namespace {

constexpr std::size_t most_slots = 8192;  // that moe() can address on the CPU device

std::size_t checked_slots(const ExpertFileInfo& file, std::size_t host_bytes) {
  const std::size_t block = ExpertStore::block_bytes(file.shape);
  const auto all = static_cast<std::size_t>(file.shape.layers * file.shape.experts);
  const std::size_t least = std::min<std::size_t>(all, 2);
  if (host_bytes < least * block) {
    detail::throw_invalid(
        "host_bytes",
        fmt::format("at least {} bytes: {} slots of {} bytes", least * block, least, block),
        std::to_string(host_bytes));
  }
  return std::min({host_bytes / block, all, most_slots});
}

}  // namespace

// Shared by the handle and, while a read is in flight, its completion.
struct DiskExpertStore::Block::State {
  explicit State(SlotCache::Slot acquired)
      : slot(std::move(acquired)), view(slot.view()), index(slot.index()), hit(slot.hit()) {}

  SlotCache::Slot slot;
  const MemoryView view;
  const std::size_t index;
  const bool hit;
  std::atomic<bool> read{false};  // of a miss: the read has ended
  std::exception_ptr failure;     // set before `read`
};

struct DiskExpertStore::State {
  State(const Device& device, const std::filesystem::path& path, DiskExpertStoreOptions options)
      : file(path, {.engine = options.queue.engine,
                    .in_flight = options.queue.in_flight,
                    .piece = options.queue.piece,
                    .direct = options.direct}),
        version(file.version()),
        info(detail::read_expert_header(file)),
        block(ExpertStore::block_bytes(info.shape)),
        slots(checked_slots(info, options.host_bytes)),
        memory(device, slots * block),
        // Host memory that only host threads wait for: whoever copies from a slot keeps its handle
        // until the copy is complete.
        cache(Device::cpu(), memory.view(),
              {.granularity = block,
               .policy = options.policy ? std::move(options.policy) : frequency_policy()}) {}

  const File file;
  const FileVersion version;
  const ExpertFileInfo info;
  const std::size_t block, slots;
  const PinnedBuffer memory;
  SlotCache cache;
  std::stop_source stop;
  std::mutex mutex;
  std::condition_variable ended;
  std::size_t in_flight = 0;  // reads

  CacheKey checked_key(std::int64_t layer, std::int64_t expert) const {
    detail::check_expert(info.shape, layer, expert);
    return static_cast<CacheKey>(layer * info.shape.experts + expert);
  }

  // The last thing that a read does.
  void end_read() noexcept {
    const std::lock_guard lock(mutex);
    --in_flight;
    ended.notify_all();
  }
};

DiskExpertStore::Block::Block(std::shared_ptr<State> state) : state_(std::move(state)) {}
DiskExpertStore::Block::Block(Block&&) noexcept = default;
DiskExpertStore::Block& DiskExpertStore::Block::operator=(Block&&) noexcept = default;
DiskExpertStore::Block::~Block() = default;

MemoryView DiskExpertStore::Block::view() const { return state_->view; }
std::size_t DiskExpertStore::Block::slot() const { return state_->index; }
bool DiskExpertStore::Block::hit() const { return state_->hit; }
bool DiskExpertStore::Block::ready() const {
  if (state_->hit) return state_->slot.ready();
  if (!state_->read) return false;
  if (state_->failure) std::rethrow_exception(state_->failure);
  return true;
}

DiskExpertStore::DiskExpertStore(const Device& device, const std::filesystem::path& path,
                                 DiskExpertStoreOptions options)
    : state_(std::make_unique<State>(device, path, std::move(options))) {}

DiskExpertStore::~DiskExpertStore() {
  state_->stop.request_stop();
  std::unique_lock lock(state_->mutex);
  state_->ended.wait(lock, [&] { return state_->in_flight == 0; });
}

const ExpertFileInfo& DiskExpertStore::file() const { return state_->info; }
std::size_t DiskExpertStore::block_bytes() const { return state_->block; }
bool DiskExpertStore::direct() const { return state_->file.direct(); }
std::size_t DiskExpertStore::slots() const { return state_->slots; }
std::size_t DiskExpertStore::host_bytes() const { return state_->memory.bytes(); }
MemoryView DiskExpertStore::memory() const { return state_->memory.view(); }
SlotCacheStatistics DiskExpertStore::statistics() const { return state_->cache.statistics(); }

bool DiskExpertStore::cached(std::int64_t layer, std::int64_t expert) const {
  return state_->cache.find(state_->checked_key(layer, expert)).has_value();
}

std::optional<DiskExpertStore::Block> DiskExpertStore::try_block(std::int64_t layer,
                                                                 std::int64_t expert,
                                                                 ReadPriority priority) const {
  State& store = *state_;
  const CacheKey key = store.checked_key(layer, expert);
  std::optional<SlotCache::Slot> slot = store.cache.try_acquire(key, store.block);
  if (!slot) return std::nullopt;
  auto block = std::make_shared<Block::State>(std::move(*slot));
  if (block->hit) return Block(std::move(block));
  const std::uint64_t offset = detail::expert_blocks_offset + key * store.block;
  {
    const std::lock_guard lock(store.mutex);
    ++store.in_flight;
  }
  // Ends the read when the last copy of the function that has it is gone.
  const std::shared_ptr<State> reading(&store, [](State* each) { each->end_read(); });
  const auto done = [reading, block](std::exception_ptr failure) mutable {
    try {
      if (!failure) detail::check_unchanged(reading->file, reading->version);
    } catch (...) {
      failure = std::current_exception();
    }
    if (failure) {
      block->failure = failure;
      block->slot.fail(std::move(failure));
    } else {
      block->slot.filled();
    }
    block->read = true;
    block.reset();  // before `reading`: the slot must not outlive the store
  };
  store.file.read(offset, block->view, done,
                  {.priority = priority, .stop = store.stop.get_token()});
  return Block(std::move(block));
}

}  // namespace ps
