#include "support/kernel_page.h"

#include <cstdio>
#include <span>

#include "penstock/base/text_file.h"
#include "penstock/host/buffer.h"
#include "penstock/measure/page.h"
#include "penstock/measure/report.h"

namespace ladder {
namespace {

// The kernel's own run: one bar, with its roles inside.
ps::PageRun run_of(const TracedKernel& kernel, const ps::KernelTrace& trace,
                   std::size_t most_blocks) {
  ps::KernelRoles roles = trace.roles({.most_blocks = most_blocks});
  const ps::TimelineEntry bar{.engine = ps::Engine::compute,
                              .stage = kernel.name,
                              .begin_ns = roles.kernel.begin_ns,
                              .end_ns = roles.kernel.end_ns};
  return {.name = kernel.name,
          .entries = {bar},
          .kernels = {
              {.name = kernel.name, .stage = kernel.name, .item = 0, .roles = std::move(roles)}}};
}

}  // namespace

ps::KernelTrace run_traced(const TracedKernel& kernel, const ps::Stream& stream) {
  const auto multiprocessors =
      static_cast<unsigned>(stream.device().capabilities().multiprocessors);
  const ps::kit::TraceShape shape{.blocks = kernel.room.blocks * multiprocessors,
                                  .roles = static_cast<unsigned>(kernel.roles.size()),
                                  .capacity = kernel.room.capacity,
                                  .waits_for_ticks = !kernel.room.short_blocks};
  const std::size_t bytes = ps::kit::trace_bytes(shape);
  const ps::DeviceBuffer there(stream.device(), bytes);
  const ps::PinnedBuffer here(stream.device(), bytes);
  ps::fill(there.view(), 0, stream);
  kernel.launch({there.view().data, shape});
  ps::copy(here.view(), there.view(), stream);
  stream.synchronize();
  return {std::span(here.view().data, bytes), kernel.roles};
}

void write_kernel_page(const std::filesystem::path& folder, const TracedKernel& kernel,
                       const ps::Stream& stream) {
  const ps::KernelTrace trace = run_traced(kernel, stream);
  constexpr std::size_t most_for_people = 8;
  const ps::PageRun run = run_of(kernel, trace, most_for_people);
  const ps::PageRun all = run_of(kernel, trace, kernel.room.blocks);
  const std::string title = "Inside the kernel: " + kernel.name;
  const std::filesystem::path page = folder / (kernel.name + ".html");
  ps::Page shown = ps::make_page(title);
  shown.add(ps::PageTimelines{.title = "Roles of the blocks on one multiprocessor",
                              .note = describe(run.kernels.front().roles),
                              .runs = {run}});
  std::filesystem::create_directories(folder);
  ps::write_text(page, shown.html());
  ps::write_text(folder / (kernel.name + ".json"),
                 ps::trace_json(title, std::span(&all, 1), stream.device()));
  std::fprintf(stderr, "wrote %s\n", page.c_str());
}

}  // namespace ladder
