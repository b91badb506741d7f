#include "outofcore/expert_host.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <tuple>

#include "host/clock.h"
#include "host/flag.h"
#include "ops/moe/arguments.h"
#include "penstock/base/checked.h"
#include "penstock/base/error.h"
#include "penstock/host/parallel.h"

namespace ps::detail {
namespace {

// An expert with more rows is copied: its products take longer than reading its weights.
constexpr std::uint32_t most_rows = 8;
// An expert that was computed on the host so often since it was last on the device is copied, so
// that it can stay there if it is needed often.
constexpr std::uint8_t most_uses = 3;
// After so many calls without experts for the host, its threads are left asleep until there are
// some.
constexpr std::uint32_t most_calls_without_experts = 256;
// The share of a new measurement in the average.
constexpr double newest = 0.25;

constexpr std::size_t most_threads = 256;

// The answering thread and the callers need cores of their own; more threads than this do not read
// faster.
std::size_t usual_threads() { return std::clamp<std::size_t>(parallel_threads(), 5, 28) - 4; }

std::size_t most_workspace_bytes(const ExpertShape& shape) {
  const auto bytes = [&](std::int64_t pairs) {
    return moe_workspace(pairs, shape.experts, shape.hidden, shape.width, size_of(shape.dtype))
        .bytes;
  };
  // The table of passes may be larger for fewer pairs, but has at most one entry per pair.
  return bytes(ExpertHost::most_pairs) + sizeof(std::uint64_t) * ExpertHost::most_pairs;
}

}  // namespace

void ExpertHost::check(const StreamedExpertsOptions& options, bool copies) {
  if (options.host_experts > HostExperts::fixed) {
    throw_invalid("host_experts", "none, balanced or fixed",
                  std::to_string(static_cast<int>(options.host_experts)));
  }
  const std::string given = options.host_experts == HostExperts::fixed ? "fixed" : "balanced";
  if (options.host_experts != HostExperts::none) {
    if (options.store == nullptr) {
      throw_invalid("host_experts",
                    "none, because experts that are compressed or on a disk cannot be computed "
                    "where they are",
                    given);
    }
    if (!copies) {
      throw_invalid("host_experts", "none on the CPU, which computes all experts where they are",
                    given);
    }
  }
  if (options.host_threads > most_threads) {
    throw_invalid("host_threads", fmt::format("at most {}", most_threads),
                  std::to_string(options.host_threads));
  }
  if (options.host_threads > 0 && options.host_experts == HostExperts::none) {
    throw_invalid("host_threads", "0, because host_experts is none",
                  std::to_string(options.host_threads));
  }
  const double share = options.host_share;
  if (options.host_experts == HostExperts::fixed) {
    if (share > 0 && share <= 1) return;
    throw_invalid("host_share", "a number above 0 and at most 1", fmt::format("{}", share));
  }
  if (share != 0) {
    throw_invalid("host_share", "0, because host_experts is not fixed", fmt::format("{}", share));
  }
}

ExpertHost::ExpertHost(const StreamedExpertsOptions& options, const ExpertHooks& hooks,
                       std::int64_t copy_ns, FirstError& error, const std::atomic<bool>& cancelled)
    : store_(*options.store),
      shape_(store_.shape()),
      share_(options.host_share),
      copy_ns_(std::max<double>(1, static_cast<double>(copy_ns))),
      steps_(hooks.steps),
      error_(error),
      cancelled_(cancelled),
      workspace_bytes_(most_workspace_bytes(shape_)),
      host_ns_(copy_ns_),
      uses_(static_cast<std::size_t>(shape_.layers * shape_.experts)),
      helpers_(options.host_threads > 0 ? options.host_threads : usual_threads()) {
  const auto aligned = [](std::size_t bytes) { return align_up(bytes, 256, "shape"); };
  const std::size_t x = aligned(static_cast<std::size_t>(most_tokens * shape_.hidden) *
                                size_of(shape_.dtype)),
                    ids = aligned(most_pairs * sizeof(std::int32_t));
  const std::size_t each = 256 + x + ids + aligned(workspace_bytes_);
  memory_ = PinnedBuffer(options.device, parts * each);
  started_.reserve(parts);
  for (std::size_t i = 0; i < parts; ++i) {
    ExpertHostPart& part = parts_.emplace_back();
    std::byte* const memory = memory_.view().data + i * each;
    part.flag = reinterpret_cast<std::uint32_t*>(memory);
    part.x = memory + 256;
    part.ids = reinterpret_cast<std::int32_t*>(memory + 256 + x);
    part.workspace = memory + 256 + x + ids;
    part.chosen.resize(static_cast<std::size_t>(shape_.experts));
    *part.flag = 0;
  }
  thread_ = std::thread([this] { run(); });
}

ExpertHost::~ExpertHost() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  started_or_ending_.notify_one();
  thread_.join();
}

void ExpertHost::prepare(ExpertHostPart& part, std::int64_t layer,
                         const MoeOptions& options) const {
  const MemoryView last = store_.block(layer, shape_.experts - 1);  // waits for all of the layer
  MemoryView first = store_.block(layer, 0);
  first.bytes = static_cast<std::size_t>(last.data + last.bytes - first.data);
  const std::int64_t tokens = options.x.extent(0);
  MoeOptions mine = options;
  ExpertStore::set_weights(shape_, first, shape_.experts, mine);
  mine.slots = mine.shared_gate_up = mine.shared_down = mine.shared_weights = TensorView();
  mine.x = TensorView(part.x, shape_.dtype, {tokens, shape_.hidden});
  mine.ids = TensorView(part.ids, DType::i32, {tokens, options.ids.extent(1)});
  mine.workspace = {part.workspace, workspace_bytes_, {}};
  const MoeWork work = mixture::unchecked(mine);
  if (work.space.bytes > workspace_bytes_) throw Exhausted("the host's workspace");
  part.work = work;  // release() writes to its workspace
  part.experts = 0;
  std::fill(part.chosen.begin(), part.chosen.end(), char{0});
}

