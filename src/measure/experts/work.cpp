#include "measure/experts/work.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <random>
#include <string>

#include "outofcore/expert_file.h"
#include "penstock/base/error.h"
#include "penstock/ops/round_routes.h"
#include "penstock/ops/route.h"
#include "penstock/outofcore/expert_file.h"

namespace ps::detail {
namespace {

void store_number(std::byte* to, DType type, float value) {
  std::uint32_t bits = 0;
  std::memcpy(&bits, &value, sizeof bits);
  if (type == DType::f32) {
    std::memcpy(to, &bits, 4);
    return;
  }
  // Truncated to bf16; as f16, normal numbers of the same size and sign.
  const auto exponent = static_cast<std::int32_t>(bits >> 23 & 0xFF) - 127 + 15;
  const std::uint32_t f16 = (bits >> 16 & 0x8000) |
                            static_cast<std::uint32_t>(std::clamp(exponent, 1, 30)) << 10 |
                            (bits >> 13 & 0x3FF);
  const auto half = static_cast<std::uint16_t>(type == DType::bf16 ? bits >> 16 : f16);
  std::memcpy(to, &half, 2);
}

// The same numbers in every run.
std::mt19937 generator(std::uint32_t seed) { return std::mt19937(seed); }

std::vector<std::byte> normal_numbers(std::size_t count, DType type, float deviation,
                                      std::uint32_t seed) {
  std::mt19937 random = generator(seed);
  std::normal_distribution<float> normal(0, deviation);
  std::vector<std::byte> bytes(count * size_of(type));
  for (std::size_t i = 0; i < count; ++i) {
    store_number(bytes.data() + i * size_of(type), type, normal(random));
  }
  return bytes;
}

constexpr std::size_t drawn_offsets = 65536;

// Random weights for one expert after the other. Drawing all would take minutes: every expert has
// the same numbers from another offset on.
class Weights {
 public:
  Weights(const ExpertShape& shape, std::size_t block)
      : element_(size_of(shape.dtype)),
        drawn_(normal_numbers(block / element_ + drawn_offsets, shape.dtype, 0.02F, 1)) {}

  void fill(const MemoryView& block) {
    std::memcpy(block.data, drawn_.data() + random_() % drawn_offsets * element_, block.bytes);
  }

