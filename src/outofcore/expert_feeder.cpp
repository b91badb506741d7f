// Calls of StreamedExperts on the threads of their callers. expert_thread.cpp has the other side.
#include "outofcore/expert_feeder.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <string>

#include "host/backend.h"
#include "host/clock.h"
#include "host/fork.h"
#include "ops/arguments.h"
#include "ops/scratch.h"
#include "outofcore/expert_checks.h"
#include "outofcore/expert_source.h"
#include "penstock/base/error.h"

namespace ps::detail {
namespace {

constexpr std::size_t most_slots = 8192;  // that moe() can address

const ExpertShape& checked_shape(const StreamedExpertsOptions& options) {
  if (options.store == nullptr && options.disk == nullptr && options.compressed == nullptr) {
    throw_invalid("store", "a store, one on a disk (`disk`), or a compressed one (`compressed`)",
                  "null");
  }
  if (options.store != nullptr && options.disk != nullptr) {
    throw_invalid("disk", "none, because `store` is set", "a store");
  }
  if (options.compressed != nullptr) {
    if (options.store != nullptr || options.disk != nullptr) {
      throw_invalid("compressed", "none, because `store` or `disk` is set", "a store");
    }
    if (!options.compressed->complete()) {
      const ExpertShape& shape = options.compressed->shape();
      throw_invalid("compressed",
                    fmt::format("a store with all {} experts set", shape.layers * shape.experts),
                    fmt::format("one with {}", options.compressed->count()));
    }
  }
  if (options.calls_in_flight == 0) throw_invalid("calls_in_flight", "at least 1", "0");
  return shape_of(options);
}

// Sorts the pinned experts and removes repeated ones.
std::size_t checked_pinned(StreamedExpertsOptions& options, const ExpertShape& shape) {
  auto& pinned = options.pinned;
  std::sort(pinned.begin(), pinned.end());
  pinned.erase(std::unique(pinned.begin(), pinned.end()), pinned.end());
  for (const auto& [layer, expert] : pinned) {
    if (layer >= 0 && layer < shape.layers && expert >= 0 && expert < shape.experts) continue;
    throw_invalid("pinned",
                  fmt::format("layers below {} and experts below {}", shape.layers, shape.experts),
                  fmt::format("({}, {})", layer, expert));
  }
  return pinned.size();
}

std::size_t least_slots(const ExpertShape& shape, std::size_t pinned) {
  return pinned + least_expert_slots(static_cast<std::size_t>(shape.experts));
}

void check_absent(const char* name, const TensorView& view) {
  if (given(view)) throw_invalid(name, "none, because the store has it", described(view));
}

}  // namespace

ExpertFeeder::ExpertFeeder(StreamedExpertsOptions options, ExpertHooks hooks)
    : shape_(checked_shape(options)),
      store_(options.store),
      device_(options.device),
      hooks_(std::move(hooks)),
      in_place_(device_.kind() == DeviceKind::cpu && !hooks_.copy_on_cpu &&
                options.compressed == nullptr),
      most_records_(options.records),
      pinned_(checked_pinned(options, shape_)),
      in_place_calls_(options.calls_in_flight) {
  refuse_after_fork();
  ExpertHost::check(options, !in_place_);
  if (in_place_) {
    if (options.disk != nullptr) {
      disk_calls_.emplace(options, hooks_.steps, in_place_calls_, error_, cancelled_);
    }
    return;
  }
  hooks_.steps->load_publish_ids(device_);
  const std::size_t block = ExpertStore::block_bytes(shape_);
  const std::size_t staging =
      options.compressed != nullptr ? ExpertStaging::device_bytes(shape_) : 0;
  const std::size_t maps = ExpertCalls::device_bytes(options.calls_in_flight, shape_.experts);
  const std::size_t tables = maps + staging;
  const std::size_t least = least_slots(shape_, pinned_);
  if (least > most_slots) {
    throw_invalid("pinned", fmt::format("at most {} experts", most_slots - (least - pinned_)),
                  std::to_string(pinned_));
  }
  if (options.device_bytes < least * block + tables) {
    throw_invalid("device_bytes",
                  fmt::format("at least {} bytes: {} slots of {} bytes and {} bytes of {}",
                              least * block + tables, least, block, tables,
                              staging > 0 ? "buffers and tables" : "tables"),
                  std::to_string(options.device_bytes));
  }
  const auto all = static_cast<std::size_t>(shape_.layers * shape_.experts);
  // More slots than experts are of use only if a group could otherwise not be large enough.
  slot_count_ =
      std::min({(options.device_bytes - tables) / block, std::max(all, least), most_slots});
  memory_ = DeviceBuffer(device_, slot_count_ * block + tables);
  copied_ = PinnedBuffer(device_, 256);
  *copied_.view().as<std::uint32_t>() = 0;
  const MemoryView slots = memory_.view().sub(0, slot_count_ * block);
  calls_.emplace(device_, memory_.view().sub(slots.bytes, maps), options.calls_in_flight,
                 shape_.experts);
  for (ExpertCall& call : calls_->all()) free_.push_back(&call);
  last_misses_.assign(static_cast<std::size_t>(shape_.layers),
                      static_cast<std::uint32_t>(shape_.experts));
  auto policy = options.policy ? std::move(options.policy) : frequency_policy();
  if (pinned_ > 0) {
    std::vector<CacheKey> keys;
    for (const auto& [layer, expert] : options.pinned) {
      keys.push_back(static_cast<CacheKey>(layer * shape_.experts + expert));
    }
    policy = pinned_policy(std::move(keys), std::move(policy));
  }
  answers_.emplace(options, std::move(policy), slots, copied_.view().as<std::uint32_t>(),
                   cancelled_, hooks_.hint_wait_ns);
  if (staging > 0) answers_->stage(memory_.view().sub(slots.bytes + maps, staging), hooks_.steps);
  if (options.host_experts != HostExperts::none) share_with_host(options, slots);
  thread_ = std::thread([this] { run(); });
}

// The split of experts between the link and the host begins with the measured rate of the link.
void ExpertFeeder::share_with_host(const StreamedExpertsOptions& options, const MemoryView& slots) {
  std::int64_t copy_ns = 0;
  if (options.host_experts == HostExperts::balanced) {
    constexpr int rounds = 4, copies = 4;
    const Stream stream(device_);
    const MemoryView block = store_->block(0, 0);
    copy_ns = std::numeric_limits<std::int64_t>::max();
    for (int round = 0; round < rounds; ++round) {
      const std::int64_t begin = now_ns();
      for (int i = 0; i < copies; ++i) copy(slots.sub(0, block.bytes), block, stream);
      stream.synchronize();
      copy_ns = std::min(copy_ns, (now_ns() - begin) / copies);
    }
  }
  host_.emplace(options, hooks_, copy_ns, error_, cancelled_);
  for (ExpertHostPart& part : host_->all()) free_parts_.push_back(&part);
  answers_->share_with(*host_);
}

ExpertFeeder::~ExpertFeeder() {
  in_place_calls_.wait();
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    ending_ = closed_ = true;
  }
  posted_or_ending_.notify_one();
  thread_.join();
}

