// Layer-wise pipelining: the layers of a network are split into groups, each group has a stream,
// and micro-batches flow through. Batches differ in size, so their activations are scratch from the
// pool, freed when the next group has read them. It pays where one kernel leaves multiprocessors
// free; where each kernel fills the GPU only its ends leave room for another.
#include <algorithm>
#include <array>
#include <iterator>

#include "penstock/base/units.h"
#include "penstock/host/pipeline.h"
#include "penstock/ops/iterate.h"
#include "support/context.h"

namespace {

constexpr std::size_t groups = 4;
constexpr int layers_per_group = 2;
constexpr std::size_t batches = 24;

struct Network {
  ladder::Context& context;
  std::size_t largest;  // bytes of a micro-batch
  int blocks;           // of one kernel; 0: as many as the GPU takes
  // Shared by the layers: many more, and every value would end at the fixed point.
  int rounds = std::max(1, context.rounds() / (layers_per_group * static_cast<int>(groups)));
  ps::DeviceBuffer resident{context.device(), batches * largest};

  // Micro-batches of 1/4, 2/4, 3/4 and 4/4 of the largest.
  std::size_t bytes(std::size_t batch) const { return largest / 4 * (1 + batch % 4); }
  ps::MemoryView of(ps::MemoryView whole, std::size_t batch) const {
    return whole.sub(batch * largest, bytes(batch));
  }
  ps::MemoryView in(std::size_t batch) const { return of(resident.view(), batch); }
  ps::MemoryView out(std::size_t batch) const { return of(context.data().result(), batch); }

  // One group of layers: the first from `in` to `out`, the others within `out`.
  void run_group(ps::MemoryView in, ps::MemoryView out, const ps::Stream& stream) const {
    for (int layer = 0; layer < layers_per_group; ++layer) {
      ps::iterate({.in = ps::floats(layer == 0 ? in : out),
                   .out = ps::floats(out),
                   .rounds = rounds,
                   .blocks = blocks},
                  stream);
    }
  }

  // The same arithmetic in one launch: what the whole GPU needs for it, without ends and gaps.
  void run_at_once(const ps::Stream& stream) const {
    std::size_t all = 0;
    for (std::size_t batch = 0; batch < batches; ++batch) all += bytes(batch);
    ps::iterate({.in = ps::floats(resident.view().sub(0, all)),
                 .out = ps::floats(context.data().result().sub(0, all)),
                 .rounds = rounds * layers_per_group * static_cast<int>(groups)},
                stream);
    stream.synchronize();
  }

  void upload(const ps::Stream& stream) const {
    ps::copy(resident.view(), context.data().input().sub(0, resident.bytes()), stream);
    stream.synchronize();
  }

  void check(const ps::Stream& stream) const {
    const int all_rounds = rounds * layers_per_group * static_cast<int>(groups);
    for (std::size_t batch = 0; batch < batches; ++batch) {
      const ps::MemoryView home = of(context.data().output(), batch);
      ps::copy(home, out(batch), stream);
      stream.synchronize();
      ps::check_iterated(home, of(context.data().input(), batch), all_rounds, 64);
    }
  }
};

// All groups in one stream, batch after batch.
void run_in_one_stream(const Network& network, const ps::Stream& stream, const ps::Pool& pool) {
  for (std::size_t batch = 0; batch < batches; ++batch) {
    ps::MemoryView in = network.in(batch), scratch{};
    for (std::size_t group = 0; group < groups; ++group) {
      const bool last = group + 1 == groups;
      const ps::MemoryView out = last ? network.out(batch) : pool.allocate(in.bytes, stream);
      network.run_group(in, out, stream);
      pool.free(scratch, stream);
      in = out;
      scratch = last ? ps::MemoryView{} : out;
    }
  }
  stream.synchronize();
}

// A stage, and so a stream, for each group.
ps::Pipeline make_pipeline(const Network& network) {
  ps::Pipeline pipeline({.device = network.context.device()});
  struct Flow {
    std::array<ps::StageId, groups> stage;
    std::array<std::array<ps::MemoryView, groups>, batches> activations;
  };
  const auto flow = std::make_shared<Flow>();

  for (std::size_t group = 0; group < groups; ++group) {
    ps::StageOptions options;
    if (group > 0) options.after = {flow->stage[group - 1]};
    const auto run = [&network, flow, group](ps::Item& item) {
      const std::size_t batch = item.index();
      auto& activations = flow->activations[batch];
      const ps::MemoryView in = group == 0 ? network.in(batch) : activations[group - 1];
      activations[group] =
          group + 1 == groups ? network.out(batch) : item.scratch(in.bytes, flow->stage[group + 1]);
      network.run_group(in, activations[group], item.stream());
    };
    flow->stage[group] = pipeline.stage("group " + std::to_string(group), options, run);
  }
  return pipeline;
}

// `beside`: how many kernels find room at once.
std::vector<ladder::Row> measure(const Network& network, const std::string& kind,
                                 std::size_t beside) {
  ladder::Context& context = network.context;
  const ps::Stream stream(context.device());
  const ps::Pool pool(context.device());
  ps::Pipeline pipeline = make_pipeline(network);
  network.upload(stream);

  const auto row = [&](const std::string& label, const auto& run) {
    context.data().poison();
    run();
    network.check(stream);
    return ladder::Row{.label = kind + ", " + label,
                       .work = "layers, " + kind,
                       .seconds = context.median_seconds(run)};
  };
  ladder::Row one = row("one stream", [&] { run_in_one_stream(network, stream, pool); });
  ladder::Row several = row("one stream per group", [&] { pipeline.run({.items = batches}); });

  const double floor = beside > 1 ? context.best_seconds([&] {
    run_in_one_stream(network, stream, pool);
  }) / static_cast<double>(std::min(groups, beside))
                                  : context.best_seconds([&] { network.run_at_once(stream); });
  const double fill = static_cast<double>(batches + groups - 1) / static_cast<double>(batches);
  ladder::set_overlap(several, {.sequential = one.seconds, .floor = floor, .ideal = floor * fill});
  return {one, several};
}

std::vector<ladder::Row> run(ladder::Context& context) {
  const auto units = context.device().capabilities().multiprocessors;
  const std::size_t room = context.bytes() / batches / ps::KiB * ps::KiB;
  if (!context.on_gpu()) {
    const Network network{.context = context, .largest = std::min(room, ps::MiB), .blocks = 0};
    return measure(network, "a core per kernel", static_cast<std::size_t>(units));
  }
  const int few = std::max(1, units / 8);
  const Network small{.context = context, .largest = std::min(room, 8 * ps::MiB), .blocks = few};
  const Network full{.context = context, .largest = std::min(room, 16 * ps::MiB), .blocks = 0};
  std::vector<ladder::Row> rows = measure(small, std::to_string(few) + " blocks per kernel", 8);
  std::ranges::copy(measure(full, "kernels that fill the GPU", 1), std::back_inserter(rows));
  return rows;
}

PENSTOCK_RUNG("layers", "Groups of layers on several streams gain if kernels leave SMs free.", run);

}  // namespace