 private:
  std::size_t element_;
  std::vector<std::byte> drawn_;
  std::mt19937 random_ = generator(2);
};

void send(MemoryView to, const void* from, std::size_t bytes, const Stream& stream) {
  const PinnedBuffer buffer(stream.device(), bytes);
  std::memcpy(buffer.view().data, from, bytes);
  copy(to.sub(0, bytes), buffer.view(), stream);
  stream.synchronize();
}

std::filesystem::path new_path(const std::filesystem::path& directory) {
  std::string name = (directory / "penstock-experts-XXXXXX").string();
  const int fd = mkstemp(name.data());
  if (fd < 0) throw SystemError(errno, "create a file in", directory.string());
  close(fd);
  return name;
}

}  // namespace

RemovedFile::~RemovedFile() {
  std::error_code ignored;
  std::filesystem::remove(path_, ignored);
}

ExpertWork::ExpertWork(const ExpertOverlapOptions& options)
    : device_(options.device),
      shape_(options.shape),
      block_(ExpertStore::block_bytes(shape_)),
      stream_(device_),
      pool_(device_) {
  make_routing(options);
  make_weights(options);
  load_resident(options);
}

void ExpertWork::make_weights(const ExpertOverlapOptions& options) {
  const std::int64_t all = shape_.layers * shape_.experts;
  distinct_ = options.distinct > 0 ? std::min(options.distinct, all) : all;
  ExpertShape stored = shape_;
  if (distinct_ < all) {
    stored.layers = 1;
    stored.experts = distinct_;
  }
  Weights weights(shape_, block_);
  const auto tell = [&](std::uint64_t done, std::uint64_t total) {
    if (options.stop.stop_requested()) throw Cancelled();
    if (!options.progress) return;
    options.progress("making the weights",
                     0.3 * static_cast<double>(done) / static_cast<double>(total));
  };
  if (options.from == ExpertsFrom::memory) {
    store_.emplace(device_, stored);
    for (std::int64_t i = 0; i < distinct_; ++i) {
      weights.fill(store_->block(i / stored.experts, i % stored.experts));
      tell(static_cast<std::uint64_t>(i + 1), static_cast<std::uint64_t>(distinct_));
    }
    return;
  }
  packed_.emplace(new_path(options.directory));
  pack_experts(packed_->path(), stored,
               [&](auto, auto, const MemoryView& block) { weights.fill(block); },
               {.stop = options.stop, .progress = tell});
  file_.emplace(packed_->path());
}

void ExpertWork::make_routing(const ExpertOverlapOptions& options) {
  const std::int64_t tokens = options.batch * options.sequence, experts = shape_.experts;
  const std::int64_t chosen = options.choices;
  const std::int64_t places =
      options.rounding > 0 ? std::min({std::int64_t{16}, chosen + 4, experts}) : chosen;
  const std::size_t layers = static_cast<std::size_t>(shape_.layers),
                    rows = static_cast<std::size_t>(tokens * shape_.hidden) * size_of(shape_.dtype),
                    pairs = static_cast<std::size_t>(tokens * places);
  x_ = DeviceBuffer(device_, rows);
  out_ = DeviceBuffer(device_, rows * layers);
  ids_ = DeviceBuffer(device_, pairs * layers * 4);
  weights_ = DeviceBuffer(device_, pairs * layers * 4);
  maps_ = DeviceBuffer(device_, static_cast<std::size_t>(experts * experts) * 4);
  {
    const auto x =
        normal_numbers(static_cast<std::size_t>(tokens * shape_.hidden), shape_.dtype, 1, 3);
    send(x_.view(), x.data(), x.size(), stream_);
    std::vector<std::int32_t> maps(static_cast<std::size_t>(experts * experts), -1);
    for (std::int64_t e = 0; e < experts; ++e) {
      maps[static_cast<std::size_t>(e * experts + e)] = 0;
    }
    send(maps_.view(), maps.data(), maps.size() * 4, stream_);
  }
  const Stream host(Device::cpu());
  const Pool host_pool(Device::cpu());
  const Place place = device_.place();
  std::mt19937 random = generator(4);
  std::normal_distribution<float> normal;
  std::vector<float> logits(static_cast<std::size_t>(tokens * experts));
  std::vector<std::int32_t> ids(static_cast<std::size_t>(tokens * chosen)), rounded_ids(pairs);
  std::vector<float> weights(ids.size()), rounded_weights(pairs);
  for (std::size_t layer = 0; layer < layers; ++layer) {
    if (options.stop.stop_requested()) throw Cancelled();
    for (float& each : logits) each = normal(random);
    const TensorView logits_view(logits.data(), DType::f32, {tokens, experts});
    const TensorView ids_view(ids.data(), DType::i32, {tokens, chosen});
    const TensorView weights_view(weights.data(), DType::f32, {tokens, chosen});
    route({.logits = logits_view, .ids = ids_view, .weights = weights_view, .renormalise = true},
          host);
    if (options.rounding > 0) {
      round_routes(
          {.logits = logits_view,
           .ids = ids_view,
           .weights = weights_view,
           .rounded_ids = TensorView(rounded_ids.data(), DType::i32, {tokens, places}),
           .rounded_weights = TensorView(rounded_weights.data(), DType::f32, {tokens, places}),
           .tile = options.rounding,
           .pool = &host_pool},
          host);
    }
    host.synchronize();
    const auto& final_ids = options.rounding > 0 ? rounded_ids : ids;
    const auto& final_weights = options.rounding > 0 ? rounded_weights : weights;
    const MemoryView ids_there = ids_.view().sub(layer * pairs * 4, pairs * 4),
                     weights_there = weights_.view().sub(layer * pairs * 4, pairs * 4),
                     out = out_.view().sub(layer * rows, rows);
    send(ids_there, final_ids.data(), pairs * 4, stream_);
    send(weights_there, final_weights.data(), pairs * 4, stream_);
    calls_.push_back(
        {.x = TensorView(x_.view().data, shape_.dtype, {tokens, shape_.hidden}, place),
         .ids = TensorView(ids_there.data, DType::i32, {tokens, places}, place),
         .weights = TensorView(weights_there.data, DType::f32, {tokens, places}, place),
         .out = TensorView(out.data, shape_.dtype, {tokens, shape_.hidden}, place),
         .activation = options.activation,
         .kernel = options.kernel});
    std::vector<std::int64_t> counts(static_cast<std::size_t>(experts));
    for (const std::int32_t id : final_ids) {
      if (id >= 0 && id < experts) ++counts[static_cast<std::size_t>(id)];
    }
    const std::size_t begin = items_.size();
    for (std::int64_t e = 0; e < experts; ++e) {
      const std::int64_t count = counts[static_cast<std::size_t>(e)];
      if (count == 0) continue;
      items_.push_back({.layer = static_cast<std::int64_t>(layer), .expert = e, .rows = count});
    }
    if (items_.size() == begin) {
      throw_invalid("rounding", "a tile that leaves tokens to the experts",
                    std::to_string(options.rounding));
    }
    items_[begin].first = items_.back().last = true;
  }
  std::vector<std::size_t> order(items_.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return items_[a].rows > items_[b].rows; });
  for (std::size_t rank = 0; rank < order.size(); ++rank) items_[order[rank]].rank = rank;
}