void ExpertFeeder::check_open(const char* call) const {
  refuse_after_fork();
  const std::lock_guard lock(mutex_);
  if (closed_) throw ExpertsClosed(fmt::format("{}: the experts are closed", call));
}

void ExpertFeeder::check_stream(const Stream& stream) const {
  if (stream.device() == device_) return;
  throw_invalid("stream", "a stream of " + device_.name(), "one of " + stream.device().name());
}

void ExpertFeeder::forward(std::int64_t layer, const MoeOptions& given_options,
                           const Stream& stream) {
  refuse_after_fork();
  check_index("layer", layer, shape_.layers);
  check_stream(stream);
  check_absent("gate_up", given_options.gate_up);
  check_absent("down", given_options.down);
  check_absent("slots", given_options.slots);
  check_absent("gate_up_bias", given_options.gate_up_bias);
  check_absent("down_bias", given_options.down_bias);
  check();
  check_open("forward");
  if (in_place_) return forward_in_place(layer, given_options, stream);
  stream.impl().refuse_capture("StreamedExperts::forward");

  MoeOptions options = given_options;
  ExpertStore::set_weights(shape_, memory_.view(), static_cast<std::int64_t>(slot_count_), options);
  options.slots = calls_->all().front().slots;  // for the checks; replaced by that of the call
  const std::size_t bytes = moe_workspace_bytes(options);
  const std::int64_t tokens = options.x.extent(0), pairs = options.ids.elements();
  std::optional<Scratch> scratch;
  if (options.workspace.data == nullptr && tokens > 0) {
    check_pool(options.pool, bytes, device_);
    scratch.emplace(*options.pool, bytes, stream);
    options.workspace = {scratch->data(), bytes, device_.place()};
  }
  if (tokens == 0) return moe(options, stream);  // checks the arguments

  // One call at a time: while the stream of one waits for copies that are not enqueued yet, another
  // must not load kernels.
  const std::lock_guard one_call(forwarding_);
  const bool whole = pairs >= whole_pairs * shape_.experts;
  // Which experts the host computes depends on all tokens.
  const bool shares =
      host_ && !whole && !options.batch_invariant && ExpertHost::takes(tokens, pairs);
  std::list<ExpertCall*> taken = acquire(shares);
  try {
    hooks_.steps->plan(options, stream);  // checks the arguments
  } catch (...) {
    give_back(std::move(taken));
    throw;
  }
  options.check = false;
  ExpertCall& call = *taken.front();
  call.hint = false;
  call.layer = layer;
  call.tokens = tokens;
  call.whole = whole;
  call.groups = expert_groups(static_cast<std::size_t>(std::min(pairs, shape_.experts)),
                              slot_count_ - pinned_, last_misses(layer));
  call.enqueued_ns = now_ns();
  options.slots = call.slots;
  const std::uint32_t number = call.number;
  try {
    if (call.host != nullptr) host_->prepare(*call.host, layer, options);
    enqueue(call, options, stream);
  } catch (...) {
    abandon(std::move(taken), stream);
    throw;
  }
  post(std::move(taken));
  if (shares) host_->wake();
  // What the stream waits for must be enqueued before this thread goes on: if it launched a kernel
  // that is not loaded, CUDA could wait for the stream and let no thread enqueue copies meanwhile.
  const std::int64_t begin = now_ns();
  while (static_cast<std::int32_t>(call.answered.load() - number) < 0) pause_since(begin);
}

