// What a ladder measured, for people.
#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "penstock/base/units.h"
#include "support/ladder.h"
#include "support/verdict.h"

namespace ladder {
namespace {

std::string number(const std::optional<double>& value, const char* suffix = "") {
  return value ? fmt::format("{:.2f}{}", *value, suffix) : "-";
}

std::string gaps_text(const std::optional<ps::Gaps>& gaps) {
  if (!gaps) return "-";
  return fmt::format("{} in {}", ps::format_seconds(gaps->total_seconds), gaps->count);
}

std::string time_text(const Row& row) {
  return row.seconds > 0 && row.dropped.empty() ? ps::format_seconds(row.seconds) : "-";
}

std::string note_text(const Row& row) {
  return row.dropped.empty() ? row.note : "dropped: " + row.dropped;
}

// A line of columns, each of the given width, right-aligned but for the first `left`.
std::string line(const std::vector<std::string>& cells, const std::vector<std::size_t>& widths,
                 std::size_t left, const std::string& note) {
  std::string text;
  for (std::size_t i = 0; i < cells.size(); ++i) {
    text += i < left ? fmt::format("  {:<{}}", cells[i], widths[i])
                     : fmt::format("  {:>{}}", cells[i], widths[i]);
  }
  return text + (note.empty() ? "" : "  " + note) + '\n';
}

std::size_t longest(const std::vector<RungRows>& results, std::string Row::* text) {
  std::size_t width = 0;
  for (const RungRows& result : results) {
    for (const Row& row : result.rows) width = std::max(width, (row.*text).size());
  }
  return width;
}

std::string pipeline_head(Context& context) {
  const ps::Engines& engines = context.engines();
  return fmt::format(
      "{}, {} in {} chunks of {}, {} rounds of arithmetic\n"
      "alone: upload {}, download {}, both ways {}, compute {}, device copy {}\n",
      context.device().name(), ps::format_bytes(context.bytes()), context.chunks(),
      ps::format_bytes(context.chunk()), engines.rounds,
      ps::format_seconds(engines.upload.seconds()), ps::format_seconds(engines.download.seconds()),
      ps::format_seconds(engines.both_ways.seconds()),
      ps::format_seconds(engines.compute.seconds()),
      ps::format_seconds(engines.device_copy.seconds()));
}

std::string pipeline_rows(const RungRows& result, std::size_t width) {
  const std::vector<std::size_t> widths{width, 9, 8, 6, 10, 16};
  std::string text =
      line({"", "time", "speed-up", "hidden", "efficiency", "upload idle"}, widths, 1, "");
  for (const Row& row : result.rows) {
    text += line({row.label, time_text(row), number(row.speedup, "x"), number(row.hidden),
                  number(row.efficiency), gaps_text(row.gaps)},
                 widths, 1, note_text(row));
  }
  return text;
}

std::string facts_head(Context& context) {
  std::string text =
      fmt::format("{}, {}", context.device().name(), context.device().capabilities().name);
  for (const Fact& fact : context.facts()) text += "\n  " + fact.text;
  return text + '\n';
}

std::string kernel_rows(const RungRows& result, std::size_t width, std::size_t work) {
  const std::vector<std::size_t> widths{width, work, 9, 6, 8, 4, 9, 9, 9};
  std::string text =
      line({"", "", "time", "share", "speed-up", "regs", "shared", "blocks/SM", "occupancy"},
           widths, 2, "");
  for (const Row& row : result.rows) {
    std::vector<std::string> cells{row.label, row.work, time_text(row), number(row.efficiency),
                                   number(row.speedup, "x")};
    if (row.use) {
      cells.insert(
          cells.end(),
          {std::to_string(row.use->registers), ps::format_bytes(row.use->shared_bytes),
           fmt::format("{} x {}", row.use->blocks, row.use->threads), number(row.use->occupancy)});
    } else {
      cells.insert(cells.end(), 4, "-");
    }
    text += line(cells, widths, 2, note_text(row));
  }
  return text;
}

// What ncu counted, a line for each row that has counters.
std::string counter_rows(const RungRows& result, std::size_t width, std::size_t work) {
  const std::vector<std::size_t> widths{width, work, 10, 8, 10, 12};
  std::string text;
  for (const Row& row : result.rows) {
    if (!row.counters) continue;
    if (text.empty()) {
      text = line({"counters", "", "DRAM share", "L2 hits", "DRAM read", "DRAM written"}, widths, 2,
                  "");
    }
    const Counters& counters = *row.counters;
    text += line({row.label, row.work, fmt::format("{:.1f} %", 100 * counters.dram_share),
                  fmt::format("{:.1f} %", 100 * counters.l2_hit_rate),
                  fmt::format("{:.1f} MB", counters.dram_read_bytes * 1e-6),
                  fmt::format("{:.1f} MB", counters.dram_written_bytes * 1e-6)},
                 widths, 2, "");
  }
  return text;
}

std::string verdict_lines(const std::vector<RungRows>& results) {
  std::string text;
  for (const Verdict& verdict : verdicts_of(results)) {
    const char* const met = !verdict.met ? "not measured" : *verdict.met ? "met" : "not met";
    text += fmt::format("  {}: {} ({})\n", verdict.criterion, met, verdict.measured);
  }
  return text.empty() ? text : "\nverdict\n" + text;
}

// "LDG.128, STG.128, no STS"
std::string machine_text(const Instructions& machine) {
  std::string text;
  const auto add = [&text](std::string_view before, std::string_view name) {
    text += fmt::format("{}{}{}", text.empty() ? "" : ", ", before, name);
  };
  for (const std::string_view held : machine.holds) add("", held);
  for (const std::string_view lacked : machine.lacks) add("no ", lacked);
  return text;
}

}  // namespace

std::string as_table(Context& context, const std::vector<RungRows>& results) {
  const auto is_kernel = [](const RungRows& result) { return result.rung.machine != nullptr; };
  // A ladder with facts of its own does not use the engines that the context measures.
  const bool has_facts = std::ranges::all_of(results, is_kernel) || !context.facts().empty();
  std::string text = has_facts ? facts_head(context) : pipeline_head(context);
  const std::size_t width = longest(results, &Row::label), work = longest(results, &Row::work);
  for (const RungRows& result : results) {
    text += fmt::format("\n{}: {}\n", result.rung.name, result.rung.sentence);
    if (!is_kernel(result)) {
      text += pipeline_rows(result, width);
      continue;
    }
    const std::string machine = machine_text(*result.rung.machine);
    if (!machine.empty()) text += fmt::format("  machine code: {}\n", machine);
    text += kernel_rows(result, width, work);
    text += counter_rows(result, width, work);
  }
  return text + verdict_lines(results);
}

std::string list_as_text(const std::vector<Rung>& rungs) {
  std::size_t width = 0;
  for (const Rung& rung : rungs) width = std::max(width, rung.name.size());
  std::string text;
  for (const Rung& rung : rungs) {
    text += fmt::format("{:{}}  {}", rung.name, width, rung.sentence);
    const std::string machine = rung.machine != nullptr ? machine_text(*rung.machine) : "";
    if (!machine.empty()) text += fmt::format(" [{}]", machine);
    text += '\n';
  }
  return text;
}

}  // namespace ladder
