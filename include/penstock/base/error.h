// Penstock errors. Each names what was asked, what was expected and what was given, and derives
// from the standard type that callers (and Python) already know how to handle.
#pragma once

#include <cstddef>
#include <exception>
#include <new>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>

namespace ps {

// An argument broke its contract. Thrown before anything was enqueued or allocated.
class InvalidArgument : public std::invalid_argument {
 public:
  InvalidArgument(std::string_view argument, std::string_view expected, std::string_view given);

  const std::string& argument() const noexcept { return argument_; }
  const std::string& expected() const noexcept { return expected_; }
  const std::string& given() const noexcept { return given_; }

 private:
  std::string argument_, expected_, given_;
};

// Memory of some kind ran out. The failed request left nothing allocated.
class OutOfMemory : public std::bad_alloc {
 public:
  // `place` says which memory ("device memory of cuda:0", "page-locked memory"); `why` what to do.
  OutOfMemory(std::string_view place, std::size_t requested, std::string_view why = {});

  const char* what() const noexcept override { return message_.c_str(); }
  std::size_t requested() const noexcept { return requested_; }

 private:
  std::string message_;
  std::size_t requested_;
};

// A fixed number of slots was in use and the caller had chosen not to wait.
class Exhausted : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// This machine, driver or build cannot do what was asked; the text says what to use instead.
class Unsupported : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// A device refused a call or a piece of enqueued work failed.
class DeviceError : public std::runtime_error {
 public:
  DeviceError(std::string_view device, std::string_view call, int code, std::string_view meaning);

  int code() const noexcept { return code_; }

 protected:
  DeviceError(const std::string& message, int code) : std::runtime_error(message), code_(code) {}

 private:
  int code_;
};

// The device cannot be used again in this process. Every later call reports the first cause.
class DeviceLost : public DeviceError {
 public:
  DeviceLost(std::string_view device, std::string_view first_cause, int code);
};

// A file or another system resource refused; carries errno.
class SystemError : public std::system_error {
 public:
  SystemError(int error_number, std::string_view action, std::string_view subject);
};

namespace detail {
// Out of line so that a check at a call site costs one compare and one cold call.
[[noreturn]] void throw_invalid(std::string_view argument, std::string_view expected,
                                std::string_view given);
}  // namespace detail

}  // namespace ps
