// Both levels at once. Outside, streams: while one chunk is computed on, the next is uploaded and
// the one before is downloaded. Inside, roles: while one tile is computed on, the next is loaded
// and the one before is stored. The data begins and ends in the host's memory, and the arithmetic
// is balanced against the upload, so that the link both ways is the limit. The outer level is worth
// nearly all of it here; the inner one decides how much of the GPU the kernel needs to keep up.
#include <algorithm>
#include <functional>

#include "copy/support/roles.cuh"
#include "copy/support/rung.h"
#include "penstock/host/pipeline.h"
#include "penstock/ops/iterate.h"
#include "penstock/trace/timeline.h"
#include "support/context.h"
#include "support/kernel_page.h"

namespace {

using namespace ladder::copy;

constexpr RolesShape shape{.tile_bytes = 32 * 1024, .by_counter = true};
constexpr unsigned depth = 6;

Kernel kernel_inside() { return roles<RolesConfig<depth>>("roles inside", shape, {}); }

// Computes on one chunk, from one place of the device's memory to another.
using Compute =
    std::function<void(ps::MemoryView out, ps::MemoryView in, const ps::Stream& stream)>;

ladder::Row one_stream(ladder::Context& context, std::string label, const Compute& compute) {
  const ps::Stream stream(context.device());
  const ps::DeviceBuffer in(context.device(), context.chunk());
  return context.measure(std::move(label), ps::Ways::three, [&](ladder::Trace& trace) {
    for (std::size_t i = 0; i < context.chunks(); ++i) {
      const ps::MemoryView from = context.input(i), to = context.output(i);
      const ps::MemoryView work = in.view().sub(0, from.bytes), result = context.result(i);
      trace(ps::Engine::upload, i, stream, [&] { ps::copy(work, from, stream); });
      trace(ps::Engine::compute, i, stream, [&] { compute(result, work, stream); });
      trace(ps::Engine::download, i, stream, [&] { ps::copy(to, result, stream); });
    }
    stream.synchronize();
  });
}

// Fills an empty pipeline. `compute` is called for one chunk after the other.
void add_stages(ps::Pipeline& pipeline, ladder::Context& context, const Compute& compute) {
  const auto in = pipeline.ring("in", {.memory = ps::Memory::device, .bytes = context.chunk()});
  const auto out = pipeline.ring("out", {.memory = ps::Memory::device, .bytes = context.chunk()});
  const auto upload = pipeline.stage(
      "upload", {.uses = {in}, .engine = ps::Engine::upload}, [&, in](ps::Item& item) {
        const ps::MemoryView from = context.input(item.index());
        ps::copy(item.slot(in).sub(0, from.bytes), from, item.stream());
      });
  const auto kernel = pipeline.stage(
      "compute", {.after = {upload}, .uses = {in, out}, .engine = ps::Engine::compute},
      [&, in, out](ps::Item& item) {
        const std::size_t bytes = context.input(item.index()).bytes;
        compute(item.slot(out).sub(0, bytes), item.slot(in).sub(0, bytes), item.stream());
      });
  pipeline.stage("download", {.after = {kernel}, .uses = {out}, .engine = ps::Engine::download},
                 [&, out](ps::Item& item) {
                   const ps::MemoryView to = context.output(item.index());
                   ps::copy(to, item.slot(out).sub(0, to.bytes), item.stream());
                 });
}

ladder::Row three_streams(ladder::Context& context, std::string label, const Compute& compute) {
  ps::Pipeline pipeline({.device = context.device(), .depth = 4});
  add_stages(pipeline, context, compute);
  return context.measure(std::move(label), ps::Ways::three, [&](ladder::Trace& trace) {
    pipeline.run({.items = context.chunks(), .recorder = trace.recorder()});
  });
}

// A page of one run more, in which the kernel of the chunk in the middle is traced.
void write_page(ladder::Context& context) {
  const ps::Stream stream(context.device());
  const ladder::TraceMemory memory(stream, role_names(), {.blocks = 1});
  stream.synchronize();
  const Kernel plain = kernel_inside();
  const Kernel traced =
      roles<RolesConfig<depth, RolesConfig<depth>::compute_warps, Side::both, true>>(
          "traced", shape, {}, memory.buffer());
  const std::size_t middle = context.chunks() / 2;
  std::size_t chunk = 0;
  const Compute compute = [&](ps::MemoryView out, ps::MemoryView in, const ps::Stream& on) {
    enqueue(chunk++ == middle ? traced : plain,
            {.in = ps::floats(in), .out = ps::floats(out), .rounds = context.rounds()}, on);
  };
  ps::Pipeline pipeline({.device = context.device(), .depth = 4});
  add_stages(pipeline, context, compute);
  ps::Timeline timeline;
  pipeline.run({.items = context.chunks(), .recorder = &timeline});

  ps::PageRun run{.name = "copy_two_level", .entries = timeline.entries()};
  const auto bar = std::ranges::find_if(run.entries, [&](const ps::TimelineEntry& entry) {
    return entry.engine == ps::Engine::compute && entry.item == middle;
  });
  run.kernels.push_back(
      {.name = "roles inside",
       .stage = bar->stage,
       .item = middle,
       .roles = memory.read(stream).roles({.inside = ps::Span{bar->begin_ns, bar->end_ns}})});
  ladder::write_trace(context.trace(), "Streams outside, roles inside", run, run, context.device());
}

std::vector<ladder::Row> run(ladder::Context& context) {
  const Kernel kernel = kernel_inside();
  if (const std::string why = why_not(kernel, context.device()); !why.empty()) {
    return ladder::not_here(why);
  }
  const Compute plain = [&](ps::MemoryView out, ps::MemoryView in, const ps::Stream& stream) {
    ps::iterate({.in = ps::floats(in), .out = ps::floats(out), .rounds = context.rounds()}, stream);
  };
  const Compute with_roles = [&](ps::MemoryView out, ps::MemoryView in, const ps::Stream& stream) {
    enqueue(kernel, {.in = ps::floats(in), .out = ps::floats(out), .rounds = context.rounds()},
            stream);
  };
  std::vector<ladder::Row> rows{one_stream(context, "one stream, plain kernel", plain),
                                one_stream(context, "one stream, roles inside", with_roles),
                                three_streams(context, "three streams, plain kernel", plain),
                                three_streams(context, "three streams, roles inside", with_roles)};
  rows[1].use = rows[3].use = kernel.use();
  for (ladder::Row& row : rows) {
    if (row.hidden) row.note += "hidden " + std::to_string(*row.hidden).substr(0, 5);
  }
  if (!context.trace().empty()) write_page(context);
  return rows;
}

const ladder::Instructions machine{.holds = {"UBLKCP.S.G", "UBLKCP.G.S", "SYNCS"}};
PENSTOCK_KERNEL_RUNG("two-level",
                     "Copies on other streams overlap a kernel that overlaps its own loads.",
                     machine, run);

}  // namespace
