#include "measure/experts/decode.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <optional>
#include <random>
#include <set>
#include <stdexcept>

#include "measure/experts/flow.h"
#include "penstock/base/error.h"
#include "penstock/base/units.h"
#include "penstock/measure/expert_routing.h"

namespace ps::detail {
namespace {

// Enough to see, few enough to be drawn at once.
constexpr std::size_t traced_calls = 64, most_traced_steps = 8;

std::size_t traced_steps(const ExpertOverlapOptions& options) {
  if (options.tracing == Tracing::none) return 0;
  return std::clamp<std::size_t>(traced_calls / static_cast<std::size_t>(options.shape.layers), 1,
                                 most_traced_steps);
}

// The same numbers in every run.
std::mt19937_64 routing_generator(std::uint64_t seed) { return std::mt19937_64(seed); }

void send_pageable(MemoryView to, const void* from, const Stream& stream) {
  auto* data = const_cast<std::byte*>(static_cast<const std::byte*>(from));
  copy(to, {data, to.bytes, {}}, stream, {.allow_pageable = true});
  stream.synchronize();
}

// The engines that load experts, each alone, with all experts that the work needs.
class LoadAlone {
 public:
  LoadAlone(const ExpertOverlapOptions& options, const ExpertWork& work) : options_(options) {
    const bool gpu = work.device().kind() == DeviceKind::cuda;
    // As many reads in flight as the store has, in memory that is not large.
    const std::size_t depth =
        std::max(options.depth, std::min<std::size_t>(16, 256 * MiB / work.block_bytes()));
    ExpertFlowOptions alone{.depth = depth, .streams = options.streams, .compute = false};
    if (work.store() == nullptr) {
      alone.upload = false;
      read_.emplace(work, alone);
    }
    if (gpu) {
      alone.read = false;
      alone.upload = true;
      alone.depth = options.depth;
      upload_.emplace(work, alone);
    }
    bytes_ = static_cast<double>(work.items().size() * work.block_bytes());
  }

  void pass() {
    const auto add = [&](std::optional<ExpertFlow>& flow, Floor& floor) {
      if (!flow) return;
      floor.add(timed(options_.timer, "load alone", [&] { flow->run(nullptr, options_.stop); }));
    };
    add(read_, reads_);
    add(upload_, uploads_);
  }

  // How long these bytes take at least; 0 for an engine that is not used.
  double reading(std::uint64_t bytes) const { return seconds(reads_, bytes); }
  double uploading(std::uint64_t bytes) const { return seconds(uploads_, bytes); }

 private:
  double seconds(const Floor& floor, std::uint64_t bytes) const {
    return floor.passes() == 0 ? 0 : floor.seconds() / bytes_ * static_cast<double>(bytes);
  }

