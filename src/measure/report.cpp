#include "penstock/measure/report.h"

#include <cmath>
#include <set>
#include <span>
#include <vector>

#include "measure/report_parts.h"
#include "penstock/base/error.h"
#include "penstock/measure/build.h"

namespace ps {

using detail::add_figures;
using detail::add_timelines;
using detail::us;
using Json = nlohmann::ordered_json;

double detail::us(double seconds) { return std::round(seconds * 1e9) * 1e-3; }

Json detail::report_header(const char* kind, const Device& device) {
  const BuildInfo build = build_info();
  return {{"schema", 1},
          {"kind", kind},
          {"version", build.version},
          {"commit", build.commit},
          {"date", now_utc()},
          {"device", {{"name", device.name()}, {"model", device.capabilities().name}}}};
}

void detail::add_figures(Json& document, const OverlapTimes& times, const OverlapFigures& figures,
                         const FloorVerdict& verdict) {
  document["sequential_busy_us"] = us(times.sequential);
  document["pipelined_us"] = us(times.pipelined);
  document["floor_us"] = us(times.floor);
  document["ideal_us"] = us(times.ideal);
  document["speedup"] = figures.speedup;
  document["hidden"] = figures.hidden ? Json(*figures.hidden) : Json(nullptr);
  document["efficiency"] = figures.efficiency;
  document["over_floor"] = verdict.over_floor;
  document["valid"] = verdict.kept();
  document["note"] = verdict.kept() ? figures.note : verdict.reason;
}

namespace {

// One row an interval, to keep the file small: engine, stage, item, begin and end.
Json intervals(std::span<const TimelineEntry> entries) {
  Json rows = Json::array();
  for (const TimelineEntry& entry : entries) {
    rows.push_back({name(entry.engine), entry.stage, entry.item, entry.begin_ns, entry.end_ns});
  }
  return rows;
}

Json kernel_of(const PageRun& run, const PageKernel& kernel) {
  const KernelRoles& roles = kernel.roles;
  Json spans = Json::array();
  for (const RoleSpan& s : roles.spans) {
    spans.push_back({s.block, s.sm, s.role, s.tile, s.begin_ns, s.end_ns});
  }
  return {{"run", run.name},
          {"name", kernel.name},
          {"stage", kernel.stage},
          {"item", kernel.item},
          {"roles", roles.names},
          {"begin_ns", roles.kernel.begin_ns},
          {"end_ns", roles.kernel.end_ns},
          {"error",
           {{"max_ns", roles.error.max_ns},
            {"median_ns", roles.error.median_ns},
            {"place_ns", roles.place_ns}}},
          {"lost", roles.lost},
          {"columns", {"block", "sm", "role", "tile", "begin_ns", "end_ns"}},
          {"spans", std::move(spans)}};
}

void add_runs(Json& document, std::span<const PageRun> runs) {
  Json timelines = {{"columns", {"engine", "stage", "item", "begin_ns", "end_ns"}}};
  Json kernels = Json::array();
  for (const PageRun& run : runs) {
    timelines[run.name] = intervals(run.entries);
    for (const PageKernel& kernel : run.kernels) kernels.push_back(kernel_of(run, kernel));
  }
  document["timelines"] = std::move(timelines);
  if (!kernels.empty()) document["kernels"] = std::move(kernels);
}

void add_lost_records(Json& document, std::span<const PageRun> runs) {
  for (const PageRun& run : runs) {
    if (run.lost_records > 0) document["lost_records"][run.name] = run.lost_records;
  }
}

}  // namespace

void detail::add_timelines(Json& document, std::initializer_list<NamedTimeline> timelines,
                           bool all) {
  std::vector<PageRun> runs;
  for (const auto& [name, timeline] : timelines) {
    runs.push_back(
        {.name = name, .entries = timeline.entries(), .lost_records = timeline.lost_records()});
  }
  add_lost_records(document, runs);
  if (all) add_runs(document, runs);
}

namespace {

void add_start_delay(Json& document, const Timeline& pipelined, const char* before) {
  const StartDelay delay = start_delay(pipelined.entries(), before, "compute");
  if (delay.count == 0) return;  // nothing was traced
  document["start_delay"] = {{"count", delay.count},
                             {"median_us", us(delay.median_seconds)},
                             {"total_us", us(delay.total_seconds)}};
}

Json run_of(const OverlapRun& run) {
  return {{"transfer_us", us(run.transfer())},     {"compute_us", us(run.compute)},
          {"total_us", us(run.seconds)},           {"upload_us", us(run.upload)},
          {"device_copy_us", us(run.device_copy)}, {"download_us", us(run.download)}};
}

Json run_of(const FileOverlapRun& run) {
  return {
      {"read_us", us(run.read)}, {"compute_us", us(run.compute)}, {"total_us", us(run.seconds)}};
}

}  // namespace

std::string as_json(const OverlapResult& r, const Device& device, bool timelines) {
  Json document = detail::report_header("overlap", device);
  document["ways"] = name(r.ways);
  document["items"] = r.items;
  document["item_bytes"] = r.item_bytes;
  document["chunk_bytes"] = r.chunk;
  document["chunks"] = r.chunks;
  document["depth"] = r.depth;
  document["rounds"] = r.engines.rounds;
  document["predicted_us"] = us(r.predicted);
  document["sequential"] = run_of(r.sequential);
  document["pipelined"] = run_of(r.pipelined);
  add_figures(document, r.times, r.figures, r.verdict);
  if (!r.traced_by.empty()) document["traced_by"] = r.traced_by;
  document["submit_cpu_us_per_chunk"] = r.submit_cpu_us;
  document["upload_gaps"] = {{"count", r.upload_gaps.count},
                             {"total_us", us(r.upload_gaps.total_seconds)},
                             {"largest_us", us(r.upload_gaps.largest_seconds)}};
  add_start_delay(document, r.pipelined_timeline, "upload");
  Json sweep = Json::array();
  for (const SweepPoint& point : r.sweep) {
    sweep.push_back({{"chunk_bytes", point.chunk},
                     {"depth", point.depth},
                     {"us", us(point.seconds)},
                     {"predicted_us", us(point.predicted)}});
  }
  document["sweep"] = sweep;
  add_timelines(document,
                {{"sequential", r.sequential_timeline}, {"pipelined", r.pipelined_timeline}},
                timelines);
  return document.dump(1);
}

std::string as_json(const FileOverlapResult& r, bool timelines) {
  Json document = detail::report_header("file-overlap", Device::cpu());
  document["bytes"] = r.bytes;
  document["chunk_bytes"] = r.chunk;
  document["chunks"] = r.chunks;
  document["depth"] = r.depth;
  document["rounds"] = r.rounds;
  document["direct"] = r.direct;
  document["read_alone_us"] = us(r.read_alone.seconds());
  document["compute_alone_us"] = us(r.compute_alone.seconds());
  document["sequential"] = run_of(r.sequential);
  document["pipelined"] = run_of(r.pipelined);
  add_figures(document, r.times, r.figures, r.verdict);
  add_start_delay(document, r.pipelined_timeline, "read");
  add_timelines(document,
                {{"sequential", r.sequential_timeline}, {"pipelined", r.pipelined_timeline}},
                timelines);
  return document.dump(1);
}

std::string trace_json(std::string_view title, std::span<const PageRun> runs, const Device& device,
                       std::string_view note) {
  std::set<std::string_view> names{"columns"};
  for (const PageRun& run : runs) {
    if (!names.insert(run.name).second) {
      detail::throw_invalid("runs", "a name of its own for each, none \"columns\"", run.name);
    }
  }
  Json document = detail::report_header("trace", device);
  document["name"] = title;
  if (!note.empty()) document["note"] = note;
  add_lost_records(document, runs);
  add_runs(document, runs);
  return document.dump(1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace ps
