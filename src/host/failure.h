// Where the exception of a host function enqueued by a pipeline stage goes. The pipeline sets the
// scope around a stage function; Stream::call and notify carry it along to the library's thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>

namespace ps::detail {

class FailureSink {
 public:
  virtual ~FailureSink() = default;
  virtual void fail(std::size_t stage, std::uint64_t item, std::exception_ptr cause) noexcept = 0;
};

struct FailureScope {
  FailureScope(std::shared_ptr<FailureSink> sink, std::size_t stage, std::uint64_t item);
  ~FailureScope();
  FailureScope(const FailureScope&) = delete;
  FailureScope& operator=(const FailureScope&) = delete;
  const FailureScope* outer() const { return outer_; }

  std::shared_ptr<FailureSink> sink;
  std::size_t stage;
  std::uint64_t item;

 private:
  FailureScope* outer_;
};

// Whether this thread is inside a scope of `sink`.
bool inside(const FailureSink& sink) noexcept;

// A host function in a stream. `not_run` is null, or says why the function cannot be run: its
// place in the stream was not reached.
using StreamFunction = std::function<void(const std::exception_ptr& not_run)>;

// `function`, with its exceptions going to the scope active now; without one, to the caller.
StreamFunction bind_failure(std::function<void()> function);

}  // namespace ps::detail
