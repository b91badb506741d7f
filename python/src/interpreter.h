// How threads of the library enter the Python interpreter, and what happens when it shuts down.
#pragma once

#include <Python.h>

#include <cstdint>
#include <exception>
#include <functional>
#include <memory>

namespace ps::python {

// Call once, when the module is loaded. At exit, before the interpreter kills threads that wait for
// the GIL, this stops all runs and refuses the GIL to threads of the library.
void watch_exit();

struct InterpreterGone final : std::exception {
  const char* what() const noexcept override { return "the Python interpreter is shutting down"; }
};

// Holds the GIL, on any thread. A thread of the library keeps its Python state until it ends, so
// that entering again is cheap and thread-local objects persist. Throws InterpreterGone once the
// interpreter is shutting down.
class Inside {
 public:
  Inside();
  ~Inside();
  Inside(const Inside&) = delete;
  Inside& operator=(const Inside&) = delete;

 private:
  PyGILState_STATE state_;
};

// Releases the GIL during its lifetime. A thread that the interpreter would kill when it reacquires
// the GIL sleeps instead until the process ends: killing it would unwind C++ frames that cannot be
// unwound.
class Outside {
 public:
  Outside() : state_(PyEval_SaveThread()) {}
  ~Outside();
  Outside(const Outside&) = delete;
  Outside& operator=(const Outside&) = delete;

 private:
  PyThreadState* state_;
};

template <class Work>
auto without_lock(const Work& work) {
  const Outside outside;
  return work();
}

// function(argument), or null with a Python error set. The GIL is held.
PyObject* call(PyObject* function, PyObject* argument);

// A reference to a Python object that may be dropped on any thread, at any time.
std::shared_ptr<PyObject> share(PyObject* object);

// While this lives, `stop` is called when the interpreter exits. It must not touch Python.
class StoppedAtExit {
 public:
  explicit StoppedAtExit(std::function<void()> stop);
  ~StoppedAtExit();
  StoppedAtExit(const StoppedAtExit&) = delete;
  StoppedAtExit& operator=(const StoppedAtExit&) = delete;

 private:
  std::uint64_t number_;
};

}  // namespace ps::python
