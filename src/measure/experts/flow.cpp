#include "measure/experts/flow.h"

#include <fmt/format.h>

#include <algorithm>

#include "penstock/base/checked.h"
#include "penstock/base/error.h"

namespace ps::detail {

ExpertFlow::ExpertFlow(const ExpertWork& work, const ExpertFlowOptions& options)
    : work_(work),
      options_(options),
      pipeline_({.device = work.device(), .depth = std::min(options.depth, work.items().size())}) {
  const bool gpu = work.device().kind() == DeviceKind::cuda, disk = work.store() == nullptr;
  if (options.sequential || options.streams == 1) common_.emplace(work.device());
  const std::size_t block = work.block_bytes();
  const bool reads = disk && options.read, uploads = gpu && options.upload;
  if (disk && (reads || uploads)) {
    host_ = pipeline_.ring("host", {.memory = Memory::pinned, .bytes = block});
  }
  if (uploads) slots_ = pipeline_.ring("slots", {.memory = Memory::device, .bytes = block});
  if (reads) add_read();
  if (uploads) add_uploads();
  if (options.compute) add_compute();
}

bool ExpertFlow::is_cached(const Item& item) const {
  return work_.items()[item.index()].rank < options_.cache;
}

void ExpertFlow::add_read() {
  last_ = {pipeline_.async_stage("read", {.uses = {*host_}, .engine = Engine::disk},
                                 [this](Item& item, const Completion& done) {
                                   if (is_cached(item)) return done();
                                   const ExpertItem& expert = work_.items()[item.index()];
                                   work_.file().read(work_.offset(expert), item.slot(*host_), done);
                                 })};
}

// One stage per stream for copies; each copies its share of every expert.
void ExpertFlow::add_uploads() {
  const std::size_t count = std::max<std::size_t>(options_.streams, 2) - 1;
  const std::size_t block = work_.block_bytes();
  const std::size_t share = align_up(ceil_div(block, count), 4096, "share");
  StageOptions stage{
      .after = last_, .uses = {*slots_}, .engine = Engine::upload, .stream = common_};
  if (host_) stage.uses.push_back(*host_);
  if (share < block) {
    // Copies on several streams begin together, when the slot is free.
    stage.after = {pipeline_.stage("begin", stage, [](Item&) {})};
  }
  last_.clear();
  for (std::size_t i = 0; i * share < block; ++i) {
    const std::size_t begin = i * share, bytes = std::min(share, block - begin);
    last_.push_back(pipeline_.stage(
        i == 0 ? "upload" : fmt::format("upload {}", i + 1), stage,
        [this, begin, bytes](Item& item) {
          if (is_cached(item)) return;
          const MemoryView from =
              host_ ? item.slot(*host_) : work_.block(work_.items()[item.index()]);
          copy(item.slot(*slots_).sub(begin, bytes), from.sub(begin, bytes), item.stream());
        }));
  }
}

void ExpertFlow::add_compute() {
  StageOptions stage{.after = last_, .stream = common_};
  const std::optional<RingId> in = slots_ ? slots_ : host_;
  if (in) stage.uses.push_back(*in);
  // Sequential runs do not read the next expert either.
  if (options_.sequential && slots_ && host_) stage.uses.push_back(*host_);
  pipeline_.stage("compute", std::move(stage), [this, in](Item& item) {
    const ExpertItem& expert = work_.items()[item.index()];
    if (expert.first) work_.plan(expert.layer, item.stream());
    work_.compute(expert, weights_of(item, in), item.stream());
    if (expert.last) work_.combine(expert.layer, item.stream());
  });
}

MemoryView ExpertFlow::weights_of(const Item& item, const std::optional<RingId>& in) const {
  const ExpertItem& expert = work_.items()[item.index()];
  if (is_cached(item)) return work_.resident(expert.rank);
  if (in) return item.slot(*in);
  // The CPU device computes experts in memory where they are.
  if (options_.upload && work_.store() != nullptr) return work_.block(expert);
  return work_.resident(static_cast<std::size_t>(item.index()) % work_.resident());
}

void ExpertFlow::run(Recorder* recorder, const std::stop_token& stop) {
  const RunReport report =
      pipeline_.run({.items = work_.items().size(), .stop = stop, .recorder = recorder});
  if (report.cancelled) throw Cancelled();
}

}  // namespace ps::detail
