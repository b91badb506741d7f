// One self-contained HTML file that shows what runs did: timelines one can zoom into, tables with
// the limit next to every number, plots, a roofline. It needs no network and opens in any browser.
//
//   ps::Page page({.title = "My run"});
//   page.add(ps::PageTimelines{.title = "What ran when", .runs = {{"pipelined",
//   timeline.entries()}}}); ps::write_text("run.html", page.html());
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
  std::string version{}, commit{}, date{};  // of what made it; shown where given
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
  bool share = false;  // its cells are numbers, drawn as a part of the limit
};

// Text as it is to be shown, or the number of a share; NaN stands for "not known".
using PageCell = std::variant<std::string, double>;

struct PageTable {
  std::string title{}, note{};
  std::vector<PageColumn> columns{};
  std::vector<std::vector<PageCell>> rows{};
};

// The inside of one kernel: its roles, in lanes under those of the run's engines. On the page, the
// kernel's bar, which is compute's interval of this stage and item, zooms into them.
struct PageKernel {
  std::string name;
  std::string stage{};
  std::uint64_t item = 0;
  KernelRoles roles{};  // in the run's time
};

struct PageRun {
  std::string name;
  std::vector<TimelineEntry> entries{};
  std::vector<PageKernel> kernels{};
  std::uint64_t lost_records = 0;  // Timeline::lost_records(); shown if it is not 0
};

// Runs under each other on one axis of time, each from its first begin.
struct PageTimelines {
  std::string title{}, note{};
  std::vector<PageRun> runs{};
};

struct PageAxis {
  std::string label{};
  std::string unit{};  // "bytes", "us", "count" or none: how its ticks are written
  bool logarithmic = false;
};

struct PageSeries {
  std::string name;
  std::vector<std::pair<double, double>> points{};
  bool line = true;
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

// A slope (bytes a second) or a roof (operations a second); the other one is 0.
struct PageCeiling {
  std::string name;
  double bytes_per_second = 0;
  double flops = 0;
};

struct PageWork {
  std::string name;
  double intensity = 0;  // operations per byte
  double flops = 0;      // operations a second, achieved
};

struct PageRoofline {
  std::string title{}, note{};
  std::vector<PageCeiling> ceilings{};
  std::vector<PageWork> work{};
};

// Sections stand in the order in which they are added. Move-only.
class Page {
 public:
  explicit Page(PageOptions options = {});
  ~Page();
  Page(Page&&) noexcept;
  Page& operator=(Page&&) noexcept;

  void add(const PageFacts& section);
  // Throws InvalidArgument on a row that has not one cell a column.
  void add(const PageTable& section);
  // Throws InvalidArgument on a kernel that has no bar in its run, or spans of a role without name.
  void add(const PageTimelines& section);
  void add(const PagePlot& section);
  void add(const PageRoofline& section);

  std::string html() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace ps
