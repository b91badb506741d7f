// Reads the timelines of a document: the intervals of engines, and of the roles inside kernels.
#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "measure/page_sections.h"
#include "trace/kernel_bar.h"

namespace ps::detail {
namespace {

// No run lasts this long, and differences of such times do not overflow.
constexpr std::int64_t furthest = std::int64_t{1} << 60;
constexpr std::uint64_t any = std::numeric_limits<std::uint64_t>::max();
constexpr std::uint64_t any_unsigned = std::numeric_limits<unsigned>::max();

Span span_of(const Reading& begin, const Reading& end) {
  const Span span{begin.integer(), end.integer()};
  if (span.begin_ns < -furthest || span.begin_ns > furthest)
    begin.refuse("nanoseconds, between -2^60 and 2^60");
  if (span.end_ns < span.begin_ns || span.end_ns > furthest) {
    end.refuse("nanoseconds, not before the begin and at most 2^60");
  }
  return span;
}

TimelineEntry entry_of(const Reading& row) {
  const std::vector<Reading> cells = row.items();
  if (cells.size() != 5) row.refuse("[engine, stage, item, begin, end]");
  const auto engine = engine_named(cells[0].text());
  if (!engine)
    cells[0].refuse(
        R"(an engine: "disk", "host", "upload", "download", "device copy" or "compute")");
  const std::uint64_t item = cells[2].count(0, any);
  const Span span = span_of(cells[3], cells[4]);
  return {.engine = *engine,
          .stage = cells[1].text(),
          .item = item,
          .begin_ns = span.begin_ns,
          .end_ns = span.end_ns};
}

RoleSpan role_span_of(const Reading& row, std::size_t roles) {
  const std::vector<Reading> cells = row.items();
  if (cells.size() != 6) row.refuse("[block, sm, role, tile, begin, end]");
  const Span span = span_of(cells[4], cells[5]);
  return {.block = static_cast<unsigned>(cells[0].count(0, any_unsigned)),
          .sm = static_cast<unsigned>(cells[1].count(0, any_unsigned)),
          .role = static_cast<unsigned>(cells[2].count(0, roles - 1)),
          .tile = cells[3].count(0, any),
          .begin_ns = span.begin_ns,
          .end_ns = span.end_ns};
}

double not_negative(const Reading& value) {
  if (value.number() < 0) value.refuse("a number, at least 0");
  return value.number();
}

PageKernel kernel_of(const Reading& given) {
  given.only({"run", "name", "stage", "item", "roles", "begin_ns", "end_ns", "error", "lost",
              "columns", "spans"});
  PageKernel kernel{.name = given["name"].text(),
                    .stage = given["stage"].text(),
                    .item = given["item"].count(0, any)};
  KernelRoles& roles = kernel.roles;
  for (const Reading& name : given["roles"].items()) roles.names.push_back(name.text());
  if (roles.names.empty()) given["roles"].refuse("at least one role name");
  roles.kernel = span_of(given["begin_ns"], given["end_ns"]);
  const Reading error = given["error"];
  error.only({"max_ns", "median_ns", "place_ns"});
  roles.error = {.max_ns = not_negative(error["max_ns"]),
                 .median_ns = not_negative(error["median_ns"])};
  roles.place_ns = not_negative(error["place_ns"]);
  roles.lost = given["lost"].count(0, any);
  for (const Reading& row : given["spans"].items()) {
    roles.spans.push_back(role_span_of(row, roles.names.size()));
  }
  return kernel;
}

void add_kernel(std::vector<PageRun>& runs, const Reading& given) {
  PageKernel kernel = kernel_of(given);
  const auto run = std::ranges::find(runs, given["run"].text(), &PageRun::name);
  if (run == runs.end()) given["run"].refuse("the name of one of the timelines");
  if (!kernel_bar(run->entries, kernel)) {
    given["item"].refuse(
        fmt::format("an item with an interval of stage \"{}\" on compute", kernel.stage));
  }
  run->kernels.push_back(std::move(kernel));
}

void set_lost_records(std::vector<PageRun>& runs, const Reading& lost) {
  for (const auto& [name, records] : lost.fields()) {
    const auto run = std::ranges::find(runs, name, &PageRun::name);
    if (run == runs.end()) records.refuse("the name of one of the timelines as its key");
    run->lost_records = records.count(1, any);
  }
}

}  // namespace

std::vector<PageRun> timeline_runs(const Reading& report) {
  std::vector<PageRun> runs;
  if (const auto timelines = report.find("timelines")) {
    for (const auto& [name, rows] : timelines->fields()) {
      if (name == "columns") continue;
      PageRun& run = runs.emplace_back(PageRun{.name = name});
      for (const Reading& row : rows.items()) run.entries.push_back(entry_of(row));
    }
    if (const auto lost = report.find("lost_records")) set_lost_records(runs, *lost);
  }
  if (const auto kernels = report.find("kernels")) {
    for (const Reading& kernel : kernels->items()) add_kernel(runs, kernel);
  }
  return runs;
}

PageSections trace_sections(const Reading& trace) {
  trace["timelines"].fields();  // throws if there are none
  PageFacts facts{.title = "Where it ran"};
  facts.rows = {{"machine", trace["device"]["model"].text(), trace["device"]["name"].text()},
                {"made by", fmt::format("penstock {}", trace["version"].text()),
                 fmt::format("commit {}, {}", trace["commit"].text(), trace["date"].text())}};
  PageTimelines timelines{.title = trace["name"].text(), .runs = timeline_runs(trace)};
  if (const auto note = trace.find("note")) timelines.note = note->text();
  return {timelines, facts};
}

}  // namespace ps::detail
