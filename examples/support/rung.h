// What a rung of the ladder is: a function that measures something and returns rows.
//
//   std::vector<ladder::Row> run(ladder::Context& context) { ... }
//   PENSTOCK_RUNG("depth", "One sentence on what this rung shows.", run);
//
// kernel_rung.h has the form for rungs that are about one kernel.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "penstock/trace/timeline.h"
#include "support/kernel_use.h"

namespace ladder {

class Context;

// What ncu counted of a row's kernels. Shares are means weighted by time.
struct Counters {
  std::size_t launches = 0;
  double seconds = 0;  // under ncu, which is not a measured time
  double dram_read_bytes = 0, dram_written_bytes = 0;
  double dram_share = 0;   // of the DRAM bandwidth, 1 is its peak
  double l2_hit_rate = 0;  // of the sectors that were asked for
};

struct Row {
  std::string label = {};
  std::string work = {};  // rows of equal work are compared; empty: those of this rung
  double seconds = 0;     // 0: nothing was measured, and the note says why
  double flops = 0;       // floating-point operations of a run; 0: not counted
  // Against the first row of the same work in this program; filled in afterwards where empty.
  std::optional<double> speedup = {};
  std::optional<double> hidden = {};
  std::optional<double> efficiency = {};
  std::optional<double> library = {};  // seconds of the library's own, by turns with this
  std::optional<ps::Gaps> gaps = {};   // of the upload engine
  std::optional<KernelUse> use = {};   // where the row is one kernel
  // By which --counters finds its kernels: Context::profile(). Unset where it has none of its own.
  std::optional<std::size_t> number = {};
  std::optional<Counters> counters = {};
  std::string note = {};
  std::string dropped = {};  // why the row does not count: it was faster than its floor allows
};

// A row that says why a rung does not run here.
inline std::vector<Row> not_here(std::string why) {
  return {{.label = "-", .note = std::move(why)}};
}

// What the machine code of a rung's file holds and what it does without, for the test that reads
// it. A name with modifiers, "LDG.128", stands for every instruction that has them, whatever other
// modifiers stand between: LDG.E.EF.128.
struct Instructions {
  std::vector<std::string_view> holds = {};
  std::vector<std::string_view> lacks = {};
};

struct Rung {
  std::string_view ladder = {};  // the folder of its file, "host"
  std::string_view file = {};    // orders the ladder: 01_..., 02_...
  std::string_view name = {};
  std::string_view sentence = {};
  std::vector<Row> (*run)(Context& context) = nullptr;
  const Instructions* machine = nullptr;  // of a rung about kernels, which needs a GPU
};

// Every rung linked into this program, ladder by ladder, in the order of their files.
std::vector<Rung> rungs();

namespace detail {
struct Registration {
  // The path says which ladder and where in it.
  Registration(std::string_view path, Rung rung);
};
}  // namespace detail

}  // namespace ladder

#define PENSTOCK_RUNG(title, text, function)              \
  static const ladder::detail::Registration registration( \
      __FILE__, {.name = (title), .sentence = (text), .run = (function)})
