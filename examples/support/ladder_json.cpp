// What a ladder measured, for programs.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>

#include "penstock/measure/build.h"
#include "penstock/measure/machine.h"
#include "support/ladder.h"
#include "support/verdict.h"

namespace ladder {
namespace {

using Json = nlohmann::ordered_json;

Json number_or_null(const std::optional<double>& value) { return value ? Json(*value) : Json(); }

Json row_as_json(const Row& row) {
  Json gaps;
  if (row.gaps) {
    gaps = {{"seconds", row.gaps->total_seconds},
            {"count", row.gaps->count},
            {"largest_seconds", row.gaps->largest_seconds}};
  }
  Json json{{"label", row.label},
            {"work", row.work},
            {"seconds", row.seconds > 0 && row.dropped.empty() ? Json(row.seconds) : Json()},
            {"speedup", number_or_null(row.speedup)},
            {"hidden", number_or_null(row.hidden)},
            {"efficiency", number_or_null(row.efficiency)},
            {"upload_gaps", gaps},
            {"note", row.note}};
  if (!row.dropped.empty()) json["dropped"] = row.dropped;
  if (row.library) json["library_seconds"] = *row.library;
  if (row.use) {
    json["kernel"] = {{"registers", row.use->registers},
                      {"shared_bytes", row.use->shared_bytes},
                      {"threads", row.use->threads},
                      {"blocks_per_multiprocessor", row.use->blocks},
                      {"occupancy", row.use->occupancy}};
  }
  if (row.flops > 0) json["flops"] = row.flops;
  if (row.counters) {
    json["counters"] = {{"launches", row.counters->launches},
                        {"seconds", row.counters->seconds},
                        {"dram_read_bytes", row.counters->dram_read_bytes},
                        {"dram_written_bytes", row.counters->dram_written_bytes},
                        {"dram_share", row.counters->dram_share},
                        {"l2_hit_rate", row.counters->l2_hit_rate}};
  }
  return json;
}

Json rung_as_json(const Rung& rung) {
  Json json{{"ladder", rung.ladder},
            {"name", rung.name},
            {"file", rung.file},
            {"sentence", rung.sentence}};
  if (rung.machine != nullptr) {
    json["machine"] = {{"holds", rung.machine->holds}, {"lacks", rung.machine->lacks}};
  }
  return json;
}

void add_pipeline(Json& json, Context& context) {
  const ps::Engines& engines = context.engines();
  json["chunk"] = context.chunk();
  json["rounds"] = engines.rounds;
  json["alone_seconds"] = {{"upload", engines.upload.seconds()},
                           {"download", engines.download.seconds()},
                           {"both_ways", engines.both_ways.seconds()},
                           {"compute", engines.compute.seconds()},
                           {"device_copy", engines.device_copy.seconds()}};
}

}  // namespace

std::string as_json(Context& context, const std::vector<RungRows>& results) {
  const ps::Machine machine = ps::inspect_machine();
  Json rungs = Json::array();
  for (const RungRows& result : results) {
    rungs.push_back(rung_as_json(result.rung));
    for (const Row& row : result.rows) rungs.back()["rows"].push_back(row_as_json(row));
  }
  Json json{{"schema", 1},
            {"name", "ladder"},
            {"date", ps::now_utc()},
            {"commit", ps::build_info().commit},
            {"machine",
             {{"device", context.device().name()},
              {"model", context.device().capabilities().name},
              {"driver", machine.cuda.driver},
              {"cuda", ps::build_info().cuda},
              {"cpu", machine.host.cpu}}},
            {"quick", context.quick()},
            {"bytes", context.bytes()}};
  const bool all_kernels = std::ranges::all_of(
      results, [](const RungRows& result) { return result.rung.machine != nullptr; });
  if (!all_kernels && context.facts().empty()) add_pipeline(json, context);
  for (const Fact& fact : context.facts()) json["facts"][fact.key] = fact.value;
  for (const Verdict& verdict : verdicts_of(results)) {
    json["verdicts"].push_back({{"criterion", verdict.criterion},
                                {"met", verdict.met ? Json(*verdict.met) : Json()},
                                {"measured", verdict.measured}});
  }
  json["rungs"] = std::move(rungs);
  return json.dump(2) + '\n';
}

std::string list_as_json(const std::vector<Rung>& rungs) {
  Json json{{"schema", 1}, {"rungs", Json::array()}};
  for (const Rung& rung : rungs) json["rungs"].push_back(rung_as_json(rung));
  return json.dump(2) + '\n';
}

}  // namespace ladder
