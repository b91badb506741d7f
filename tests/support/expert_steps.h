// Steps of StreamedExperts that compute nothing. They check that every expert is computed once,
// from a slot that holds its bytes at that time, on the CPU or on a fake GPU.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "host/flag.h"
#include "outofcore/expert_steps.h"
#include "penstock/base/error.h"
#include "penstock/outofcore/experts.h"
#include "support/fake_machine.h"

namespace ps::test {

// A store in which every block is filled with numbers of its own.
inline void fill_store(const ExpertStore& store) {
  const ExpertShape& shape = store.shape();
  for (std::int64_t layer = 0; layer < shape.layers; ++layer) {
    for (std::int64_t expert = 0; expert < shape.experts; ++expert) {
      const MemoryView block = store.block(layer, expert);
      auto* words = block.as<std::uint32_t>();
      for (std::size_t i = 0; i < block.bytes / 4; ++i) {
        words[i] = static_cast<std::uint32_t>((layer * 1000 + expert) * 1000003 + i);
      }
    }
  }
}

// A file with the same blocks.
inline ExpertFileInfo pack(const ExpertStore& store, const std::filesystem::path& path) {
  return pack_experts(path, store.shape(),
                      [&](std::int64_t layer, std::int64_t expert, const MemoryView& block) {
                        std::memcpy(block.data, store.block(layer, expert).data, block.bytes);
                      });
}

// A store with the same blocks, compressed.
inline std::unique_ptr<CompressedExpertStore> compressed_copy(const Device& device,
                                                              const ExpertStore& store) {
  const ExpertShape& shape = store.shape();
  auto compressed = std::make_unique<CompressedExpertStore>(device, shape);
  for (std::int64_t layer = 0; layer < shape.layers; ++layer) {
    for (std::int64_t expert = 0; expert < shape.experts; ++expert) {
      compressed->set(layer, expert, store.block(layer, expert));
    }
  }
  return compressed;
}

class RecordingSteps final : public detail::ExpertSteps {
 public:
  // `driver` is null on the CPU. Steps take up to `most_delay_us`.
  RecordingSteps(const ExpertStore& store, FakeDriver* driver, std::uint32_t seed,
                 unsigned most_delay_us)
      : store_(store), driver_(driver), random_(seed), most_delay_us_(most_delay_us) {}

  // The layer of the calls that follow. `whole`: whether all their experts must be computed.
  void expect(std::int64_t layer, bool whole = true) {
    layer_ = layer;
    whole_ = whole;
  }

  void plan(const MoeOptions& options, const Stream& stream) override {
    loaded_ = false;
    call_ = std::make_shared<Call>();
    call_->layer = layer_;
    call_->whole = whole_;
    call_->rows.resize(static_cast<std::size_t>(store_.shape().experts));
    const auto* ids = static_cast<const std::int32_t*>(options.ids.data());
    run(stream, [call = call_, ids, count = options.ids.elements()] {
      for (std::int64_t i = 0; i < count; ++i) ++call->rows.at(static_cast<std::size_t>(ids[i]));
    });
  }

  void publish(const MoeOptions& options, const detail::MoeRouting& to,
               const Stream& stream) override {
    const auto* ids = static_cast<const std::int32_t*>(options.ids.data());
    run(stream, [call = call_, to, ids, count = options.ids.elements()] {
      std::copy(call->rows.begin(), call->rows.end(), to.rows);
      if (to.ids != nullptr) std::copy_n(ids, count, to.ids);
      detail::set_flag(to.flag, to.value);
    });
    if (routed_at_once_) stream.synchronize();
  }

  void load_publish_ids(const Device& /*device*/) override { ids_loaded_ = true; }
  void publish_ids(const TensorView& ids, std::int64_t experts, const detail::MoeRouting& to,
                   const Stream& stream) override {
    EXPECT_TRUE(ids_loaded_) << "a kernel that is not loaded is launched beside other calls";
    run(stream,
        [data = static_cast<const std::int32_t*>(ids.data()), count = ids.elements(), experts, to] {
          std::fill_n(to.rows, experts, 0U);
          for (std::int64_t i = 0; i < count; ++i) ++to.rows[data[i]];
          detail::set_flag(to.flag, to.value);
        });
  }

  void load(const MoeOptions& /*options*/, const Stream& /*stream*/) override { loaded_ = true; }

  void take_slots(const std::int32_t* from, const TensorView& slots,
                  const Stream& stream) override {
    EXPECT_TRUE(loaded_) << "kernels that are not loaded are launched behind a wait";
    run(stream, [from, to = static_cast<std::int32_t*>(slots.data()), count = slots.elements()] {
      std::copy_n(from, count, to);
    });
  }

  void experts(const MoeOptions& options, const Stream& stream) override {
    run(stream, [this, call = call_, slots = options.slots, memory = options.gate_up.data(),
                 slot_count = options.gate_up.extent(0)] {
      const auto* map = static_cast<const std::int32_t*>(slots.data());
      for (std::int64_t expert = 0; expert < slots.elements(); ++expert) {
        if (map[expert] < 0) continue;
        if (map[expert] >= slot_count) return fail("a slot that does not exist");
        const MemoryView block = store_.block(call->layer, expert);
        const auto* there = static_cast<const std::byte*>(memory) +
                            static_cast<std::size_t>(map[expert]) * block.bytes;
        if (std::memcmp(there, block.data, block.bytes) != 0) {
          fail("expert " + std::to_string(expert) + " of layer " + std::to_string(call->layer) +
               " was computed from other bytes");
        }
        if (!call->computed.insert(expert).second) fail("an expert was computed twice");
      }
      ++call->groups;
    });
  }

