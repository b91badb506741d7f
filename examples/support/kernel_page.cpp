#include "support/kernel_page.h"

#include <span>

#include "penstock/base/text_file.h"
#include "penstock/host/buffer.h"
#include "penstock/measure/page.h"
#include "penstock/measure/report.h"
#include "penstock/trace/kernel_trace.h"

namespace ladder {
namespace {

// The kernel's own run: one bar, with its roles inside.
ps::PageRun run_of(const TracedKernel& kernel, const ps::KernelTrace& trace) {
  ps::KernelRoles roles = trace.roles();
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

std::filesystem::path write_kernel_page(const std::filesystem::path& folder,
                                        const TracedKernel& kernel, const ps::Stream& stream) {
  const std::size_t bytes = ps::kit::trace_bytes(kernel.shape);
  const ps::DeviceBuffer there(stream.device(), bytes);
  const ps::PinnedBuffer here(stream.device(), bytes);
  ps::fill(there.view(), 0, stream);
  kernel.launch(there.view().data);
  ps::copy(here.view(), there.view(), stream);
  stream.synchronize();

  const ps::KernelTrace trace(std::span(here.view().data, bytes), kernel.roles);
  const ps::PageRun run = run_of(kernel, trace);
  const std::string title = "Inside the kernel: " + kernel.name;
  const std::filesystem::path page = folder / (kernel.name + ".html");
  ps::Page shown = ps::make_page(title);
  shown.add(ps::PageTimelines{.title = "Roles of the blocks on one multiprocessor",
                              .note = describe(run.kernels.front().roles),
                              .runs = {run}});
  std::filesystem::create_directories(folder);
  ps::write_text(page, shown.html());
  ps::write_text(folder / (kernel.name + ".json"),
                 ps::trace_json(title, std::span(&run, 1), stream.device()));
  return page;
}

}  // namespace ladder
