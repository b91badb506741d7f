#include "penstock/measure/page.h"

#include "measure/page_sections.h"
#include "penstock/measure/build.h"

namespace ps {
namespace {

using detail::Reading;

constexpr int deepest = 16;

nlohmann::ordered_json parsed(std::string_view json, std::string_view source) {
  nlohmann::ordered_json document = detail::parse_json(json, source, deepest);
  Reading(document, std::string(source))["schema"].count(1, 1);
  return document;
}

detail::PageSections sections_of(const Reading& document) {
  if (document.has("kind")) {
    const std::string kind = document["kind"].text();
    if (kind == "trace") return detail::trace_sections(document);
    return kind == "moe" ? detail::expert_sections(document) : detail::overlap_sections(document);
  }
  if (document.has("cases")) return detail::results_sections(document);
  if (document.has("rungs")) return detail::ladder_sections(document);
  document.refuse(R"(a report ("kind"), results ("cases") or a ladder ("rungs"))");
}

}  // namespace

Page make_page(std::string_view title) {
  const BuildInfo build = build_info();
  return Page(PageOptions{.title = std::string(title),
                          .version = std::string(build.version),
                          .commit = std::string(build.commit),
                          .date = now_utc()});
}

void add_document(Page& page, std::string_view json, std::string_view source) {
  const nlohmann::ordered_json document = parsed(json, source);
  for (const auto& section : sections_of(Reading(document, std::string(source)))) {
    std::visit([&](const auto& s) { page.add(s); }, section);
  }
}

std::vector<PageRun> timelines_in(std::string_view json, std::string_view source) {
  const nlohmann::ordered_json document = parsed(json, source);
  return detail::timeline_runs(Reading(document, std::string(source)));
}

std::string with_kernel_trace(std::string_view report, std::string_view trace,
                              std::string_view source) {
  nlohmann::ordered_json document = parsed(report, "report"), given = parsed(trace, source);
  const Reading reading(given, std::string(source));
  if (reading["kind"].text() != "trace") reading["kind"].refuse(R"("trace")");
  detail::trace_sections(reading);
  if (reading["kernels"].items().empty()) reading["kernels"].refuse("at least one kernel");
  document["kernel_trace"] = std::move(given);
  return document.dump(1);
}

}  // namespace ps
