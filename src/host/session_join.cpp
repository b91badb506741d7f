// How a stream waits for an item. If the item is enqueued already, the stream waits for its events.
// If not, there is no event yet to wait for: a stream of a GPU waits for a number in page-locked
// memory, which the last stage's stream writes behind the item's work.
#include "host/backend.h"
#include "host/session_core.h"
#include "penstock/base/error.h"

namespace ps::detail {
namespace {

std::uint64_t bit(std::size_t stage) { return std::uint64_t{1} << stage; }

bool same_stream(const Stream& a, const Stream& b) {
  return a == b || (a.native() != nullptr && a.native() == b.native() && a.device() == b.device());
}

bool is_on_gpu(const Stream& stream) { return stream.impl().backend().kind() == DeviceKind::cuda; }

}  // namespace

void SessionCore::join(const std::shared_ptr<TicketState>& ticket, const Stream& stream) {
  stream.impl().refuse_capture("Ticket::join");
  {
    const std::lock_guard lock(mutex_);
    if (closed_ || ticket->ended) return;
    refuse_own_stream(ticket->index, stream);
    const std::uint64_t left = wait_for_events(*ticket, stream);
    if (left == 0 || hold_by_signals(*ticket, stream, left)) return;
  }
  if (is_on_gpu(stream) && !stream.device().capabilities().stream_wait_value) {
    // A driver callback could hold the stream, but callbacks may hold up each other: one that waits
    // for an item could hold up one that the item waits for.
    refuse_inside("join()");
    ticket->block();
    return;
  }
  stream.impl().call([ticket](const std::exception_ptr& /*not_run*/) { ticket->block(); });
}

// Returns the last stages that are left to wait for.
std::uint64_t SessionCore::wait_for_events(const TicketState& ticket, const Stream& stream) {
  // A stream that cannot wait for an event by itself would look at it when it is recorded anew.
  const bool by_events = is_on_gpu(stream) == (graph_.options.device.kind() == DeviceKind::cuda);
  std::uint64_t left = 0;
  for (const std::size_t s : last_stages_) {
    const Stage& stage = graph_.stages[s];
    if (counts_[s].finished > ticket.index) continue;
    if (by_events && !stage.on_host && counts_[s].started > ticket.index) {
      stream.wait(stage.done[ticket.index % graph_.window]);
    } else {
      left |= bit(s);
    }
  }
  return left;
}

bool SessionCore::hold_by_signals(TicketState& ticket, const Stream& stream, std::uint64_t stages) {
  for (const std::size_t s : last_stages_) {
    if (!signals_[s] || !signals_[s]->serves(stream.impl())) return false;
  }
  for (const std::size_t s : last_stages_) {
    if ((stages & bit(s)) == 0) continue;
    signals_[s]->wait(stream.impl(), static_cast<std::uint32_t>(ticket.index + 1));
    ticket.joined |= bit(s);
  }
  return true;
}

void SessionCore::enqueued(std::size_t stage, std::uint64_t item) {
  if ((tickets_[item % graph_.window]->joined & bit(stage)) == 0) return;
  try {
    signals_[stage]->write(graph_.stages[stage].stream->impl(),
                           static_cast<std::uint32_t>(item + 1));
  } catch (...) {
    // The host raises the number when it learns that the item is done.
  }
}

// The stream would wait for work that is to come behind the wait.
void SessionCore::refuse_own_stream(std::uint64_t item, const Stream& stream) const {
  for (std::size_t s = 0; s < graph_.stages.size(); ++s) {
    const Stage& stage = graph_.stages[s];
    if (stage.on_host || counts_[s].started > item || !same_stream(*stage.stream, stream)) continue;
    throw_invalid("stream", "a stream that the item does not need",
                  "that of stage '" + stage.name + "', which has not enqueued the item yet");
  }
}

}  // namespace ps::detail