void ExpertFeeder::enqueue(ExpertCall& call, const MoeOptions& options, const Stream& stream) {
  ExpertSteps& steps = *hooks_.steps;
  steps.publish(options, call.routing(), stream);
  steps.load(options, stream);
  for (std::size_t group = 0; group < call.groups; ++group) {
    stream.impl().wait_value(call.flags + group, call.number);
    steps.take_slots(call.map(group), call.slots, stream);
    steps.experts(options, stream);
    stream.record(call.read[group]);
  }
  if (call.host != nullptr) {
    stream.impl().wait_value(call.host->flag, call.host->number);
    steps.take_rows(options, call.host->rows(), stream);
  }
  steps.combine(options, stream);
  stream.record(call.done);
}

std::size_t ExpertFeeder::last_misses(std::int64_t layer) const {
  const std::lock_guard lock(mutex_);
  return last_misses_[static_cast<std::size_t>(layer)];
}

void ExpertFeeder::forward_in_place(std::int64_t layer, MoeOptions options, const Stream& stream) {
  if (disk_calls_) return disk_calls_->forward(layer, options, stream);
  const MemoryView last = store_->block(layer, shape_.experts - 1);  // waits for all of the layer
  MemoryView first = store_->block(layer, 0);
  first.bytes = static_cast<std::size_t>(last.data + last.bytes - first.data);
  ExpertStore::set_weights(shape_, first, shape_.experts, options);
  const auto in_flight = in_place_calls_.begin();
  try {
    moe(options, stream);
    stream.call([in_flight] {});
  } catch (const InvalidArgument&) {
    throw;  // nothing was enqueued
  } catch (const OutOfMemory&) {
    throw;  // likewise
  } catch (...) {
    stream.impl().drain();  // what was enqueued reads the store
    throw;
  }
  const std::lock_guard lock(mutex_);
  ++statistics_.calls;
}

void ExpertFeeder::prefetch(std::int64_t layer, std::span<const std::int32_t> experts) {
  check_open("prefetch");
  check_index("layer", layer, shape_.layers);
  for (const std::int32_t expert : experts) {
    if (expert >= 0 && expert < shape_.experts) continue;
    throw_invalid("experts", fmt::format("experts from 0 to {}", shape_.experts - 1),
                  std::to_string(expert));
  }
  {
    const std::lock_guard lock(mutex_);
    if (disk_calls_) disk_calls_->prefetch(layer, experts);
    if (in_place_) return;
    named_.emplace_back(layer, std::vector<std::int32_t>(experts.begin(), experts.end()));
    if (named_.size() > 64) named_.pop_front();
  }
  posted_or_ending_.notify_one();
}

