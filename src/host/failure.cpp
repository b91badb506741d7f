#include "host/failure.h"

#include <cstddef>
#include <utility>

namespace ps::detail {
namespace {
thread_local FailureScope* active = nullptr;
}

FailureScope::FailureScope(std::shared_ptr<FailureSink> sink_, std::size_t stage_,
                           std::uint64_t item_)
    : sink(std::move(sink_)), stage(stage_), item(item_), outer_(active) {
  active = this;
}

FailureScope::~FailureScope() { active = outer_; }

bool inside(const FailureSink& sink) noexcept {
  for (const FailureScope* scope = active; scope != nullptr; scope = scope->outer()) {
    if (scope->sink.get() == &sink) return true;
  }
  return false;
}

StreamFunction bind_failure(std::function<void()> function) {
  if (active == nullptr) {
    return [function = std::move(function)](const std::exception_ptr& not_run) {
      if (not_run) std::rethrow_exception(not_run);
      function();
    };
  }
  return [function = std::move(function), sink = active->sink, stage = active->stage,
          item = active->item](const std::exception_ptr& not_run) {
    try {
      if (not_run) std::rethrow_exception(not_run);
      function();
    } catch (...) {
      sink->fail(stage, item, std::current_exception());
    }
  };
}

}  // namespace ps::detail
