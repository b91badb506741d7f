// Makes a self-contained HTML page that shows runs and results: timelines with zoom, tables, plots,
// a roofline. The page needs no network and opens in any browser.
//
//   const ps::PageRun run{.name = "pipelined", .entries = timeline.entries()};
//   ps::Page page({.title = "My run"});
//   page.add(ps::PageTimelines{.title = "Timeline", .runs = {run}});
//   ps::write_text("run.html", page.html());
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "penstock/trace/kernel_trace.h"
#include "penstock/trace/timeline.h"

namespace ps {

struct PageOptions {
  std::string title = "Penstock";
  std::string version{}, commit{}, date{};  // of the program that made the page; shown if given
};

struct PageFact {
  std::string label, value, note{};
};

struct PageFacts {
  std::string title{};
  std::vector<PageFact> rows{};
};

struct PageColumn {
  std::string name;
  bool numeric = true;
  bool share = false;  // its cells are numbers, 1 for the limit, and are drawn as bars
};

// Text, shown as it is, or the number of a share column; NaN means "unknown".
using PageCell = std::variant<std::string, double>;

struct PageTable {
  std::string title{}, note{};
  std::vector<PageColumn> columns{};
  std::vector<std::vector<PageCell>> rows{};
};

// The roles inside one kernel, shown in lanes below those of the run's engines. A click on the
// kernel's bar, which is compute's interval of this stage and item, zooms into them.
struct PageKernel {
  std::string name;
  std::string stage{};
  std::uint64_t item = 0;
  KernelRoles roles{};  // with times on the run's axis
};

struct PageRun {
  std::string name;
  std::vector<TimelineEntry> entries{};
  std::vector<PageKernel> kernels{};
  std::uint64_t lost_records = 0;  // Timeline::lost_records(); shown if it is not 0
};

// Runs below each other on one time axis; each starts at its first begin.
struct PageTimelines {
  std::string title{}, note{};
  std::vector<PageRun> runs{};
};

struct PageAxis {
  std::string label{};
  std::string unit{};  // "bytes", "us", "count" or empty; determines how ticks are labelled
  bool logarithmic = false;
};

struct PageSeries {
  std::string name;
  std::vector<std::pair<double, double>> points{};
  bool line = true;
  bool marks = true;  // at the points; without, a single point still has one
};

struct PageMarker {
  std::string name;
  double x = 0;
};

struct PagePlot {
  std::string title{}, note{};
  PageAxis x{}, y{};
  std::vector<PageSeries> series{};
  std::vector<PageMarker> markers{};
};

// A sloped ceiling (bytes per second) or a flat one (operations per second); the other is 0.
struct PageCeiling {
  std::string name;
  double bytes_per_second = 0;
  double flops = 0;
};

struct PageWork {
  std::string name;
  double intensity = 0;  // operations per byte
  double flops = 0;      // operations per second, measured
};

struct PageRoofline {
  std::string title{}, note{};
  std::vector<PageCeiling> ceilings{};
  std::vector<PageWork> work{};
};

// Shows its sections in the order in which they were added. Move-only.
class Page {
 public:
  explicit Page(PageOptions options = {});
  ~Page();
  Page(Page&&) noexcept;
  Page& operator=(Page&&) noexcept;

  void add(const PageFacts& section);
  // Throws InvalidArgument if a row does not have one cell per column.
  void add(const PageTable& section);
  // Throws InvalidArgument if a kernel has no interval in its run, or a span's role has no name.
  void add(const PageTimelines& section);
  void add(const PagePlot& section);
  void add(const PageRoofline& section);

  std::string html() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace ps