  const ExpertOverlapOptions& options_;
  std::optional<ExpertFlow> read_, upload_;
  Floor reads_, uploads_;
  double bytes_ = 0;
};

}  // namespace

DecodeSteps::DecodeSteps(const ExpertOverlapOptions& options, const ExpertWork& work,
                         std::size_t steps)
    : work_(work),
      steps_(steps),
      tokens_(options.batch),
      choices_(options.choices),
      pool_(work.device()) {
  const ExpertShape& shape = work.shape();
  const auto layers = static_cast<std::size_t>(shape.layers),
             pairs = static_cast<std::size_t>(tokens_ * choices_);
  std::mt19937_64 random = routing_generator(5);
  const auto shares = zipf_shares(shape.layers, shape.experts, random);
  for (std::size_t step = 0; step < steps; ++step) {
    for (const auto& each : shares) {
      ids_.push_back(draw_experts(tokens_, choices_, each, random));
    }
  }
  const Stream stream(work.device());
  ids_there_ = DeviceBuffer(work.device(), steps * layers * pairs * 4);
  std::vector<std::int32_t> all;
  for (const auto& each : ids_) all.insert(all.end(), each.begin(), each.end());
  send_pageable(ids_there_.view(), all.data(), stream);
  weights_ = DeviceBuffer(work.device(), pairs * 4);
  const std::vector<float> weights(pairs, 1.F / static_cast<float>(choices_));
  send_pageable(weights_.view(), weights.data(), stream);
  out_ = DeviceBuffer(work.device(), layers * static_cast<std::size_t>(tokens_ * shape.hidden) *
                                         size_of(shape.dtype));
}

MoeOptions DecodeSteps::call(std::size_t step, std::int64_t layer) const {
  const ExpertShape& shape = work_.shape();
  const Place place = work_.device().place();
  const std::size_t ids_bytes = static_cast<std::size_t>(tokens_ * choices_) * 4,
                    out_bytes = out_.bytes() / static_cast<std::size_t>(shape.layers);
  const MemoryView ids = ids_there_.view().sub(index(step, layer) * ids_bytes, ids_bytes),
                   out = out_.view().sub(static_cast<std::size_t>(layer) * out_bytes, out_bytes);
  MoeOptions call = work_.call(layer);
  call.x = TensorView(call.x.data(), shape.dtype, {tokens_, shape.hidden}, place);
  call.ids = TensorView(ids.data, DType::i32, {tokens_, choices_}, place);
  call.weights = TensorView(weights_.view().data, DType::f32, {tokens_, choices_}, place);
  call.out = TensorView(out.data, shape.dtype, {tokens_, shape.hidden}, place);
  call.pool = &pool_;
  return call;
}

std::vector<std::int32_t> DecodeSteps::needed(std::size_t step, std::int64_t layer) const {
  const std::vector<std::int32_t>& ids = ids_[index(step, layer)];
  const std::set<std::int32_t> each(ids.begin(), ids.end());
  return {each.begin(), each.end()};
}

std::vector<std::int64_t> DecodeSteps::accesses(std::size_t end) const {
  std::vector<std::int64_t> keys;
  for (std::size_t step = 0; step < end; ++step) {
    for (std::int64_t layer = 0; layer < work_.shape().layers; ++layer) {
      for (const std::int32_t expert : needed(step, layer)) {
        keys.push_back(layer * work_.shape().experts + expert);
      }
    }
  }
  return keys;
}

std::vector<std::byte> DecodeSteps::results(const Stream& stream) const {
  std::vector<std::byte> bytes(out_.bytes());
  copy({bytes.data(), bytes.size(), {}}, out_.view(), stream, {.allow_pageable = true});
  stream.synchronize();
  return bytes;
}

bool DecodeSteps::is_right(std::size_t step, const Stream& stream) const {
  const std::vector<std::byte> streamed = results(stream);
  fill(out_.view(), 0xFF, stream);
  for (std::int64_t layer = 0; layer < work_.shape().layers; ++layer) {
    work_.compute_one_by_one(layer, call(step, layer), needed(step, layer), stream);
  }
  return results(stream) == streamed;
}

namespace {

ExpertDecodeStep difference(const ExpertStatistics& before, const ExpertStatistics& after) {
  return {.needed = after.needed - before.needed,
          .hits = after.hits - before.hits,
          .late = after.late - before.late,
          .misses = after.misses - before.misses,
          .bytes = after.bytes - before.bytes};
}

double share(std::uint64_t hits, std::size_t needed) {
  return static_cast<double>(hits) / static_cast<double>(needed);
}

void set_hit_rates(const DecodeSteps& steps, ExpertDecode& r) {
  const std::vector<std::int64_t> all = steps.accesses(r.steps.size());
  const std::size_t first = steps.accesses(r.counted_from).size(), counted = all.size() - first;
  std::uint64_t hits = 0;
  for (std::size_t step = r.counted_from; step < r.steps.size(); ++step) hits += r.steps[step].hits;
  r.hit_rate = share(hits, counted);
  r.best_fixed_set = share(best_fixed_set(std::span(all).subspan(first), r.slots), counted);
  r.offline_optimum = share(offline_optimum(all, r.slots, first), counted);
}

void set_share_of_link(const LoadAlone& alone, bool from_disk, std::uint64_t read_bytes,
                       ExpertDecode& r) {
  std::uint64_t copied = 0;
  double seconds = 0;
  for (std::size_t step = r.counted_from; step < r.steps.size(); ++step) {
    copied += r.steps[step].bytes;
    seconds += r.steps[step].seconds;
  }
  const double reading = alone.reading(read_bytes), uploading = alone.uploading(copied);
  r.link = from_disk && reading >= uploading ? Engine::disk : Engine::upload;
  const double floor = std::max(reading, uploading);
  if (floor <= 0) {
    r.why_no_share = "nothing was loaded";
    return;
  }
  const FloorVerdict verdict = judge_by_floor(seconds, floor);
  if (verdict.kept()) {
    r.share_of_link = floor / seconds;
  } else {
    r.why_no_share = verdict.reason;
  }
}

}  // namespace

void measure_decode(const ExpertOverlapOptions& o, const ExpertWork& work, ExpertDecode& r) {
  const std::size_t traced = traced_steps(o);
  const auto layers = static_cast<std::size_t>(o.shape.layers),
             all = layers * static_cast<std::size_t>(o.shape.experts);
  const DecodeSteps steps(o, work, o.decode_steps + traced);
  const std::size_t cache = o.decode_cache > 0 ? o.decode_cache : all / 4;
  StreamedWork streamed(work, std::min(cache, all), traced * layers);
  LoadAlone alone(o, work);
  r.slots = streamed.slots();
  r.counted_from = o.decode_steps / 2;
  constexpr int passes = 3;
  for (int i = 0; i < passes; ++i) alone.pass();
  std::uint64_t read_before = 0;
  const auto run = [&](std::size_t step) {
    if (o.stop.stop_requested()) throw Cancelled();
    streamed.run([&](std::int64_t layer) { return steps.call(step, layer); });
  };
  for (std::size_t step = 0; step < o.decode_steps; ++step) {
    if (step == r.counted_from) read_before = streamed.read_bytes();
    const ExpertStatistics before = streamed.statistics();
    const double seconds = timed(o.timer, "decode", [&] { run(step); });
    r.steps.push_back(difference(before, streamed.statistics()));
    r.steps.back().seconds = seconds;
  }
  const std::uint64_t read_bytes = streamed.read_bytes() - read_before;
  for (int i = 0; i < passes; ++i) alone.pass();
  set_hit_rates(steps, r);
  set_share_of_link(alone, work.store() == nullptr, read_bytes, r);
  if (traced > 0) {
    streamed.trace(r.timeline, [&] {
      for (std::size_t step = o.decode_steps; step < steps.count(); ++step) run(step);
    });
  }
  if (!steps.is_right(steps.count() - 1, Stream(work.device()))) {
    throw std::runtime_error(
        "the results of decode steps differ from those of the same experts, "
        "loaded and computed one after the other");
  }
}

}  // namespace ps::detail
