#include "support/counters.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <stdexcept>

#include "penstock/base/error.h"
#include "support/captured.h"
#include "support/ladder.h"

namespace ladder {
namespace {

constexpr std::string_view time_metric = "gpu__time_duration.sum";
constexpr std::string_view read_metric = "dram__bytes_read.sum";
constexpr std::string_view written_metric = "dram__bytes_write.sum";
constexpr std::string_view dram_metric = "dram__throughput.avg.pct_of_peak_sustained_elapsed";
constexpr std::string_view hit_metric = "lts__t_sector_hit_rate.pct";

using Fields = std::vector<std::string>;

// The fields of a line, of which some are in quotes.
Fields fields_of(std::string_view line) {
  Fields fields(1);
  bool quoted = false;
  for (const char c : line) {
    if (c == '"') {
      quoted = !quoted;
    } else if (c == ',' && !quoted) {
      fields.emplace_back();
    } else if (c != '\r') {
      fields.back() += c;
    }
  }
  return fields;
}

std::vector<std::string_view> lines_of(std::string_view text) {
  std::vector<std::string_view> lines;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    lines.push_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

// The table's lines: names, units, launches.
std::vector<Fields> table_of(std::string_view printed) {
  std::vector<Fields> table;
  for (const std::string_view line : lines_of(printed)) {
    const bool begins = line.starts_with("\"ID\"") || line.starts_with("ID,");
    if (table.empty() && !begins) continue;
    if (line.empty() || line.starts_with("==")) continue;
    if (!table.empty() && fields_of(line).size() != table.front().size()) {
      throw std::runtime_error(fmt::format("ncu's table: expected {} columns, got '{}'",
                                           table.front().size(), line.substr(0, 80)));
    }
    table.push_back(fields_of(line));
  }
  if (table.empty()) {
    throw std::runtime_error(fmt::format("expected ncu's table, which begins with ID, got '{}'",
                                         printed.substr(0, 200)));
  }
  if (table.size() < 3) throw std::runtime_error("ncu profiled no kernel");
  return table;
}

// Of seconds, bytes and percent.
double scale_of(std::string_view unit, std::string_view metric) {
  static const std::map<std::string_view, double> scales{
      {"", 1},        {"%", 1},          {"byte", 1},    {"second", 1},     {"s", 1},
      {"Kbyte", 1e3}, {"Mbyte", 1e6},    {"Gbyte", 1e9}, {"Tbyte", 1e12},   {"nsecond", 1e-9},
      {"ns", 1e-9},   {"usecond", 1e-6}, {"us", 1e-6},   {"msecond", 1e-3}, {"ms", 1e-3}};
  const auto found = scales.find(unit);
  if (found == scales.end()) {
    throw std::runtime_error(
        fmt::format("ncu's {}: expected a unit of time, bytes or %, got '{}'", metric, unit));
  }
  return found->second;
}

double number_of(std::string text, std::string_view metric) {
  std::erase(text, ',');  // 1,234.5
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !(value >= 0)) {
    throw std::runtime_error(
        fmt::format("ncu's {}: expected a number of at least 0, got '{}'", metric, text));
  }
  return value;
}

// A metric of every launch.
std::vector<double> column_of(const std::vector<Fields>& table, std::string_view metric) {
  const auto name = std::ranges::find(table[0], metric);
  if (name == table[0].end()) {
    throw std::runtime_error(fmt::format("ncu's table has no column {}", metric));
  }
  const auto at = static_cast<std::size_t>(name - table[0].begin());
  const double scale = scale_of(table[1][at], metric);
  std::vector<double> values;
  for (std::size_t line = 2; line < table.size(); ++line) {
    values.push_back(scale * number_of(table[line][at], metric));
  }
  return values;
}

double sum_of(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += value;
  return sum;
}

std::string find_ncu() {
  const char* const path = std::getenv("PATH");
  std::string_view folders = path == nullptr ? "" : path;
  while (!folders.empty()) {
    const std::size_t end = std::min(folders.find(':'), folders.size());
    const std::filesystem::path file = std::filesystem::path(folders.substr(0, end)) / "ncu";
    std::error_code none;
    if (std::filesystem::is_regular_file(file, none)) return file.string();
    folders.remove_prefix(std::min(end + 1, folders.size()));
  }
  throw ps::Unsupported(
      "--counters needs ncu, which is not on PATH: it is part of the CUDA toolkit "
      "(/usr/local/cuda/bin), or can be installed alone: apt-get install nsight-compute");
}

Counters profiled(const std::vector<std::string>& command) {
  const Captured ended = run_captured(command);
  if (ended.text.find("ERR_NVGPUCTRPERM") != std::string::npos) {
    throw ps::Unsupported(
        "--counters: ncu may not read the GPU's counters (ERR_NVGPUCTRPERM): run as root, or allow "
        "all users: put `options nvidia NVreg_RestrictProfilingToAdminUsers=0` into "
        "/etc/modprobe.d/nvidia.conf and reload the driver");
  }
  if (ended.code != 0) {
    constexpr std::size_t shown = 400;
    throw std::runtime_error(
        fmt::format("ncu ended with status {}: {}", ended.code,
                    ended.text.substr(ended.text.size() - std::min(shown, ended.text.size()))));
  }
  return parse_counters(ended.text);
}

}  // namespace

std::vector<std::string> ncu_command(const std::string& ncu, const std::string& program,
                                     const std::vector<std::string>& words) {
  // Clocks are not locked, as in a timed run; only what the program marks is profiled.
  std::vector<std::string> command{ncu,
                                   "--clock-control",
                                   "none",
                                   "--profile-from-start",
                                   "off",
                                   "--metrics",
                                   fmt::format("{},{},{},{},{}", time_metric, read_metric,
                                               written_metric, dram_metric, hit_metric),
                                   "--csv",
                                   "--page",
                                   "raw",
                                   "--print-units",
                                   "base",
                                   program};
  command.insert(command.end(), words.begin(), words.end());
  return command;
}

Counters parse_counters(std::string_view printed) {
  const std::vector<Fields> table = table_of(printed);
  const std::vector<double> seconds = column_of(table, time_metric);
  const std::vector<double> dram = column_of(table, dram_metric);
  const std::vector<double> hits = column_of(table, hit_metric);
  Counters counters{.launches = seconds.size(),
                    .seconds = sum_of(seconds),
                    .dram_read_bytes = sum_of(column_of(table, read_metric)),
                    .dram_written_bytes = sum_of(column_of(table, written_metric))};
  if (!(counters.seconds > 0)) throw std::runtime_error("ncu measured no time");
  for (std::size_t i = 0; i < seconds.size(); ++i) {
    const double weight = seconds[i] / counters.seconds / 100;
    counters.dram_share += dram[i] * weight;
    counters.l2_hit_rate += hits[i] * weight;
  }
  return counters;
}

void measure_counters(std::vector<RungRows>& results, const ProfileWords& words,
                      const std::function<void(const Rung&, double fraction)>& starting,
                      const std::stop_token& stop) {
  const std::string ncu = find_ncu();
  const std::string self = std::filesystem::read_symlink("/proc/self/exe").string();
  std::size_t count = 0, done = 0;
  for (const RungRows& result : results) {
    for (const Row& row : result.rows) count += row.number ? 1 : 0;
  }
  for (RungRows& result : results) {
    for (Row& row : result.rows) {
      if (!row.number) continue;
      if (stop.stop_requested()) throw ps::Cancelled();
      starting(result.rung, static_cast<double>(done++) / static_cast<double>(count));
      row.counters = profiled(ncu_command(ncu, self, words(result.rung, *row.number)));
    }
  }
}

}  // namespace ladder
