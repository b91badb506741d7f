#include "penstock/trace/page.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <string_view>

#include "penstock/base/error.h"
#include "trace/kernel_bar.h"
#include "trace/page_parts.h"
#include "trace/rows.h"

namespace ps {
namespace {

using Json = nlohmann::ordered_json;

// JSON has no NaN and no infinity.
Json number(double value) { return std::isfinite(value) ? Json(value) : Json(nullptr); }

Json cell(const PageCell& given) {
  if (const auto* share = std::get_if<double>(&given)) return number(*share);
  return std::get<std::string>(given);
}

// The intervals of one engine's stage, or of one role of a block, sorted by begin.
struct Lane {
  Json head = Json::object();
  std::vector<std::uint64_t> items{};
  std::vector<Span> spans{};

  void add(std::uint64_t item, const Span& span) {
    items.push_back(item);
    spans.push_back(span);
  }
};

// Begins are written as differences to keep the numbers, and the file, small. "rows" is left out
// where all intervals are in row 0.
Json as_json(const Lane& lane) {
  Json begins = Json::array(), lengths = Json::array();
  std::int64_t last_begin_ns = 0;
  for (const Span& span : lane.spans) {
    begins.push_back(span.begin_ns - last_begin_ns);
    lengths.push_back(std::max<std::int64_t>(span.end_ns - span.begin_ns, 0));
    last_begin_ns = span.begin_ns;
  }
  Json json = lane.head;
  json["items"] = lane.items;
  json["begin_ns"] = std::move(begins);
  json["length_ns"] = std::move(lengths);
  const std::vector<std::size_t> rows = detail::assign_rows(lane.spans);
  if (std::ranges::any_of(rows, [](std::size_t row) { return row > 0; })) json["rows"] = rows;
  return json;
}

Json as_json(const std::vector<Lane>& lanes) {
  Json all = Json::array();
  for (const Lane& lane : lanes) all.push_back(as_json(lane));
  return all;
}

// One lane per role of each block; the roles of a block are adjacent, in the order of their
// numbers.
Json kernel(const PageKernel& given, const Json& bar, std::int64_t origin_ns) {
  const KernelRoles& roles = given.roles;
  std::vector<RoleSpan> spans = roles.spans;
  std::ranges::stable_sort(spans, {}, &RoleSpan::begin_ns);
  std::map<std::pair<unsigned, unsigned>, Lane> by_role;
  for (const RoleSpan& span : spans) {
    if (span.role >= roles.names.size()) {
      detail::throw_invalid(
          "kernels", fmt::format("role numbers below {}, the number of names", roles.names.size()),
          fmt::format("role {}", span.role));
    }
    Lane& lane = by_role[{span.block, span.role}];
    lane.head = {{"role", roles.names[span.role]}, {"block", span.block}, {"sm", span.sm}};
    lane.add(span.tile, {span.begin_ns - origin_ns, span.end_ns - origin_ns});
  }
  std::vector<Lane> lanes;
  for (auto& [key, lane] : by_role) lanes.push_back(std::move(lane));
  return {{"name", given.name},
          {"bar", bar},
          {"begin_ns", roles.kernel.begin_ns - origin_ns},
          {"end_ns", roles.kernel.end_ns - origin_ns},
          {"error",
           {{"max_ns", number(roles.error.max_ns)},
            {"median_ns", number(roles.error.median_ns)},
            {"place_ns", number(roles.place_ns)}}},
          {"lost", roles.lost},
          {"lanes", as_json(lanes)}};
}

Json run(const PageRun& given) {
  std::vector<TimelineEntry> entries = given.entries;
  std::ranges::stable_sort(entries, {}, &TimelineEntry::begin_ns);
  const std::int64_t origin_ns = entries.empty() ? 0 : entries.front().begin_ns;
  std::int64_t total_ns = 0;
  std::vector<Lane> lanes;  // in the order of their first begin, which is that of the pipeline
  std::map<std::pair<Engine, std::string_view>, std::size_t> lane_of;
  // For each entry, its lane and its index in that lane.
  std::vector<std::pair<std::size_t, std::size_t>> places;
  for (const TimelineEntry& entry : entries) {
    const auto [at, is_new] = lane_of.try_emplace({entry.engine, entry.stage}, lanes.size());
    if (is_new) {
      lanes.emplace_back().head = {{"engine", name(entry.engine)}, {"stage", entry.stage}};
    }
    Lane& lane = lanes[at->second];
    places.emplace_back(at->second, lane.items.size());
    lane.add(entry.item, {entry.begin_ns - origin_ns, entry.end_ns - origin_ns});
    total_ns = std::max(total_ns, entry.end_ns - origin_ns);
  }
  Json shown = {{"name", given.name}, {"total_ns", total_ns}, {"lanes", as_json(lanes)}};
  if (given.lost_records > 0) shown["lost_records"] = given.lost_records;
  if (given.kernels.empty()) return shown;
  Json kernels = Json::array();
  for (const PageKernel& one : given.kernels) {
    const auto bar = detail::kernel_bar(entries, one);
    if (!bar) {
      detail::throw_invalid(
          "kernels", fmt::format("a kernel with an interval on compute in run \"{}\"", given.name),
          fmt::format("stage \"{}\", item {}", one.stage, one.item));
    }
    const auto& [lane, index] = places[*bar];
    kernels.push_back(kernel(one, {{"lane", lane}, {"index", index}}, origin_ns));
  }
  shown["kernels"] = std::move(kernels);
  return shown;
}

Json axis(const PageAxis& given) {
  return {{"label", given.label},
          {"unit", given.unit},
          {"scale", given.logarithmic ? "log" : "linear"}};
}

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '&':
        out += "&amp;";
        break;
      case '"':
        out += "&quot;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

// A `<` in the data must not end the script that holds it. Bytes that are not UTF-8 are replaced.
std::string for_script(const Json& data) {
  const std::string text = data.dump(-1, ' ', false, Json::error_handler_t::replace);
  std::string out;
  out.reserve(text.size());
  for (const char c : text) {
    if (c == '<') {
      out += "\\u003c";
    } else {
      out += c;
    }
  }
  return out;
}

// One pass over the template: text that is filled in may look like a placeholder itself.
std::string fill(std::string_view page, const auto& value_of) {
  std::string out;
  while (true) {
    const std::size_t open = page.find("{{"), close = page.find("}}", open);
    if (open == std::string_view::npos || close == std::string_view::npos) break;
    out += page.substr(0, open);
    out += value_of(page.substr(open + 2, close - open - 2));
    page.remove_prefix(close + 2);
  }
  return out.append(page);
}

}  // namespace

struct Page::Impl {
  PageOptions options;
  Json sections = Json::array();

