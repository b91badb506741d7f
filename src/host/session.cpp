#include "penstock/host/session.h"

#include <fmt/format.h>

#include <atomic>
#include <mutex>
#include <new>
#include <utility>
#include <vector>

#include "host/fork.h"
#include "host/session_core.h"
#include "penstock/base/error.h"

namespace ps {
namespace detail {

class SessionImpl {
 public:
  explicit SessionImpl(const SessionOptions& options);
  ~SessionImpl();
  SessionImpl(const SessionImpl&) = delete;
  SessionImpl& operator=(const SessionImpl&) = delete;

  StageId keep(StageId stage, StageCondition when);
  SessionCore& core();  // starts it
  SessionCore* started() const { return started_.load(std::memory_order_acquire); }
  std::uint64_t passed_over(const Payload& payload) const;
  void check_one_more_stage() const;

  std::unique_ptr<StageGraph> graph;

 private:
  const WhenExhausted when_full_;
  Recorder* const recorder_;
  std::vector<std::pair<std::size_t, StageCondition>> conditions_;
  std::mutex start_mutex_;
  std::shared_ptr<SessionCore> core_;
  std::atomic<SessionCore*> started_{nullptr};
};

namespace {

constexpr std::size_t most_stages = 64;  // a ticket has one bit for each
constexpr std::size_t most_in_flight = 1 << 16;

GraphOptions graph_options(const SessionOptions& options) {
  if (options.in_flight == 0 || options.in_flight > most_in_flight) {
    throw_invalid("in_flight", fmt::format("between 1 and {}", most_in_flight),
                  std::to_string(options.in_flight));
  }
  return {.device = options.device,
          .depth = options.depth,
          .pool = options.pool,
          .waiting = options.waiting,
          .window = options.in_flight};
}

}  // namespace

SessionImpl::SessionImpl(const SessionOptions& options)
    : graph(std::make_unique<StageGraph>(graph_options(options))),
      when_full_(options.when_full),
      recorder_(options.recorder) {}

SessionImpl::~SessionImpl() {
  if (!core_) return;
  if (forked()) {
    // The threads exist in the parent only, and cannot be waited for.
    [[maybe_unused]] const auto* kept =
        new (std::nothrow) std::shared_ptr<SessionCore>(std::move(core_));
    [[maybe_unused]] const StageGraph* stages = graph.release();
    return;
  }
  core_->close();
}

void SessionImpl::check_one_more_stage() const {
  if (graph->stages.size() < most_stages) return;
  throw_invalid("stage", fmt::format("at most {} stages", most_stages), "one more");
}

StageId SessionImpl::keep(StageId stage, StageCondition when) {
  if (when) conditions_.emplace_back(stage.value, std::move(when));
  return stage;
}

std::uint64_t SessionImpl::passed_over(const Payload& payload) const {
  std::uint64_t stages = 0;
  for (const auto& [stage, needed] : conditions_) {
    if (!needed(payload)) stages |= std::uint64_t{1} << stage;
  }
  return stages;
}

SessionCore& SessionImpl::core() {
  if (SessionCore* core = started()) return *core;
  const std::lock_guard lock(start_mutex_);
  if (SessionCore* core = started()) return *core;
  if (graph->stages.empty()) throw_invalid("session", "at least one stage", "none");
  graph->prepare("Session::push", recorder_, nullptr);
  auto core = std::make_shared<SessionCore>(*graph, recorder_, when_full_);
  try {
    core->start();
  } catch (...) {
    core->close();
    throw;
  }
  graph->running = true;
  core_ = std::move(core);
  started_.store(core_.get(), std::memory_order_release);
  return *core_;
}

}  // namespace detail

std::uint64_t Ticket::index() const { return state_->index; }
bool Ticket::done() const { return state_->done(); }

void Ticket::wait() const {
  if (!state_->done()) {
    detail::refuse_after_fork();
    if (const auto core = state_->core.lock()) core->refuse_inside("wait()");
    state_->block();
  }
  if (state_->error) std::rethrow_exception(state_->error);
}

std::exception_ptr Ticket::error() const { return state_->done() ? state_->error : nullptr; }

void Ticket::join(const Stream& stream) const {
  if (state_->done()) return;
  detail::refuse_after_fork();
  if (const auto core = state_->core.lock()) core->join(state_, stream);
}

bool Ticket::cancel() const {
  const auto core = state_->core.lock();
  return core && core->cancel(*state_);
}

Session::Session(SessionOptions options) : impl_(std::make_unique<detail::SessionImpl>(options)) {}
Session::~Session() = default;
Session::Session(Session&&) noexcept = default;
Session& Session::operator=(Session&&) noexcept = default;

RingId Session::ring(std::string_view name, RingOptions options) {
  return impl_->graph->add_ring(name, options);
}

StageId Session::stage(std::string_view name, StageOptions options, StageFunction function,
                       StageCondition when) {
  impl_->check_one_more_stage();
  return impl_->keep(impl_->graph->add_device_stage(name, std::move(options), std::move(function)),
                     std::move(when));
}

StageId Session::host_stage(std::string_view name, HostStageOptions options, StageFunction function,
                            StageCondition when) {
  impl_->check_one_more_stage();
  return impl_->keep(impl_->graph->add_host_stage(name, options, std::move(function)),
                     std::move(when));
}

StageId Session::async_stage(std::string_view name, HostStageOptions options,
                             AsyncFunction function, StageCondition when) {
  impl_->check_one_more_stage();
  return impl_->keep(impl_->graph->add_async_stage(name, options, std::move(function)),
                     std::move(when));
}

Ticket Session::push(Payload payload) {
  detail::refuse_after_fork();
  detail::SessionCore& core = impl_->core();
  const std::uint64_t passed_over = impl_->passed_over(payload);
  return Ticket(core.push(std::move(payload), passed_over));
}

void Session::cancel() {
  if (detail::SessionCore* core = impl_->started()) core->cancel_all();
}

void Session::drain() {
  detail::refuse_after_fork();
  if (detail::SessionCore* core = impl_->started()) core->drain();
}

std::uint64_t Session::pushed() const {
  const detail::SessionCore* core = impl_->started();
  return core == nullptr ? 0 : core->pushed();
}

std::uint64_t Session::done() const {
  const detail::SessionCore* core = impl_->started();
  return core == nullptr ? 0 : core->retired();
}

}  // namespace ps
