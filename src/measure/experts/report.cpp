// Measurements of loading and computing experts as JSON.
#include "measure/report_parts.h"
#include "penstock/measure/experts.h"

namespace ps {
namespace {

using detail::us;
using Json = nlohmann::ordered_json;

Json run_of(const ExpertOverlapRun& run, const ExpertOverlapResult& r) {
  Json row = Json::object();
  if (r.from == ExpertsFrom::disk) row["read_us"] = us(run.read);
  if (r.upload_alone.passes() > 0) row["upload_us"] = us(run.upload);
  row["load_us"] = us(run.load());
  row["compute_us"] = us(run.compute);
  row["total_us"] = us(run.seconds);
  return row;
}

Json shape_of(const ExpertOverlapResult& r) {
  return {{"layers", r.shape.layers}, {"experts", r.shape.experts},   {"hidden", r.shape.hidden},
          {"width", r.shape.width},   {"dtype", name(r.shape.dtype)}, {"choices", r.choices}};
}

Json decode_of(const ExpertDecode& decode, bool timelines) {
  Json steps = Json::array();
  for (const ExpertDecodeStep& step : decode.steps) {
    steps.push_back({step.needed, step.hits, step.late, step.misses, step.bytes, us(step.seconds)});
  }
  Json document = {{"slots", decode.slots},
                   {"counted_from", decode.counted_from},
                   {"hit_rate", decode.hit_rate},
                   {"best_fixed_set", decode.best_fixed_set},
                   {"offline_optimum", decode.offline_optimum},
                   {"link", name(decode.link)},
                   {"share_of_link", decode.share_of_link ? Json(*decode.share_of_link) : Json()},
                   {"note", decode.why_no_share},
                   {"columns", {"needed", "hits", "late", "misses", "bytes", "us"}},
                   {"steps", std::move(steps)}};
  if (!decode.timeline.entries().empty()) {
    detail::add_timelines(document, {{"decode", decode.timeline}}, timelines);
  }
  return document;
}

}  // namespace

std::string as_json(const ExpertOverlapResult& r, const Device& device, bool timelines) {
  Json document = detail::report_header("moe", device);
  document["shape"] = shape_of(r);
  document["batch"] = r.batch;
  document["sequence"] = r.sequence;
  document["rounding"] = r.rounding;
  document["from"] = name(r.from);
  document["direct"] = r.direct;
  document["distinct"] = r.distinct;
  document["expert_bytes"] = ExpertStore::block_bytes(r.shape);
  document["depth"] = r.depth;
  document["streams"] = r.streams;
  document["cache"] = r.cache;
  document["experts_needed"] = r.needed;
  document["experts_loaded"] = r.loaded;
  document["bytes_loaded"] = r.bytes;
  document["rows"] = r.rows;
  document["padded_rows"] = r.padded_rows;
  const auto add_alone = [&](const char* field, const Floor& floor) {
    if (floor.passes() > 0) document[field] = us(floor.seconds());
  };
  add_alone("read_alone_us", r.read_alone);
  add_alone("upload_alone_us", r.upload_alone);
  add_alone("compute_alone_us", r.compute_alone);
  document["sequential"] = run_of(r.sequential, r);
  document["pipelined"] = run_of(r.pipelined, r);
  detail::add_figures(document, r.times, r.figures, r.verdict);
  if (!r.traced_by.empty()) document["traced_by"] = r.traced_by;
  if (r.streamed_seconds) {
    document["streamed"] = {{"total_us", us(*r.streamed_seconds)},
                            {"slots", r.streamed_slots},
                            {"experts_loaded", r.streamed_loaded}};
  } else {
    document["streamed"] = nullptr;
    document["why_not_streamed"] = r.why_not_streamed;
  }
  Json sweep = Json::array();
  for (const ExpertSweepPoint& point : r.sweep) {
    sweep.push_back({{"depth", point.depth}, {"cache", point.cache}, {"us", us(point.seconds)}});
  }
  document["sweep"] = std::move(sweep);
  if (r.decode) {
    document["decode"] = decode_of(*r.decode, timelines);
  } else if (!r.why_no_decode.empty()) {
    document["decode"] = nullptr;
    document["why_no_decode"] = r.why_no_decode;
  }
  if (r.streamed_timeline.entries().empty()) {
    detail::add_timelines(
        document, {{"sequential", r.sequential_timeline}, {"pipelined", r.pipelined_timeline}},
        timelines);
  } else {
    detail::add_timelines(document,
                          {{"sequential", r.sequential_timeline},
                           {"pipelined", r.pipelined_timeline},
                           {"StreamedExperts", r.streamed_timeline}},
                          timelines);
  }
  return document.dump(1);
}

}  // namespace ps
