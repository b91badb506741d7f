#include "penstock/trace/perfetto.h"

#include <map>
#include <nlohmann/json.hpp>
#include <utility>

namespace ps {
namespace {

using Json = nlohmann::ordered_json;

// What a process or a thread is called, and where it stands.
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

// The format counts in microseconds; three digits behind the point keep the nanoseconds.
double us(std::int64_t nanoseconds) { return static_cast<double>(nanoseconds) * 1e-3; }

}  // namespace

std::string perfetto_json(std::span<const PageRun> runs) {
  Json events = Json::array();
  for (std::size_t r = 0; r < runs.size(); ++r) {
    const int process = static_cast<int>(r) + 1;
    describe(events, "process", process, 0, runs[r].name);
    std::map<std::pair<Engine, std::string>, int> threads;
    for (const TimelineEntry& entry : runs[r].entries) {
      const int next = static_cast<int>(threads.size()) + 1;
      const auto [thread, is_new] = threads.try_emplace({entry.engine, entry.stage}, next);
      if (is_new) {
        describe(events, "thread", process, next,
                 std::string(name(entry.engine)) + ": " + entry.stage);
      }
      events.push_back({{"name", entry.stage},
                        {"cat", name(entry.engine)},
                        {"ph", "X"},
                        {"ts", us(entry.begin_ns)},
                        {"dur", us(entry.end_ns - entry.begin_ns)},
                        {"pid", process},
                        {"tid", thread->second},
                        {"args", {{"item", entry.item}}}});
    }
  }
  return Json{{"traceEvents", std::move(events)}, {"displayTimeUnit", "ns"}}.dump(
      -1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace ps
