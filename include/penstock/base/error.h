// Penstock errors. Messages name the argument, what was expected and what was given. Every class
// derives from the standard exception that fits.
#pragma once

#include <cstddef>
#include <exception>
#include <new>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>

namespace ps {

// An argument is not as documented. Thrown before anything is enqueued or allocated.
class InvalidArgument : public std::invalid_argument {
 public:
  InvalidArgument(std::string_view argument, std::string_view expected, std::string_view given);

  const std::string& argument() const noexcept { return argument_; }
  const std::string& expected() const noexcept { return expected_; }
  const std::string& given() const noexcept { return given_; }

 private:
  std::string argument_, expected_, given_;
};

// Memory ran out. The failed call leaves nothing allocated.
class OutOfMemory : public std::bad_alloc {
 public:
  // `place`: which memory ("device memory of cuda:0"). `requested`: bytes. `why`: the cause, or
  // what to do.
  OutOfMemory(std::string_view place, std::size_t requested, std::string_view why = {});

  const char* what() const noexcept override { return message_.c_str(); }
  std::size_t requested() const noexcept { return requested_; }  // bytes

 private:
  std::string message_;
  std::size_t requested_;
};

// All slots are in use, and the caller chose not to wait.
class Exhausted : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// The work was cancelled before it was complete.
class Cancelled : public std::runtime_error {
 public:
  Cancelled() : std::runtime_error("cancelled") {}
  using std::runtime_error::runtime_error;
};

// This machine, driver or build does not support the call; the message says what to use instead.
class Unsupported : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// A device call failed, or work enqueued earlier did.
class DeviceError : public std::runtime_error {
 public:
  DeviceError(std::string_view device, std::string_view call, int code, std::string_view meaning);

  int code() const noexcept { return code_; }  // the cudaError_t

 protected:
  DeviceError(const std::string& message, int code) : std::runtime_error(message), code_(code) {}

 private:
  int code_;
};

// The device cannot be used again in this process. Every later call throws this, with the first
// cause.
class DeviceLost : public DeviceError {
 public:
  DeviceLost(std::string_view device, std::string_view first_cause, int code);
};

// A system call failed, for a file or another resource; code() holds errno.
class SystemError : public std::system_error {
 public:
  SystemError(int error_number, std::string_view action, std::string_view subject);
};

namespace detail {
// Out of line, so that a check costs its caller little code.
[[noreturn]] void throw_invalid(std::string_view argument, std::string_view expected,
                                std::string_view given);
}  // namespace detail

}  // namespace ps