void ExpertHost::wake() noexcept {
  if (calls_without_experts_.fetch_add(1) >= most_calls_without_experts) return;
  {
    const std::lock_guard lock(mutex_);
    woken_ = true;
  }
  started_or_ending_.notify_one();
  helpers_.wake();
}

void ExpertHost::release(ExpertHostPart& part) noexcept {
  if (part.work.memory != nullptr) {
    std::fill_n(part.work.space.pair_rows(part.work.memory), part.work.rows(), -1);
  }
  set_flag(part.flag, part.number);
  part.finished = true;
}

std::vector<std::int32_t> ExpertHost::fixed_choice(std::span<const std::int32_t> needed,
                                                   const std::uint32_t* rows) const {
  std::vector<std::int32_t> chosen(needed.begin(), needed.end());
  std::sort(chosen.begin(), chosen.end(), [&](std::int32_t a, std::int32_t b) {
    return rows[a] != rows[b] ? rows[a] < rows[b] : a > b;
  });
  chosen.resize(static_cast<std::size_t>(std::lround(share_ * static_cast<double>(chosen.size()))));
  return chosen;
}

std::vector<std::int32_t> ExpertHost::balanced_choice(std::int64_t layer,
                                                      std::span<const std::int32_t> missing,
                                                      const std::uint32_t* rows,
                                                      std::size_t copies) {
  std::vector<std::int32_t> chosen;
  for (const std::int32_t expert : missing) {
    if (rows[expert] <= most_rows && uses_of(layer, expert) < most_uses) chosen.push_back(expert);
  }
  std::sort(chosen.begin(), chosen.end(), [&](std::int32_t a, std::int32_t b) {
    return std::tuple(rows[a], uses_of(layer, a), a) < std::tuple(rows[b], uses_of(layer, b), b);
  });
  const double host_ns = host_ns_;
  std::size_t best = 0;
  double best_ns = 0;
  for (std::size_t count = 0; count <= chosen.size(); ++count) {
    const double ns = std::max(static_cast<double>(count) * host_ns,
                               static_cast<double>(copies + missing.size() - count) * copy_ns_);
    if (count > 0 && ns >= best_ns) continue;
    best = count;
    best_ns = ns;
  }
  // One slow measurement must not keep the host from ever being measured again.
  if (best == 0 && !chosen.empty()) host_ns_ = host_ns * 0.97;
  chosen.resize(best);
  for (const std::int32_t expert : chosen) ++uses_of(layer, expert);
  return chosen;
}

void ExpertHost::start(ExpertHostPart& part, std::span<const std::int32_t> experts) noexcept {
  for (const std::int32_t expert : experts) part.chosen[static_cast<std::size_t>(expert)] = 1;
  part.experts = static_cast<std::int64_t>(experts.size());
  part.begin_ns = now_ns();
  calls_without_experts_ = 0;
  {
    const std::lock_guard lock(mutex_);
    started_.push_back(&part);
    ++waiting_;
  }
  started_or_ending_.notify_one();
}

void ExpertHost::forget() noexcept { std::fill(uses_.begin(), uses_.end(), std::uint8_t{0}); }

void ExpertHost::run() {
  while (ExpertHostPart* part = next()) compute(*part);
}

// The next part to compute, or null when the object ends. Polls for a while before it sleeps.
ExpertHostPart* ExpertHost::next() {
  for (;;) {
    const std::int64_t begin = now_ns();
    while (waiting_ == 0 && now_ns() - begin < PollingThreads::poll_ns) {
      helpers_.pause_since(begin);
    }
    std::unique_lock lock(mutex_);
    started_or_ending_.wait(lock, [&] { return ending_ || woken_ || !started_.empty(); });
    woken_ = false;
    if (!started_.empty()) {
      ExpertHostPart* const part = started_.front();
      started_.erase(started_.begin());
      --waiting_;
      return part;
    }
    if (ending_) return nullptr;
  }
}

void ExpertHost::compute(ExpertHostPart& part) noexcept {
  try {
    if (cancelled_) throw ExpertsClosed("the experts were closed while a call was in flight");
    for (std::int64_t i = 0; i < part.work.rows(); ++i) {
      if (part.ids[i] >= 0 && part.chosen[static_cast<std::size_t>(part.ids[i])] == 0) {
        part.ids[i] = -1;
      }
    }
    steps_->on_host(part.work, [&](std::size_t count, std::size_t grain, const auto& work) {
      helpers_.ranges(count, grain, work);
    });
    measured(part);
    set_flag(part.flag, part.number);
    part.finished = true;
  } catch (...) {
    error_.set(std::current_exception());
    part.failed = true;
    release(part);
  }
}

void ExpertHost::measured(const ExpertHostPart& part) noexcept {
  const double ns = static_cast<double>(now_ns() - part.begin_ns) /
                    static_cast<double>(std::max<std::int64_t>(part.experts, 1));
  const double before = host_ns_;
  // A thread that lost its core for a while says little about the next call.
  const double now = before + newest * (std::min(ns, 4 * before) - before);
  host_ns_ = has_measured_ ? now : ns;
  has_measured_ = true;
}

}  // namespace ps::detail
