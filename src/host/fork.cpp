#include "host/fork.h"

#include <pthread.h>

#include <atomic>

#include "penstock/base/error.h"

namespace ps::detail {
namespace {
std::atomic<bool> is_child{false};
}

bool forked() noexcept { return is_child.load(std::memory_order_relaxed); }

void refuse_after_fork() {
  // From the first use on: a process that only loaded the library may fork as it likes.
  [[maybe_unused]] static const int watching =
      pthread_atfork(nullptr, nullptr, [] { is_child.store(true, std::memory_order_relaxed); });
  if (!forked()) return;
  throw Unsupported(
      "this process was forked from one that had used Penstock, and Penstock's threads do not "
      "survive a fork; start the process by spawn instead, or use Penstock in the child alone");
}

}  // namespace ps::detail
