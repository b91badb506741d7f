// Timelines.
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <string>
#include <utility>
#include <vector>

#include "bindings.h"
#include "engine.h"
#include "penstock/measure/page.h"
#include "penstock/trace/page.h"
#include "penstock/trace/timeline.h"

namespace ps::python {
namespace {

nb::list entries(const Timeline& timeline) {
  const nb::object entry_class = nb::module_::import_("penstock._timeline").attr("Entry");
  nb::list list;
  for (const TimelineEntry& e : timeline.entries()) {
    list.append(entry_class(nb::str(name(e.engine).data(), name(e.engine).size()), e.stage, e.item,
                            e.begin_ns, e.end_ns));
  }
  return list;
}

// The page that `penstock report` writes, with these runs below each other.
std::string page(const std::vector<std::pair<std::string, const Timeline*>>& runs,
                 const std::string& title) {
  PageTimelines section{.title = title};
  for (const auto& [name, timeline] : runs) {
    section.runs.push_back(
        {.name = name, .entries = timeline->entries(), .lost_records = timeline->lost_records()});
  }
  Page page = make_page(title);
  page.add(section);
  return page.html();
}

}  // namespace

void bind_timeline(nb::module_& m) {
  nb::class_<Gaps>(m, "Gaps", "The idle times of one engine between its first and its last work.")
      .def_ro("count", &Gaps::count)
      .def_ro("total_seconds", &Gaps::total_seconds)
      .def_ro("largest_seconds", &Gaps::largest_seconds)
      .def("__repr__", [](const Gaps& g) {
        return "Gaps(count=" + std::to_string(g.count) +
               ", total_seconds=" + std::to_string(g.total_seconds) +
               ", largest_seconds=" + std::to_string(g.largest_seconds) + ")";
      });
  nb::class_<Timeline>(m, "Timeline", nb::dynamic_attr(),
                       R"(Records when each engine worked on which stage and item.

Pass one to :meth:`Pipeline.run` as `recorder`. Notebooks display it as a chart.

>>> import penstock
>>> timeline = penstock.Timeline()
>>> pipeline = penstock.Pipeline("cpu")
>>> work = pipeline.host_stage("work", lambda item: sum(range(10_000)))
>>> report = pipeline.run(3, recorder=timeline)
>>> [(entry.stage, entry.item) for entry in timeline.entries()]
[('work', 0), ('work', 1), ('work', 2)]
>>> timeline.busy_seconds("host") > 0
True
)")
      .def(nb::init<>())
      .def("entries", &entries, nb::sig("def entries(self) -> list[penstock._timeline.Entry]"),
           "All intervals, sorted by their start.")
      .def(
          "busy_seconds",
          [](const Timeline& t, const std::string& engine) {
            return t.busy_seconds(engine_from(engine));
          },
          nb::arg("engine"), "How long the engine worked; overlapping intervals count once.")
      .def(
          "gaps",
          [](const Timeline& t, const std::string& engine) { return t.gaps(engine_from(engine)); },
          nb::arg("engine"), "Idle time between the engine's first and its last work.")
      .def_prop_ro("span_seconds", &Timeline::span_seconds,
                   "The time from the first start to the last end.")
      .def_prop_ro("complete", &Timeline::complete, "True if no record was lost.")
      .def_prop_ro("lost_records", &Timeline::lost_records,
                   "Records missing because memory ran out or CUPTI dropped them.")
      .def("clear", &Timeline::clear)
      .def("__len__", [](const Timeline& t) { return t.entries().size(); })
      .def(
          "array",
          [](nb::handle self) {
            return nb::module_::import_("penstock._timeline").attr("as_array")(self);
          },
          nb::sig("def array(self) -> typing.Any"), "The entries as a structured NumPy array.")
      .def(
          "_repr_html_",
          [](nb::handle self) {
            return nb::module_::import_("penstock._html").attr("of_timeline")(self);
          },
          nb::sig("def _repr_html_(self) -> str"))
      .def("__repr__", [](const Timeline& t) {
        return "<penstock.Timeline of " + std::to_string(t.entries().size()) + " intervals>";
      });
  m.def("page", &page, nb::arg("runs"), nb::arg("title"));
}

}  // namespace ps::python