  void add(const char* type, const auto& section, const Json& rest) {
    Json json = {{"type", type}, {"title", section.title}};
    json.update(rest);
    sections.push_back(std::move(json));
  }
};

Page::Page(PageOptions options) : impl_(std::make_unique<Impl>()) {
  impl_->options = std::move(options);
}
Page::~Page() = default;
Page::Page(Page&&) noexcept = default;
Page& Page::operator=(Page&&) noexcept = default;

void Page::add(const PageFacts& section) {
  Json rows = Json::array();
  for (const PageFact& fact : section.rows) rows.push_back({fact.label, fact.value, fact.note});
  impl_->add("facts", section, {{"rows", std::move(rows)}});
}

void Page::add(const PageTable& section) {
  Json columns = Json::array(), rows = Json::array();
  for (const PageColumn& column : section.columns) {
    columns.push_back(
        {{"name", column.name}, {"numeric", column.numeric}, {"share", column.share}});
  }
  for (const auto& given : section.rows) {
    if (given.size() != section.columns.size()) {
      detail::throw_invalid("rows", fmt::format("{} cells, one per column", section.columns.size()),
                            fmt::format("a row of {}", given.size()));
    }
    Json row = Json::array();
    for (const PageCell& value : given) row.push_back(cell(value));
    rows.push_back(std::move(row));
  }
  impl_->add("table", section,
             {{"note", section.note}, {"columns", std::move(columns)}, {"rows", std::move(rows)}});
}

void Page::add(const PageTimelines& section) {
  Json runs = Json::array();
  for (const PageRun& given : section.runs) runs.push_back(run(given));
  impl_->add("timelines", section, {{"note", section.note}, {"runs", std::move(runs)}});
}

void Page::add(const PagePlot& section) {
  Json series = Json::array(), markers = Json::array();
  for (const PageSeries& given : section.series) {
    Json points = Json::array();
    for (const auto& [x, y] : given.points) points.push_back({number(x), number(y)});
    series.push_back({{"name", given.name},
                      {"points", std::move(points)},
                      {"line", given.line},
                      {"marks", given.marks}});
  }
  for (const PageMarker& marker : section.markers) {
    markers.push_back({{"name", marker.name}, {"x", number(marker.x)}});
  }
  impl_->add("plot", section,
             {{"note", section.note},
              {"x", axis(section.x)},
              {"y", axis(section.y)},
              {"series", std::move(series)},
              {"markers", std::move(markers)}});
}

void Page::add(const PageRoofline& section) {
  Json ceilings = Json::array(), points = Json::array();
  for (const PageCeiling& given : section.ceilings) {
    Json ceiling = {{"name", given.name}};
    if (given.bytes_per_second > 0) ceiling["bytes_per_second"] = given.bytes_per_second;
    if (given.flops > 0) ceiling["flops"] = given.flops;
    ceilings.push_back(std::move(ceiling));
  }
  for (const PageWork& work : section.work) {
    points.push_back({{"name", work.name},
                      {"intensity", number(work.intensity)},
                      {"flops", number(work.flops)}});
  }
  impl_->add(
      "roofline", section,
      {{"note", section.note}, {"ceilings", std::move(ceilings)}, {"points", std::move(points)}});
}

std::string Page::html() const {
  const PageOptions& o = impl_->options;
  const auto value_of = [&](std::string_view placeholder) -> std::string {
    if (placeholder == "title") return escaped(o.title);
    if (placeholder == "css") return std::string(detail::page_css);
    if (placeholder == "js") return std::string(detail::page_js);
    return for_script({{"title", o.title},
                       {"made", {{"version", o.version}, {"commit", o.commit}, {"date", o.date}}},
                       {"sections", impl_->sections}});
  };
  return fill(detail::page_html, value_of);
}

}  // namespace ps
