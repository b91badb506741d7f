#include "support/trace.h"

#include <cmath>

namespace ladder {
namespace {

std::int64_t nanoseconds(const ps::Event& from, const ps::Event& to) {
  return std::llround(ps::Event::seconds_between(from, to) * 1e9);
}

}  // namespace

Trace::Trace(const ps::Device& device, ps::Timeline& timeline) : timeline_(&timeline) {
  const ps::Stream stream(device);
  origin_ = mark(stream);
  stream.synchronize();
}

void Trace::finish() {
  for (const Piece& piece : pieces_) {
    timeline_->record({.engine = piece.engine,
                       .stage = ps::name(piece.engine),
                       .item = piece.item,
                       .begin_ns = nanoseconds(*origin_, piece.begin),
                       .end_ns = nanoseconds(*origin_, piece.end)});
  }
  pieces_.clear();
}

ps::Event Trace::mark(const ps::Stream& stream) {
  const ps::Event event(stream.device(), {.timing = true});
  stream.record(event);
  return event;
}

}  // namespace ladder
