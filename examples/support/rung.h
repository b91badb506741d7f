// What a rung of the ladder is: a function that measures something and returns rows.
//
//   std::vector<ladder::Row> run(ladder::Context& context) { ... }
//   PENSTOCK_RUNG("depth", "One sentence on what this rung shows.", run);
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "penstock/trace/timeline.h"

namespace ladder {

class Context;

struct Row {
  std::string label = {};
  std::string work = {};  // rows of equal work are compared; empty: those of this rung
  double seconds = 0;     // 0: nothing was measured, and the note says why
  // Against the first row of the same work in this program; filled in afterwards where empty.
  std::optional<double> speedup = {};
  std::optional<double> hidden = {};
  std::optional<double> efficiency = {};
  std::optional<ps::Gaps> gaps = {};  // of the upload engine
  std::string note = {};
};

// A row that says why a rung does not run here.
inline std::vector<Row> not_here(std::string why) {
  return {{.label = "-", .note = std::move(why)}};
}

struct Rung {
  std::string_view ladder;  // the folder of its file, "host"
  std::string_view file;    // orders the ladder: 01_..., 02_...
  std::string_view name;
  std::string_view sentence;
  std::vector<Row> (*run)(Context& context) = nullptr;
};

// Every rung linked into this program, ladder by ladder, in the order of their files.
std::vector<Rung> rungs();

namespace detail {
struct Registration {
  Registration(std::string_view path, std::string_view name, std::string_view sentence,
               std::vector<Row> (*run)(Context& context));
};
}  // namespace detail

}  // namespace ladder

#define PENSTOCK_RUNG(name, sentence, function) \
  static const ladder::detail::Registration registration(__FILE__, name, sentence, function)