void ExpertWork::load_resident(const ExpertOverlapOptions& options) {
  std::size_t count = std::max(options.depth, options.cache);
  for (const std::size_t cache : options.sweep_caches) count = std::max(count, cache);
  count = std::min(count, items_.size());
  resident_ = DeviceBuffer(device_, count * block_);
  const PinnedBuffer buffer(device_, block_);
  for (const ExpertItem& item : items_) {
    if (item.rank >= count) continue;
    MemoryView from = buffer.view();
    if (store_) {
      from = block(item);
    } else {
      file_->read(offset(item), from);
    }
    copy(resident(item.rank), from, stream_);
    stream_.synchronize();
  }
  MoeOptions shape = calls_.front();
  ExpertStore::set_weights(shape_, resident(0), 1, shape);
  shape.slots = TensorView(maps_.view().data, DType::i32, {shape_.experts}, device_.place());
  workspace_ = DeviceBuffer(device_, moe_workspace_bytes(shape));
}

std::int64_t ExpertWork::number(const ExpertItem& item) const {
  return (item.layer * shape_.experts + item.expert) % distinct_;
}

MemoryView ExpertWork::block(const ExpertItem& item) const {
  const std::int64_t experts = store_->shape().experts;
  return store_->block(number(item) / experts, number(item) % experts);
}

std::uint64_t ExpertWork::offset(const ExpertItem& item) const {
  return expert_blocks_offset + static_cast<std::uint64_t>(number(item)) * block_;
}

MemoryView ExpertWork::resident(std::size_t rank) const {
  return resident_.view().sub(rank * block_, block_);
}

MoeOptions ExpertWork::call(std::int64_t layer) const {
  MoeOptions call = calls_[static_cast<std::size_t>(layer)];
  call.workspace = {};
  call.pool = &pool_;
  return call;
}

namespace {

MoeOptions one_expert(const ExpertShape& shape, MoeOptions call, const DeviceBuffer& workspace,
                      const DeviceBuffer& maps, std::int64_t expert, MemoryView weights) {
  call.workspace = workspace.view();
  ExpertStore::set_weights(shape, {weights.data, weights.bytes, workspace.view().place}, 1, call);
  auto* map = maps.view().as<std::int32_t>() + expert * shape.experts;
  call.slots = TensorView(map, DType::i32, {shape.experts}, maps.view().place);
  return call;
}

}  // namespace

void ExpertWork::plan(std::int64_t layer, const Stream& stream) const {
  moe_plan(one_expert(shape_, calls_[static_cast<std::size_t>(layer)], workspace_, maps_, 0,
                      resident(0)),
           stream);
}

void ExpertWork::compute(const ExpertItem& item, MemoryView weights, const Stream& stream) const {
  moe_experts(one_expert(shape_, calls_[static_cast<std::size_t>(item.layer)], workspace_, maps_,
                         item.expert, weights),
              stream);
}

void ExpertWork::combine(std::int64_t layer, const Stream& stream) const {
  moe_combine(one_expert(shape_, calls_[static_cast<std::size_t>(layer)], workspace_, maps_, 0,
                         resident(0)),
              stream);
}

void ExpertWork::compute_one_by_one(std::int64_t layer, const MoeOptions& call,
                                    std::span<const std::int32_t> experts,
                                    const Stream& stream) const {
  const PinnedBuffer buffer(device_, block_);
  const DeviceBuffer there(device_, block_);
  const auto with = [&](std::int32_t expert) {
    return one_expert(shape_, call, workspace_, maps_, expert, there.view());
  };
  moe_plan(with(0), stream);
  for (const std::int32_t expert : experts) {
    const ExpertItem item{.layer = layer, .expert = expert};
    if (!store_) file_->read(offset(item), buffer.view());
    copy(there.view(), store_ ? block(item) : buffer.view(), stream);
    moe_experts(with(expert), stream);
    stream.synchronize();
  }
  moe_combine(with(0), stream);
  stream.synchronize();
}

void ExpertWork::poison(const Stream& stream) const {
  fill(out_.view(), 0xFF, stream);
  stream.synchronize();
}

std::vector<std::byte> ExpertWork::results(const Stream& stream) const {
  const PinnedBuffer buffer(device_, out_.bytes());
  copy(buffer.view(), out_.view(), stream);
  stream.synchronize();
  return {buffer.view().data, buffer.view().data + buffer.bytes()};
}

}  // namespace ps::detail
