#include "experts/support/layers.h"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "measure/experts/flow.h"
#include "penstock/base/checked.h"
#include "penstock/base/units.h"

namespace ladder {
namespace {

using ps::Engine;

// T, d, n, E, K
std::vector<std::int64_t> shape_of(const Context& context, const LayersOptions& options) {
  if (!options.shape.empty()) return options.shape;
  if (!context.shape().empty()) return context.shape();
  if (context.quick()) return {64, 256, 128, 16, 4};
  if (context.on_gpu()) return {4096, 2048, 768, 128, 8};  // Qwen3-30B-A3B
  return {64, 1024, 512, 32, 4};
}

ps::ExpertOverlapOptions options_of(const Context& context, const LayersOptions& options) {
  const std::vector<std::int64_t> shape = shape_of(context, options);
  ps::ExpertOverlapOptions result{.device = context.device(),
                                  .shape = {.layers = 2,
                                            .experts = shape[3],
                                            .hidden = shape[1],
                                            .width = shape[2],
                                            .dtype = options.dtype},
                                  .choices = shape[4],
                                  .kernel = options.kernel,
                                  .sequence = shape[0],
                                  .rounding = options.rounding,
                                  .stop = context.stop()};
  result.cache = static_cast<std::size_t>(shape[3]);  // half of the experts, for the cache's rung
  return result;
}

}  // namespace

Layers::Layers(Context& context, const LayersOptions& options)
    : context_(context),
      work_(options_of(context, options)),
      stream_(context.device()),
      slots_(context.device(), 2 * work_.block_bytes()),
      wanted_(reference()) {
  if (!context.facts().empty()) return;
  const ps::ExpertShape& s = work_.shape();
  context.add_fact({"expert_bytes",
                    fmt::format("{} layers of {} experts of {} x {}, {} each", s.layers, s.experts,
                                s.hidden, s.width, ps::format_bytes(block_bytes())),
                    static_cast<double>(block_bytes())});
  const double upload = context.best_seconds([&] { upload_all(); });
  const double compute = context.best_seconds([&] { compute_all(); });
  context.add_fact({"upload_alone_seconds",
                    fmt::format("loading all {} experts alone: {}", experts().size(),
                                ps::format_seconds(upload)),
                    upload});
  context.add_fact({"compute_alone_seconds",
                    fmt::format("computing them alone: {}", ps::format_seconds(compute)), compute});
}

void Layers::compute(const Expert& expert, ps::MemoryView slot, const ps::Stream& stream) const {
  if (expert.first) work_.plan(expert.layer, stream);
  work_.compute(expert, slot, stream);
  if (expert.last) work_.combine(expert.layer, stream);
}

void Layers::upload_all() const {
  std::size_t next = 0;
  for (const Expert& expert : experts()) {
    ps::copy(slots_.view().sub(next++ % 2 * block_bytes(), block_bytes()), weights(expert),
             stream_);
  }
  stream_.synchronize();
}

void Layers::compute_all() const {
  std::size_t next = 0;
  for (const Expert& expert : experts()) {
    compute(expert, work_.resident(next++ % work_.resident()), stream_);
  }
  stream_.synchronize();
}

// ps::moe() with all weights of a layer at once.
std::vector<std::byte> Layers::reference() const {
  const auto count = static_cast<std::size_t>(work_.shape().experts);
  const ps::DeviceBuffer all(context_.device(), count * block_bytes());
  work_.poison(stream_);
  for (std::int64_t layer = 0; layer < work_.shape().layers; ++layer) {
    for (std::size_t e = 0; e < count; ++e) {
      const Expert expert{.layer = layer, .expert = static_cast<std::int64_t>(e)};
      ps::copy(all.view().sub(e * block_bytes(), block_bytes()), weights(expert), stream_);
    }
    ps::MoeOptions call = work_.call(layer);
    ps::ExpertStore::set_weights(work_.shape(), all.view(), work_.shape().experts, call);
    ps::moe(call, stream_);
    stream_.synchronize();
  }
  return work_.results(stream_);
}

void Layers::check(const std::string& label, const std::function<void()>& run) const {
  work_.poison(stream_);
  run();
  if (work_.results(stream_) != wanted_) {
    throw std::runtime_error(label + ": the result differs from that of ps::moe()");
  }
}

Row Layers::time(std::string label, const std::function<void()>& run) {
  check(label, run);
  return {.label = std::move(label), .work = "experts", .seconds = context_.median_seconds(run)};
}

Row Layers::measure(std::string label, const std::function<void(Trace&)>& run,
                    const std::function<void()>& upload) {
  ps::Floor upload_floor;
  const auto pass = [&] {
    upload_floor.time([&] { upload ? upload() : upload_all(); });
    compute_floor_.time([&] { compute_all(); });
  };
  Trace off;
  pass();
  Row row = time(std::move(label), [&] { run(off); });
  pass();
  pass();

  ps::Timeline timeline;
  Trace on(context_.device(), timeline);
  run(on);
  on.finish();
  row.gaps = timeline.gaps(Engine::upload);
  const double load = upload_floor.seconds(), compute = compute_floor_.seconds();
  const double least = std::min(load, compute) / static_cast<double>(experts().size());
  set_overlap(row, {.sequential = load + compute,
                    .floor = std::max(load, compute),
                    .ideal = std::max(load, compute) + least});
  return row;
}

Row Layers::measure_pipeline(std::string label, std::size_t cached) {
  ps::detail::ExpertFlow flow(work_, {.cache = cached});
  if (!context_.on_gpu()) {
    Row row = time(std::move(label), [&] { flow.run(nullptr, context_.stop()); });
    row.note = "on the CPU device nothing is loaded";
    return row;
  }
  ps::detail::ExpertFlow loads(work_, {.cache = cached, .compute = false});
  return measure(
      std::move(label), [&](Trace& trace) { flow.run(trace.recorder(), context_.stop()); },
      [&] { loads.run(nullptr, context_.stop()); });
}

std::int64_t Layers::rows() const {
  std::int64_t sum = 0;
  for (const Expert& expert : experts()) sum += expert.rows;
  return sum;
}

std::int64_t Layers::padded_rows(std::int64_t tile) const {
  std::int64_t sum = 0;
  for (const Expert& expert : experts()) {
    sum += ps::ceil_div(expert.rows, tile) * tile;
  }
  return sum;
}

}  // namespace ladder
