#include "penstock/measure/report.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "penstock/measure/build.h"

namespace ps {
namespace {

using Json = nlohmann::ordered_json;

double us(double seconds) { return std::round(seconds * 1e9) * 1e-3; }

Json header(const char* kind, const Device& device) {
  const BuildInfo build = build_info();
  return {{"schema", 1},
          {"kind", kind},
          {"version", build.version},
          {"commit", build.commit},
          {"date", now_utc()},
          {"device", {{"name", device.name()}, {"model", device.capabilities().name}}}};
}

void add_figures(Json& document, const OverlapTimes& times, const OverlapFigures& figures) {
  document["sequential_busy_us"] = us(times.sequential);
  document["pipelined_us"] = us(times.pipelined);
  document["floor_us"] = us(times.floor);
  document["ideal_us"] = us(times.ideal);
  document["speedup"] = figures.speedup;
  document["hidden"] = figures.hidden ? Json(*figures.hidden) : Json(nullptr);
  document["efficiency"] = figures.efficiency;
  document["valid"] = figures.valid;
  document["note"] = figures.note;
}

// One row an interval, to keep the file small: engine, stage, item, begin and end.
Json intervals(const Timeline& timeline) {
  Json rows = Json::array();
  for (const TimelineEntry& entry : timeline.entries()) {
    rows.push_back({name(entry.engine), entry.stage, entry.item, entry.begin_ns, entry.end_ns});
  }
  return rows;
}

void add_timelines(Json& document, const Timeline& sequential, const Timeline& pipelined) {
  document["timelines"] = {{"columns", {"engine", "stage", "item", "begin_ns", "end_ns"}},
                           {"sequential", intervals(sequential)},
                           {"pipelined", intervals(pipelined)}};
}

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
  Json document = header("overlap", device);
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
  add_figures(document, r.times, r.figures);
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
  if (timelines) add_timelines(document, r.sequential_timeline, r.pipelined_timeline);
  return document.dump(1);
}

std::string as_json(const FileOverlapResult& r, bool timelines) {
  Json document = header("file-overlap", Device::cpu());
  document["bytes"] = r.bytes;
  document["chunk_bytes"] = r.chunk;
  document["chunks"] = r.chunks;
  document["depth"] = r.depth;
  document["rounds"] = r.rounds;
  document["direct"] = r.direct;
  document["read_alone_us"] = us(r.read_alone);
  document["compute_alone_us"] = us(r.compute_alone);
  document["sequential"] = run_of(r.sequential);
  document["pipelined"] = run_of(r.pipelined);
  add_figures(document, r.times, r.figures);
  add_start_delay(document, r.pipelined_timeline, "read");
  if (timelines) add_timelines(document, r.sequential_timeline, r.pipelined_timeline);
  return document.dump(1);
}

}  // namespace ps