void ExpertFeeder::prefetch(std::int64_t layer, const TensorView& ids, const Stream& stream) {
  check_open("prefetch");
  check_index("layer", layer, shape_.layers);
  check_stream(stream);
  const Named named{"ids", ids};
  check_type(named, {DType::i32, DType::i64});
  check_contiguous(named);
  check_memory(named, device_);
  if (ids.elements() == 0) return;
  if (in_place_) {
    if (disk_calls_) disk_calls_->prefetch(layer, ids, stream);
    return;
  }
  stream.impl().refuse_capture("StreamedExperts::prefetch");
  std::list<ExpertCall*> taken = acquire();
  ExpertCall& call = *taken.front();
  call.hint = true;
  call.whole = false;
  call.layer = layer;
  call.groups = 0;
  try {
    hooks_.steps->publish_ids(ids, shape_.experts, call.routing(), stream);
    stream.record(call.done);
  } catch (...) {
    abandon(std::move(taken), stream);
    throw;
  }
  post(std::move(taken));
}

std::list<ExpertCall*> ExpertFeeder::acquire(bool host) {
  std::unique_lock lock(mutex_);
  given_back_.wait(lock,
                   [&] { return closed_ || (!free_.empty() && (!host || !free_parts_.empty())); });
  if (closed_) throw ExpertsClosed("the experts are closed");
  std::list<ExpertCall*> taken;
  taken.splice(taken.begin(), free_, free_.begin());
  ExpertCall& call = *taken.front();
  call.serial = ++calls_made_;
  call.abandoned = false;
  call.host = nullptr;
  if (host) {
    call.host = free_parts_.back();
    free_parts_.pop_back();
    call.host->failed = call.host->finished = false;
  }
  return taken;
}

void ExpertFeeder::give_back(std::list<ExpertCall*> call) noexcept {
  {
    const std::lock_guard lock(mutex_);
    if (call.front()->host != nullptr) free_part(*call.front());
    make_free(call);
  }
  given_back_.notify_all();
}

void ExpertFeeder::make_free(std::list<ExpertCall*>& from) {
  from.front()->serial = 0;
  free_.splice(free_.end(), from, from.begin());
}

void ExpertFeeder::free_part(ExpertCall& call) {
  ++call.host->number;
  free_parts_.push_back(call.host);
  call.host = nullptr;
}

void ExpertFeeder::post(std::list<ExpertCall*> call) noexcept {
  {
    const std::lock_guard lock(mutex_);
    auto& posted = call.front()->hint ? posted_hints_ : posted_;
    posted.splice(posted.end(), call);
  }
  posted_or_ending_.notify_one();
}

void ExpertFeeder::abandon(std::list<ExpertCall*> call, const Stream& stream) noexcept {
  release(*call.front());
  // With all flags set, the stream ends what was enqueued.
  stream.impl().drain();
  call.front()->abandoned = true;
  post(std::move(call));
}

void ExpertFeeder::clear() {
  check_open("clear");
  if (in_place_) return;
  std::unique_lock lock(mutex_);
  clearing_ = true;
  posted_or_ending_.notify_one();
  given_back_.wait(lock, [&] { return !clearing_; });
}

void ExpertFeeder::wait_for_calls() {
  if (in_place_) return in_place_calls_.wait();
  std::unique_lock lock(mutex_);
  const std::uint64_t last = calls_made_;
  given_back_.wait(lock, [&] {
    return std::none_of(calls_->all().begin(), calls_->all().end(), [&](const ExpertCall& call) {
      return call.serial > 0 && call.serial <= last;
    });
  });
}

void ExpertFeeder::synchronize() {
  refuse_after_fork();
  wait_for_calls();
  check();
}

void ExpertFeeder::close() {
  {
    const std::lock_guard lock(mutex_);
    closed_ = true;
  }
  cancelled_ = true;
  if (forked()) return;
  in_place_calls_.close();
  posted_or_ending_.notify_one();
  given_back_.notify_all();
  wait_for_calls();
}

ExpertStatistics ExpertFeeder::statistics() const {
  if (disk_calls_) return disk_calls_->statistics();
  const std::lock_guard lock(mutex_);
  return statistics_;
}

std::vector<ExpertCallRecord> ExpertFeeder::records() const {
  if (disk_calls_) return disk_calls_->records();
  const std::lock_guard lock(mutex_);
  return {records_.begin(), records_.end()};
}

}  // namespace ps::detail
