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

  std::shared_ptr<FailureSink> sink;
  std::size_t stage;
  std::uint64_t item;

 private:
  FailureScope* outer_;
};

// `function`, with its exceptions going to the scope active now; unchanged when there is none.
std::function<void()> bind_failure(std::function<void()> function);

}  // namespace ps::detail
