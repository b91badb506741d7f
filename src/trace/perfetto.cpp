#include "penstock/trace/perfetto.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "trace/rows.h"

namespace ps {
namespace {

using Json = nlohmann::ordered_json;

// Names a process or a thread and gives it its place in the order of display.
void describe(Json& events, const char* kind, int process, int thread, const std::string& text) {
  events.push_back({{"name", std::string(kind) + "_name"},
                    {"ph", "M"},
                    {"pid", process},
                    {"tid", thread},
                    {"args", {{"name", text}}}});
  events.push_back({{"name", std::string(kind) + "_sort_index"},
                    {"ph", "M"},
                    {"pid", process},
                    {"tid", thread},
                    {"args", {{"sort_index", kind[0] == 'p' ? process : thread}}}});
}

// The format counts in microseconds. Perfetto multiplies by 1000 and cuts off what is behind the
// point, so the number must not come out below the nanosecond that it stands for.
double us(std::int64_t nanoseconds) {
  const double exact = static_cast<double>(nanoseconds), scaled = exact / 1000.0;
  return scaled * 1000.0 < exact ? std::nextafter(scaled, std::numeric_limits<double>::infinity())
                                 : scaled;
}

struct Slice {
  std::string name;
  std::string_view category;
  Span span;
  const char* number_name;
  std::uint64_t number;
};

// The threads of one process. Perfetto drops slices of a thread that overlap in part, so a lane
// with overlapping slices becomes several threads: one per row.
class Threads {
 public:
  void add(const std::string& lane, Slice slice) {
    const auto [found, is_new] = lane_of_.try_emplace(lane, lanes_.size());
    if (is_new) lanes_.push_back({.name = lane});
    lanes_[found->second].slices.push_back(std::move(slice));
  }

  void write(Json& events, int process) const {
    int first_thread = 1;
    for (const Lane& lane : lanes_) {
      std::vector<Span> spans;
      for (const Slice& slice : lane.slices) spans.push_back(slice.span);
      const std::vector<std::size_t> rows = detail::assign_rows(spans);
      const int threads = static_cast<int>(*std::ranges::max_element(rows)) + 1;
      for (int row = 0; row < threads; ++row) {
        describe(events, "thread", process, first_thread + row,
                 row == 0 ? lane.name : fmt::format("{}, row {}", lane.name, row + 1));
      }
      for (std::size_t i = 0; i < rows.size(); ++i) {
        const Slice& slice = lane.slices[i];
        const std::int64_t length_ns =
            std::max<std::int64_t>(slice.span.end_ns - slice.span.begin_ns, 0);
        events.push_back({{"name", slice.name},
                          {"cat", slice.category},
                          {"ph", "X"},
                          {"ts", us(slice.span.begin_ns)},
                          {"dur", us(length_ns)},
                          {"pid", process},
                          {"tid", first_thread + static_cast<int>(rows[i])},
                          {"args", {{slice.number_name, slice.number}}}});
      }
      first_thread += threads;
    }
  }

 private:
  struct Lane {
    std::string name;
    std::vector<Slice> slices{};
  };
  std::vector<Lane> lanes_;  // in the order in which they were first added to
  std::map<std::string, std::size_t> lane_of_;
};

}  // namespace

std::string perfetto_json(std::span<const PageRun> runs) {
  Json events = Json::array();
  for (std::size_t r = 0; r < runs.size(); ++r) {
    const int process = static_cast<int>(r) + 1;
    const std::uint64_t lost = runs[r].lost_records;
    describe(events, "process", process, 0,
             lost == 0 ? runs[r].name
                       : fmt::format("{} (incomplete: {} records lost)", runs[r].name, lost));
    Threads threads;
    for (const TimelineEntry& entry : runs[r].entries) {
      threads.add(
          fmt::format("{}: {}", name(entry.engine), entry.stage),
          {entry.stage, name(entry.engine), {entry.begin_ns, entry.end_ns}, "item", entry.item});
    }
    for (const PageKernel& kernel : runs[r].kernels) {
      for (const RoleSpan& span : kernel.roles.spans) {
        const std::string role =
            span.role < kernel.roles.names.size() ? kernel.roles.names[span.role] : "role";
        threads.add(fmt::format("{}: block {}, {}", kernel.name, span.block, role),
                    {role, "role", {span.begin_ns, span.end_ns}, "tile", span.tile});
      }
    }
    threads.write(events, process);
  }
  return Json{{"traceEvents", std::move(events)}, {"displayTimeUnit", "ns"}}.dump(
      -1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace ps
