#include "penstock/host/pipeline.h"

#include <fmt/format.h>

#include <utility>

#include "host/backend.h"
#include "host/fork.h"
#include "host/pipeline_graph.h"
#include "host/pipeline_run.h"
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

}  // namespace

PipelineError::PipelineError(std::string_view stage, std::uint64_t item, std::exception_ptr cause)
    : std::runtime_error(fmt::format("stage '{}', item {}: {}", stage, item, text_of(cause))),
      stage_(stage),
      item_(item),
      cause_(std::move(cause)) {}

MemoryView Item::slot(RingId ring) const { return run_->slot(stage_, index_, ring); }
const Stream& Item::stream() const { return run_->stream(stage_); }
MemoryView Item::scratch(std::size_t bytes) { return scratch(bytes, StageId{stage_}); }
MemoryView Item::scratch(std::size_t bytes, StageId until) {
  return run_->scratch(stage_, index_, bytes, until);
}
bool Item::stopping() const { return run_->stopping(); }

void Completion::operator()(std::exception_ptr failure) const { ending_->tell(std::move(failure)); }

Pipeline::Pipeline(PipelineOptions options)
    : impl_(std::make_unique<detail::PipelineImpl>(std::move(options))) {}
Pipeline::~Pipeline() = default;
Pipeline::Pipeline(Pipeline&&) noexcept = default;
Pipeline& Pipeline::operator=(Pipeline&&) noexcept = default;

RingId Pipeline::ring(std::string_view name, RingOptions options) {
  return impl_->add_ring(name, options);
}

StageId Pipeline::stage(std::string_view name, StageOptions options, StageFunction function) {
  detail::Stage stage;
  stage.function = std::move(function);
  stage.engine = options.engine;
  stage.priority = options.priority;
  stage.stream = std::move(options.stream);
  return impl_->add_stage(name, std::move(stage), options.after, options.uses);
}

StageId Pipeline::host_stage(std::string_view name, HostStageOptions options,
                             StageFunction function) {
  AsyncFunction whole;
  if (function) {
    whole = [function = std::move(function)](Item& item, const Completion& done) {
      function(item);
      done();
    };
  }
  return async_stage(name, std::move(options), std::move(whole));
}

StageId Pipeline::async_stage(std::string_view name, HostStageOptions options,
                              AsyncFunction function) {
  detail::Stage stage;
  stage.async = std::move(function);
  stage.on_host = true;
  stage.engine = options.engine;
  return impl_->add_stage(name, std::move(stage), options.after, options.uses);
}

RunReport Pipeline::run(RunOptions options) {
  detail::refuse_after_fork();
  if (impl_->stages.empty()) detail::throw_invalid("pipeline", "at least one stage", "none");
  if (impl_->running) {
    detail::throw_invalid("pipeline", "one run at a time", "a run inside a run");
  }
  struct Running {
    explicit Running(bool& f) : flag(f) { flag = true; }
    ~Running() { flag = false; }
    bool& flag;
  } const running(impl_->running);
  const std::uint64_t before = impl_->options.device.allocations();
  impl_->prepare(options);
  const std::uint64_t prepared = impl_->options.device.allocations() - before;
  RunReport report = std::make_shared<detail::PipelineRun>(*impl_, options)->run();
  report.allocations += prepared;
  return report;
}

}  // namespace ps