  // The rows that are taken are checked: they have a number for each pair, and the layer.
  void on_host(const detail::MoeWork& work, const mixture::Ranges& ranges) override {
    if (--refused_on_host_ == 0) throw OutOfMemory("host memory", 1, "refused");
    std::int32_t* place = work.space.pair_rows(work.memory);
    const std::int64_t between =
        static_cast<const std::byte*>(work.held.gate_up) - store_.block(0, 0).data;
    const auto layer =
        between / (store_.shape().experts * static_cast<std::int64_t>(store_.block_bytes()));
    ranges(static_cast<std::size_t>(work.rows()), 1, [&](std::size_t begin, std::size_t end) {
      for (std::size_t i = begin; i < end; ++i) {
        const std::int32_t id = static_cast<const std::int32_t*>(work.ids)[i];
        place[i] = id < 0 ? -1 : static_cast<std::int32_t>(layer * 1000 + id);
      }
    });
    on_host_ += 1;
  }

  void take_rows(const MoeOptions& options, const detail::MoeHostRows& from,
                 const Stream& stream) override {
    EXPECT_TRUE(loaded_) << "kernels that are not loaded are launched behind a wait";
    const auto* ids = static_cast<const std::int32_t*>(options.ids.data());
    run(stream, [this, call = call_, from, ids, count = options.ids.elements()] {
      std::set<std::int64_t> taken, left;
      for (std::int64_t i = 0; i < count; ++i) {
        if (from.place[i] < 0) {
          left.insert(ids[i]);
          continue;
        }
        if (from.place[i] != call->layer * 1000 + ids[i]) fail("a row of another expert was taken");
        taken.insert(ids[i]);
      }
      for (const std::int64_t expert : taken) {
        if (left.contains(expert)) fail("the host left out a row of an expert");
        if (!call->computed.insert(expert).second) fail("an expert was computed twice");
      }
    });
  }

  // From now on the rows of a call are known before anything else of it is enqueued.
  void route_at_once() { routed_at_once_ = true; }

  // Called once by the next combine(), when all waits of a call are on its stream.
  void before_combine(std::function<void()> function) { before_combine_ = std::move(function); }

  void combine(const MoeOptions& options, const Stream& stream) override {
    if (before_combine_) std::exchange(before_combine_, nullptr)();
    auto* out = static_cast<std::uint16_t*>(options.out.data());
    run(stream, [this, call = call_, out] {
      if (out != nullptr) ++*out;
      const std::lock_guard lock(mutex_);
      ++calls_;
      for (std::size_t e = 0; e < call->rows.size(); ++e) {
        if (call->rows[e] == 0 || call->computed.contains(static_cast<std::int64_t>(e))) continue;
        ++missing_;
        if (call->whole) wrong_ = "an expert was not computed";
      }
    });
  }

  // Of call number `number` of decompress() from now on, which is refused.
  void fail_decompress(int number) { refused_ = number; }

  // Of call number `number` of on_host() from now on, which is refused.
  void fail_on_host(int number) { refused_on_host_ = number; }
  int on_host_calls() const { return on_host_; }

  void load_decompress(const Device& /*device*/) override {}
  void decompress(const DecompressOptions& options, const Stream& stream) override {
    EXPECT_GT(options.thread_blocks, 0) << "products need a part of the GPU";
    if (--refused_ == 0) throw DeviceError("cuda:0", "launching decompress", 1, "refused");
    if (driver_ == nullptr) return ExpertSteps::decompress(options, stream);
    const TensorView from = options.compressed, to = options.out;
    launch(*driver_, stream, {{from.data(), from.bytes()}}, {{to.data(), to.bytes()}},
           [this, from, to] {
             const std::lock_guard lock(decompressing_);
             ps::decompress({.compressed = TensorView(from.data(), DType::u8, {from.elements()}),
                             .out = TensorView(to.data(), DType::bf16, {to.elements()})},
                            on_cpu_);
             on_cpu_.synchronize();
           });
  }

  std::string wrong() const {
    const std::lock_guard lock(mutex_);
    return wrong_;
  }
  std::uint64_t calls() const {
    const std::lock_guard lock(mutex_);
    return calls_;
  }
  std::uint64_t missing() const {
    const std::lock_guard lock(mutex_);
    return missing_;
  }

 private:
  struct Call {
    std::int64_t layer = 0;
    bool whole = true;
    std::vector<std::uint32_t> rows;
    std::set<std::int64_t> computed;
    int groups = 0;
  };

  void fail(std::string what) {
    const std::lock_guard lock(mutex_);
    if (wrong_.empty()) wrong_ = std::move(what);
  }

  void run(const Stream& stream, std::function<void()> function) {
    const unsigned delay =
        most_delay_us_ == 0 ? 0U : static_cast<unsigned>(random_()) % (2 * most_delay_us_);
    auto late = [delay, most = most_delay_us_, function = std::move(function)] {
      if (delay > most) std::this_thread::sleep_for(std::chrono::microseconds(delay - most));
      function();
    };
    if (driver_ == nullptr) return stream.call(std::move(late));
    launch(*driver_, stream, {}, {}, std::move(late));
  }

  const ExpertStore& store_;
  FakeDriver* const driver_;
  std::mt19937 random_;
  const unsigned most_delay_us_;
  std::int64_t layer_ = 0;
  bool whole_ = true;
  bool loaded_ = false, ids_loaded_ = false, routed_at_once_ = false;
  std::shared_ptr<Call> call_;
  std::function<void()> before_combine_;
  std::atomic<int> refused_{0}, refused_on_host_{0}, on_host_{0};
  std::mutex decompressing_;
  Stream on_cpu_{Device::cpu()};
  mutable std::mutex mutex_;
  std::string wrong_;
  std::uint64_t calls_ = 0, missing_ = 0;
};

}  // namespace ps::test
