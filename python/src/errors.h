// C++ exceptions as Python's, and Python's carried through C++.
#pragma once

#include <nanobind/nanobind.h>

#include <exception>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>

namespace ps::python {

namespace nb = nanobind;

// A Python exception on its way through C++, where it may be kept, copied and dropped anywhere.
class PythonFailure final : public std::runtime_error {
 public:
  // Takes the error that is set, and clears it. The lock is held.
  static PythonFailure take();

  PyObject* exception() const { return exception_.get(); }

 private:
  PythonFailure(const std::string& text, std::shared_ptr<PyObject> exception);
  std::shared_ptr<PyObject> exception_;
};

// Throws the exception of a signal that came, such as Ctrl-C's KeyboardInterrupt. The main thread
// alone hears of them. Takes the lock.
void throw_if_interrupted();

// A file that refused, with its path, which Python's OSError keeps apart from the text.
class FileFailure final : public std::runtime_error {
 public:
  FileFailure(int code, const std::string& text, std::string path);
  int code() const { return code_; }
  const std::string& path() const { return path_; }

 private:
  int code_;
  std::string path_;
};

// `failure` with the path, where it is the system's; else as it is.
std::exception_ptr with_path(std::exception_ptr failure, const std::string& path);

// Runs `work`; what the system refuses becomes a FileFailure.
template <class Work>
auto naming(const std::string& path, const Work& work) {
  try {
    return work();
  } catch (...) {
    std::rethrow_exception(with_path(std::current_exception(), path));
  }
}

void bind_errors();

}  // namespace ps::python
