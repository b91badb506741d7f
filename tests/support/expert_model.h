// A model of StreamedExperts without numbers, for tests of what is copied, when, and into which
// slots: on the CPU or a fake GPU, from memory, from a disk, or from compressed experts.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <random>
#include <utility>
#include <vector>

#include "host/backend.h"
#include "outofcore/expert_groups.h"
#include "penstock/host/buffer.h"
#include "penstock/host/pool.h"
#include "penstock/outofcore/experts.h"
#include "support/expert_steps.h"
#include "support/fake_machine.h"
#include "support/temporary_directory.h"

namespace ps::test {

inline constexpr ExpertShape small_experts{.layers = 3, .experts = 12, .hidden = 8, .width = 8};

struct Source {
  std::size_t host_slots = 0;  // of experts on a disk
  bool compressed = false;
};

// Everything of a model but its numbers. Views of tensors point to memory that the steps read.
class OrderModel {
 public:
  OrderModel(const Device& device, FakeDriver* driver, std::size_t slots, std::uint32_t seed,
             unsigned most_delay_us, StreamedExpertsOptions options = {}, Source source = {},
             std::int64_t hint_wait_ns = 1000)
      : device_(device),
        store_(device, small_experts),
        steps_(std::make_shared<RecordingSteps>(store_, driver, seed, most_delay_us)),
        random_(seed),
        stream_(device),
        pool_(device) {
    fill_store(store_);
    if (source.host_slots > 0) {
      pack(store_, directory_.path() / "experts");
      disk_.emplace(
          device, directory_.path() / "experts",
          DiskExpertStoreOptions{.host_bytes = source.host_slots * store_.block_bytes(),
                                 .queue = {.engine = FileEngine::threads, .in_flight = 3}});
    }
    if (source.compressed) compressed_ = compressed_copy(device, store_);
    options.store = disk_ || compressed_ ? nullptr : &store_;
    options.disk = disk_ ? &*disk_ : nullptr;
    options.compressed = compressed_.get();
    options.device = device;
    if (options.host_experts != HostExperts::none) options.host_threads = 2;
    options.device_bytes = bytes_for(slots, options);
    experts_.emplace(
        std::move(options),
        detail::ExpertHooks{.steps = steps_, .copy_on_cpu = true, .hint_wait_ns = hint_wait_ns});
    EXPECT_EQ(experts_->slots(), slots);
  }
  ~OrderModel() { drop(); }

  static std::size_t bytes_for(std::size_t slots, const StreamedExpertsOptions& options) {
    const std::size_t none =
        StreamedExperts::least_bytes(small_experts, 0, options.calls_in_flight,
                                     options.compressed != nullptr) -
        detail::least_expert_slots(12) * ExpertStore::block_bytes(small_experts);
    return none + slots * ExpertStore::block_bytes(small_experts);
  }

  // Work on the memory of calls must be over before the memory goes.
  void drop() {
    if (!experts_) return;
    experts_.reset();
    stream_.impl().drain();
    memory_.clear();
  }

  // A call whose tokens choose these experts.
  void call(std::int64_t layer, const std::vector<std::int32_t>& chosen, bool whole = true) {
    steps_->expect(layer, whole);
    experts_->forward(layer, options(chosen), stream_);
  }
  // Of `tokens` tokens with two random experts each, of which low numbers are more likely.
  void random_call(std::int64_t layer, std::int64_t tokens, bool whole = true) {
    std::vector<std::int32_t> chosen;
    for (std::int64_t i = 0; i < 2 * tokens; ++i) {
      const auto experts = static_cast<unsigned>(store_.shape().experts);
      chosen.push_back(
          static_cast<std::int32_t>(std::min(random_() % experts, random_() % experts)));
    }
    call(layer, chosen, whole);
  }

  // A call's views: ids in memory of the device that is used again after 100 calls.
  MoeOptions options(const std::vector<std::int32_t>& chosen) {
    const auto tokens = static_cast<std::int64_t>(chosen.size() / 2);
    if (memory_.size() < 100) memory_.emplace_back(device_, 4096 + 64 * 1024);
    const MemoryView memory = memory_[calls_++ % 100].view();
    if (calls_ > 100 && calls_ % 100 == 1) experts_->synchronize();
    std::copy(chosen.begin(), chosen.end(), memory.as<std::int32_t>());
    const Place place = device_.place();
    auto* rows = memory.data + 4096;
    return {.x = TensorView(rows, DType::bf16, {tokens, 8}, place),
            .ids = TensorView(memory.data, DType::i32, {tokens, 2}, place),
            .weights = TensorView(rows + 16384, DType::f32, {tokens, 2}, place),
            .out = TensorView(rows + 32768, DType::bf16, {tokens, 8}, place),
            .pool = &pool_};
  }

  // The fewest and the most bytes that the copy of an expert has.
  std::pair<std::size_t, std::size_t> copied_bytes() const {
    if (!compressed_) return {store_.block_bytes(), store_.block_bytes()};
    std::vector<std::size_t> bytes;
    for (std::int64_t layer = 0; layer < 3; ++layer) {
      for (std::int64_t e = 0; e < 12; ++e) bytes.push_back(compressed_->block(layer, e).bytes);
    }
    return {*std::min_element(bytes.begin(), bytes.end()),
            *std::max_element(bytes.begin(), bytes.end())};
  }
  std::filesystem::path file() const { return directory_.path() / "experts"; }
  StreamedExperts& experts() { return *experts_; }
  RecordingSteps& steps() { return *steps_; }
  const Stream& stream() const { return stream_; }
  std::mt19937& random() { return random_; }

 private:
  Device device_;
  ExpertStore store_;
  TemporaryDirectory directory_;
  std::optional<DiskExpertStore> disk_;
  std::unique_ptr<CompressedExpertStore> compressed_;
  std::shared_ptr<RecordingSteps> steps_;
  std::mt19937 random_;
  Stream stream_;
  Pool pool_;
  std::vector<DeviceBuffer> memory_;
  std::size_t calls_ = 0;
  std::optional<StreamedExperts> experts_;
};

inline std::vector<std::int32_t> all_experts(int times = 1) {
  std::vector<std::int32_t> chosen;
  for (int i = 0; i < times; ++i) {
    for (std::int32_t e = 0; e < 12; ++e) chosen.push_back(e);
  }
  return chosen;
}

// Random layers, numbers of tokens, cache sizes and prefetches.
inline void run_randomly(OrderModel& model, int calls, bool whole = true) {
  std::mt19937& random = model.random();
  for (int i = 0; i < calls; ++i) {
    const auto layer = random() % 4 == 0 ? random() % 3 : static_cast<unsigned>(i) % 3;
    if (random() % 5 == 0) {
      const std::vector<std::int32_t> guess{static_cast<std::int32_t>(random() % 12),
                                            static_cast<std::int32_t>(random() % 12)};
      model.experts().prefetch((layer + 1) % 3, guess);
    }
    const bool long_call = random() % 4 == 0;
    model.random_call(layer, 1 + random() % (long_call ? 400 : 6), whole);
  }
}

inline std::unique_ptr<CachePolicy> policy_number(unsigned number) {
  return number % 3 == 0 ? lru_policy() : number % 3 == 1 ? frequency_policy() : nullptr;
}

}  // namespace ps::test
