#include "interpreter.h"

#include <cxxabi.h>
#include <nanobind/nanobind.h>
#include <pthread.h>
#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <mutex>
#include <utility>

namespace ps::python {
namespace {

// How long exit waits for Python functions that pipelines are in the middle of.
constexpr auto patience = std::chrono::seconds(2);

// Counts who is inside, or about to be, until it is closed.
class Door {
 public:
  bool enter() {
    const std::lock_guard lock(mutex_);
    if (closed_) return false;
    ++inside_;
    return true;
  }

  void leave() {
    const std::lock_guard lock(mutex_);
    if (inside_ > 0 && --inside_ == 0) empty_.notify_all();
  }

  std::uint64_t add(std::function<void()> stop) {
    const std::lock_guard lock(mutex_);
    stops_.emplace(++last_, std::move(stop));
    return last_;
  }

  void remove(std::uint64_t number) {
    const std::lock_guard lock(mutex_);
    stops_.erase(number);
  }

  // The lock is held across a fork, so that the child sees whole data. The child starts empty: it
  // has none of the parent's threads and runs.
  void before_fork() { mutex_.lock(); }
  void after_fork_in_parent() { mutex_.unlock(); }
  void after_fork_in_child() {
    stops_.clear();
    inside_ = 0;
    mutex_.unlock();
  }

  // True when nothing was under way.
  bool close() {
    std::unique_lock lock(mutex_);
    closed_ = true;
    const bool idle = stops_.empty() && inside_ == 0;
    for (const auto& [number, stop] : stops_) stop();
    empty_.wait_for(lock, patience, [&] { return inside_ == 0; });
    return idle;
  }

 private:
  std::mutex mutex_;
  std::condition_variable empty_;
  std::map<std::uint64_t, std::function<void()>> stops_;
  std::uint64_t last_ = 0, inside_ = 0;
  bool closed_ = false;
};

// Never destroyed: threads of the library may outlive main().
Door& door() {
  static auto* instance = new Door;
  return *instance;
}

// Whether this thread holds the lock already. True also of the thread that shuts the interpreter
// down, for which the door is not meant.
bool holds_lock() { return PyGILState_GetThisThreadState() != nullptr && PyGILState_Check() != 0; }

[[noreturn]] void sleep_for_good() {
  for (;;) pause();
}

// The Python state of a thread of the library, from its first entry until it ends.
class KeptState {
 public:
  void keep() {
    PyGILState_Ensure();
    state_ = PyEval_SaveThread();
  }
  ~KeptState() {
    if (state_ == nullptr || !door().enter()) return;
    try {
      PyEval_RestoreThread(state_);
      PyGILState_Release(PyGILState_UNLOCKED);
    } catch (abi::__forced_unwind&) {
      sleep_for_good();
    }
    door().leave();
  }

 private:
  PyThreadState* state_ = nullptr;
};

thread_local KeptState kept_state;

}  // namespace

void watch_exit() {
  namespace nb = nanobind;
  pthread_atfork([] { door().before_fork(); }, [] { door().after_fork_in_parent(); },
                 [] { door().after_fork_in_child(); });
  nb::module_::import_("atexit").attr("register")(nb::cpp_function([] {
    const bool idle = without_lock([] { return door().close(); });
    // A thread that sleeps for good holds what it holds.
    if (!idle) nb::set_leak_warnings(false);
  }));
}

Inside::Inside() {
  if (!door().enter()) throw InterpreterGone();
  try {
    if (PyGILState_GetThisThreadState() == nullptr) kept_state.keep();
    state_ = PyGILState_Ensure();
  } catch (abi::__forced_unwind&) {
    sleep_for_good();
  }
}

Inside::~Inside() {
  PyGILState_Release(state_);
  door().leave();
}

Outside::~Outside() {
  try {
    PyEval_RestoreThread(state_);
  } catch (abi::__forced_unwind&) {
    sleep_for_good();
  }
}

PyObject* call(PyObject* function, PyObject* argument) {
  try {
    return PyObject_CallOneArg(function, argument);
  } catch (abi::__forced_unwind&) {
    sleep_for_good();
  }
}

std::shared_ptr<PyObject> share(PyObject* object) {
  Py_INCREF(object);
  return {object, [](PyObject* held) {
            if (holds_lock()) {
              Py_DECREF(held);
              return;
            }
            try {
              const Inside inside;
              Py_DECREF(held);
            } catch (const InterpreterGone&) {
              // Its memory went with the interpreter.
            }
          }};
}

StoppedAtExit::StoppedAtExit(std::function<void()> stop) : number_(door().add(std::move(stop))) {}
StoppedAtExit::~StoppedAtExit() { door().remove(number_); }

}  // namespace ps::python
