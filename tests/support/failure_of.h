// What a piece of code failed with, to be asked about.
#pragma once

#include <exception>
#include <functional>
#include <string>

#include "penstock/host/pipeline.h"

namespace ps::test {

// Nothing when it did not fail. The cause inside a PipelineError counts.
inline std::exception_ptr failure_of(const std::function<void()>& code) {
  try {
    code();
    return nullptr;
  } catch (const PipelineError& error) {
    return error.cause();
  } catch (...) {
    return std::current_exception();
  }
}

template <class Error>
bool is(const std::exception_ptr& failure) {
  if (!failure) return false;
  try {
    std::rethrow_exception(failure);
  } catch (const Error&) {
    return true;
  } catch (...) {
    return false;
  }
}

inline std::string text(const std::exception_ptr& failure) {
  if (!failure) return "no failure";
  try {
    std::rethrow_exception(failure);
  } catch (const std::exception& error) {
    return error.what();
  } catch (...) {
    return "not an exception of the standard";
  }
}

}  // namespace ps::test
