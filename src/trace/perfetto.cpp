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

// The threads of one process, by name.
class Threads {
 public:
  Threads(Json& events, int process) : events_(events), process_(process) {}

  void slice(const std::string& thread, const std::string& what, std::string_view category,
             const Span& span, const char* number_name, std::uint64_t number) {
    const int next = static_cast<int>(numbers_.size()) + 1;
    const auto [found, is_new] = numbers_.try_emplace(thread, next);
    if (is_new) describe(events_, "thread", process_, next, thread);
    events_.push_back({{"name", what},
                       {"cat", category},
                       {"ph", "X"},
                       {"ts", us(span.begin_ns)},
                       {"dur", us(span.end_ns - span.begin_ns)},
                       {"pid", process_},
                       {"tid", found->second},
                       {"args", {{number_name, number}}}});
  }

 private:
  Json& events_;
  int process_;
  std::map<std::string, int> numbers_;
};

}  // namespace

std::string perfetto_json(std::span<const PageRun> runs) {
  Json events = Json::array();
  for (std::size_t r = 0; r < runs.size(); ++r) {
    const int process = static_cast<int>(r) + 1;
    describe(events, "process", process, 0, runs[r].name);
    Threads threads(events, process);
    for (const TimelineEntry& entry : runs[r].entries) {
      threads.slice(std::string(name(entry.engine)) + ": " + entry.stage, entry.stage,
                    name(entry.engine), {entry.begin_ns, entry.end_ns}, "item", entry.item);
    }
    for (const PageKernel& kernel : runs[r].kernels) {
      for (const RoleSpan& span : kernel.roles.spans) {
        const std::string role =
            span.role < kernel.roles.names.size() ? kernel.roles.names[span.role] : "role";
        threads.slice(kernel.name + ": block " + std::to_string(span.block) + ", " + role, role,
                      "role", {span.begin_ns, span.end_ns}, "tile", span.tile);
      }
    }
  }
  return Json{{"traceEvents", std::move(events)}, {"displayTimeUnit", "ns"}}.dump(
      -1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace ps
