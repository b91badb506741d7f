#include "penstock/host/stage.h"

#include <cxxabi.h>
#include <fmt/format.h>

#include <cstdlib>
#include <utility>

#include "host/executor.h"
#include "penstock/base/error.h"

namespace ps {
namespace {

std::string text_of(const std::exception_ptr& cause) {
  try {
    std::rethrow_exception(cause);
  } catch (const std::exception& error) {
    return error.what();
  } catch (...) {
    return "an exception of an unknown type";
  }
}

std::string readable(const std::type_info& type) {
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> name(
      abi::__cxa_demangle(type.name(), nullptr, nullptr, &status), &std::free);
  return name ? name.get() : type.name();
}

}  // namespace

void detail::throw_payload_type(const std::type_info& expected, const std::type_info* given) {
  throw_invalid("payload", "an object of type " + readable(expected),
                given == nullptr ? "no payload" : "one of type " + readable(*given));
}

PipelineError::PipelineError(std::string_view stage, std::uint64_t item, std::exception_ptr cause)
    : std::runtime_error(fmt::format("stage '{}', item {}: {}", stage, item, text_of(cause))),
      stage_(stage),
      item_(item),
      cause_(std::move(cause)) {}

MemoryView Item::slot(RingId ring) const { return executor_->slot(stage_, index_, ring); }
const Stream& Item::stream() const { return executor_->stream(stage_); }
const Payload& Item::payload() const { return executor_->payload(index_); }
MemoryView Item::scratch(std::size_t bytes) { return scratch(bytes, StageId{stage_}); }
MemoryView Item::scratch(std::size_t bytes, StageId until) {
  return executor_->scratch(stage_, index_, bytes, until);
}
bool Item::stopping() const { return executor_->stopping(index_); }

void Completion::operator()(std::exception_ptr failure) const { ending_->tell(std::move(failure)); }

}  // namespace ps
