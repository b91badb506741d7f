#include "penstock/host/pipeline.h"

#include <utility>

#include "host/backend.h"
#include "host/fork.h"
#include "host/pipeline_run.h"
#include "host/stage_graph.h"
#include "penstock/base/error.h"

namespace ps {

Pipeline::Pipeline(PipelineOptions options)
    : graph_(std::make_unique<detail::StageGraph>(
          detail::GraphOptions{.device = std::move(options.device),
                               .depth = options.depth,
                               .pool = std::move(options.pool),
                               .waiting = options.waiting})) {}
Pipeline::~Pipeline() = default;
Pipeline::Pipeline(Pipeline&&) noexcept = default;
Pipeline& Pipeline::operator=(Pipeline&&) noexcept = default;

RingId Pipeline::ring(std::string_view name, RingOptions options) {
  return graph_->add_ring(name, options);
}

StageId Pipeline::stage(std::string_view name, StageOptions options, StageFunction function) {
  return graph_->add_device_stage(name, std::move(options), std::move(function));
}

StageId Pipeline::host_stage(std::string_view name, HostStageOptions options,
                             StageFunction function) {
  return graph_->add_host_stage(name, options, std::move(function));
}

StageId Pipeline::async_stage(std::string_view name, HostStageOptions options,
                              AsyncFunction function) {
  return graph_->add_async_stage(name, options, std::move(function));
}

RunReport Pipeline::run(RunOptions options) {
  detail::refuse_after_fork();
  if (graph_->stages.empty()) detail::throw_invalid("pipeline", "at least one stage", "none");
  if (graph_->running) {
    detail::throw_invalid("pipeline", "one run at a time", "a run inside a run");
  }
  struct Running {
    explicit Running(bool& f) : flag(f) { flag = true; }
    ~Running() { flag = false; }
    bool& flag;
  } const running(graph_->running);
  const std::uint64_t before = graph_->options.device.allocations();
  graph_->prepare("Pipeline::run", options.recorder, options.after ? &*options.after : nullptr);
  const std::uint64_t prepared = graph_->options.device.allocations() - before;
  RunReport report = std::make_shared<detail::PipelineRun>(*graph_, options)->run();
  report.allocations += prepared;
  return report;
}

}  // namespace ps
