// What is measured with: synthetic expert layers, their routing, and the work on one expert.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "penstock/host/buffer.h"
#include "penstock/host/pool.h"
#include "penstock/host/storage.h"
#include "penstock/host/stream.h"
#include "penstock/measure/experts.h"

namespace ps::detail {

// One expert of one layer that has tokens.
struct ExpertItem {
  std::int64_t layer = 0, expert = 0;
  std::int64_t rows = 0;
  std::size_t rank = 0;              // by rows, the most first
  bool first = false, last = false;  // of its layer
};

// A file that is removed when the object goes.
class RemovedFile {
 public:
  explicit RemovedFile(std::filesystem::path path) : path_(std::move(path)) {}
  ~RemovedFile();
  RemovedFile(const RemovedFile&) = delete;
  RemovedFile& operator=(const RemovedFile&) = delete;
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

class ExpertWork {
 public:
  // Makes the weights and the routing. Throws as measure_expert_overlap().
  explicit ExpertWork(const ExpertOverlapOptions& options);

  const Device& device() const { return device_; }
  const ExpertShape& shape() const { return shape_; }
  std::size_t block_bytes() const { return block_; }
  const std::vector<ExpertItem>& items() const { return items_; }
  std::int64_t distinct() const { return distinct_; }

  // Where an expert is: in memory, or in the file.
  MemoryView block(const ExpertItem& item) const;
  std::uint64_t offset(const ExpertItem& item) const;
  const File& file() const { return *file_; }
  const ExpertStore* store() const { return store_ ? &*store_ : nullptr; }
  std::filesystem::path path() const { return packed_->path(); }  // of the file

  // The items with the lowest ranks, on the device.
  std::size_t resident() const { return resident_.bytes() / block_; }
  MemoryView resident(std::size_t rank) const;

  // Enqueue the work. An item's weights are one block in memory of the device.
  void plan(std::int64_t layer, const Stream& stream) const;
  void compute(const ExpertItem& item, MemoryView weights, const Stream& stream) const;
  void combine(std::int64_t layer, const Stream& stream) const;
  // The call of StreamedExperts for a layer.
  MoeOptions call(std::int64_t layer) const;
  // All of a call that chooses these experts, which are loaded one after the other; no more tokens
  // and choices than the call of the layer. Blocks.
  void compute_one_by_one(std::int64_t layer, const MoeOptions& call,
                          std::span<const std::int32_t> experts, const Stream& stream) const;

  void poison(const Stream& stream) const;                     // the results
  std::vector<std::byte> results(const Stream& stream) const;  // of all layers; waits

 private:
  void make_weights(const ExpertOverlapOptions& options);
  void make_routing(const ExpertOverlapOptions& options);
  void load_resident(const ExpertOverlapOptions& options);
  std::int64_t number(const ExpertItem& item) const;

  const Device device_;
  const ExpertShape shape_;
  const std::size_t block_;
  std::int64_t distinct_ = 0;
  Stream stream_;
  Pool pool_;
  std::optional<ExpertStore> store_;
  std::optional<RemovedFile> packed_;
  std::optional<File> file_;
  std::vector<ExpertItem> items_;
  DeviceBuffer x_, ids_, weights_, maps_, out_, workspace_, resident_;
  std::vector<MoeOptions> calls_;
};

}  // namespace ps::detail
