// Converts a ladder's table to sections of a page: one table per rung.
#include <fmt/format.h>

#include <limits>

#include "measure/page_sections.h"

namespace ps::detail {
namespace {

double share_or_unknown(const std::optional<Reading>& share) {
  return share ? share->number() : std::numeric_limits<double>::quiet_NaN();
}

}  // namespace

PageSections ladder_sections(const Reading& ladder) {
  PageSections sections;
  for (const Reading& rung : ladder["rungs"].items()) {
    PageTable table{.title = rung["name"].text(),
                    .note = rung["sentence"].text(),
                    .columns = {{.name = "variant", .numeric = false},
                                {.name = "time"},
                                {.name = "speed-up"},
                                {.name = "hidden", .share = true},
                                {.name = "floor / time", .share = true},
                                {.name = "note", .numeric = false}}};
    for (const Reading& row : rung["rows"].items()) {
      const auto speedup = row.find("speedup");
      // A row without a time says why: it does not run here, or it was dropped.
      const auto seconds = row.find("seconds"), dropped = row.find("dropped");
      table.rows.push_back(
          {row["label"].text(), seconds ? shown_us(seconds->positive() * 1e6) : "–",
           speedup ? fmt::format("{:.2f}x", speedup->number()) : "",
           share_or_unknown(row.find("hidden")), share_or_unknown(row.find("efficiency")),
           dropped ? "dropped: " + dropped->text() : row["note"].text()});
    }
    sections.emplace_back(std::move(table));
  }
  const Reading machine = ladder["machine"];
  PageFacts facts{.title = "Where it ran"};
  for (const auto& [label, value] : machine.fields()) {
    facts.rows.push_back({label, value.shown(), ""});
  }
  facts.rows.push_back({"commit", ladder["commit"].text(), ladder["date"].text()});
  sections.emplace_back(std::move(facts));
  return sections;
}

}  // namespace ps::detail
