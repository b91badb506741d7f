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

TraceMemory::TraceMemory(const ps::Stream& stream, std::vector<std::string> roles,
                         const TraceRoom& room)
    : roles_(std::move(roles)),
      shape_{.blocks = room.blocks *
                       static_cast<unsigned>(stream.device().capabilities().multiprocessors),
             .roles = static_cast<unsigned>(roles_.size()),
             .capacity = room.capacity,
             .waits_for_ticks = !room.short_blocks},
      there_(stream.device(), ps::kit::trace_bytes(shape_)) {
  ps::fill(there_.view(), 0, stream);
}

ps::kit::TraceBuffer<true> TraceMemory::buffer() const { return {there_.view().data, shape_}; }

ps::KernelTrace TraceMemory::read(const ps::Stream& stream) const {
  const ps::PinnedBuffer here(stream.device(), there_.bytes());
  ps::copy(here.view(), there_.view(), stream);
  stream.synchronize();
  return {std::span(here.view().data, here.bytes()), roles_};
}

ps::KernelTrace run_traced(const TracedKernel& kernel, const ps::Stream& stream) {
  const TraceMemory memory(stream, kernel.roles, kernel.room);
  kernel.launch(memory.buffer());
  return memory.read(stream);
}

void write_kernel_page(const std::filesystem::path& folder, const TracedKernel& kernel,
                       const ps::Stream& stream) {
  const ps::KernelTrace trace = run_traced(kernel, stream);
  constexpr std::size_t most_for_people = 8;
  write_trace(folder, "Inside the kernel: " + kernel.name, run_of(kernel, trace, most_for_people),
              run_of(kernel, trace, kernel.room.blocks), stream.device());
}

void write_trace(const std::filesystem::path& folder, const std::string& title,
                 const ps::PageRun& run, const ps::PageRun& kept, const ps::Device& device) {
  const std::filesystem::path page = folder / (run.name + ".html");
  ps::Page shown = ps::make_page(title);
  shown.add(ps::PageTimelines{.title = "Roles of the blocks on one multiprocessor",
                              .note = describe(run.kernels.front().roles),
                              .runs = {run}});
  std::filesystem::create_directories(folder);
  ps::write_text(page, shown.html());
  ps::write_text(folder / (run.name + ".json"), ps::trace_json(title, std::span(&kept, 1), device));
  std::fprintf(stderr, "wrote %s\n", page.c_str());
}

}  // namespace ladder
