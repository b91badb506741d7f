#include "interruptible.h"

#include <chrono>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <string>
#include <thread>

#include "errors.h"
#include "interpreter.h"

namespace ps::python {
namespace {

constexpr auto between_looks = std::chrono::milliseconds(50);

// What the two threads share.
struct Shared {
  std::mutex mutex;
  std::condition_variable changed;
  std::string what;
  double share = 0;
  bool news = false, over = false;
  std::exception_ptr failure;
};

void tell(Shared& shared, const nb::object& progress) {
  std::string what;
  double share = 0;
  {
    const std::lock_guard lock(shared.mutex);
    if (!shared.news) return;
    shared.news = false;
    what = shared.what;
    share = shared.share;
  }
  if (!progress.is_none()) progress(nb::str(what.c_str()), share);
}

void work_on(Shared& shared, const std::stop_token& stop, const LongWork& work) {
  const Report report = [&](std::string_view what, double share) {
    const std::lock_guard lock(shared.mutex);
    shared.what = what;
    shared.share = share;
    shared.news = true;
  };
  std::exception_ptr failure;
  try {
    work(stop, report);
  } catch (...) {
    failure = std::current_exception();
  }
  const std::lock_guard lock(shared.mutex);
  shared.failure = failure;
  shared.over = true;
  shared.changed.notify_all();
}

bool wait_a_little(Shared& shared) {
  return without_lock([&] {
    std::unique_lock lock(shared.mutex);
    return shared.changed.wait_for(lock, between_looks, [&] { return shared.over; });
  });
}

}  // namespace

void interruptible(const nb::object& progress, const LongWork& work) {
  Shared shared;
  std::jthread thread([&](const std::stop_token& stop) { work_on(shared, stop, work); });
  const StoppedAtExit stopped_at_exit(
      [stop = thread.get_stop_source()]() mutable { stop.request_stop(); });
  try {
    while (!wait_a_little(shared)) {
      if (PyErr_CheckSignals() != 0) throw nb::python_error();
      tell(shared, progress);
    }
    tell(shared, progress);
  } catch (...) {
    thread.request_stop();
    without_lock([&] { thread.join(); });
    throw;
  }
  without_lock([&] { thread.join(); });
  if (shared.failure) std::rethrow_exception(shared.failure);
}

std::function<void(const Progress&)> listening(const nb::object& progress) {
  return [&progress](const Progress& now) {
    throw_if_interrupted();
    if (progress.is_none()) return;
    const Inside inside;
    try {
      progress(now.done, now.items);
    } catch (nb::python_error& error) {
      error.restore();
      throw PythonFailure::take();
    }
  };
}

}  // namespace ps::python
