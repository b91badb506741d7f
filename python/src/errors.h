// Translates C++ exceptions to Python, and carries Python exceptions through C++.
#pragma once

#include <nanobind/nanobind.h>

#include <exception>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>

namespace ps::python {

namespace nb = nanobind;

// A Python exception inside C++ code, where it may be stored, copied and dropped on any thread.
class PythonFailure final : public std::runtime_error {
 public:
  // Takes the error that is set, and clears it. The lock is held.
  static PythonFailure take();

  PyObject* exception() const { return exception_.get(); }

 private:
  PythonFailure(const std::string& text, std::shared_ptr<PyObject> exception);
  std::shared_ptr<PyObject> exception_;
};

// Throws the exception of a pending signal, such as KeyboardInterrupt for Ctrl-C. Only the main
// thread receives them. Takes the GIL.
void throw_if_interrupted();

// A file error with its path, which OSError keeps separate from the message.
class FileFailure final : public std::runtime_error {
 public:
  FileFailure(int code, const std::string& text, std::string path);
  int code() const { return code_; }
  const std::string& path() const { return path_; }

 private:
  int code_;
  std::string path_;
};

// Adds the path to `failure` if it is a system error.
std::exception_ptr with_path(std::exception_ptr failure, const std::string& path);

// Runs `work`; system errors become FileFailure.
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
