// Inspecting the machine, and measuring bandwidths and overlap. Results are passed as the JSON
// documents that the program prints.
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>

#include <memory>
#include <utility>

#include "bindings.h"
#include "device.h"
#include "errors.h"
#include "interpreter.h"
#include "interruptible.h"
#include "penstock/base/error.h"
#include "penstock/measure/limits_cache.h"
#include "penstock/measure/machine.h"
#include "penstock/measure/overlap.h"
#include "penstock/measure/report.h"

namespace ps::python {
namespace {

nb::list as_list(const std::vector<Finding>& found) {
  nb::list list;
  for (const Finding& finding : found) {
    nb::dict d;
    d["severity"] = std::string(name(finding.severity));
    d["what"] = finding.what;
    d["why"] = finding.why;
    d["fix"] = finding.fix;
    list.append(d);
  }
  return list;
}

nb::tuple inspect() {
  const Machine machine = without_lock([] { return inspect_machine(); });
  return nb::make_tuple(as_json(machine), as_list(findings(machine)));
}

nb::tuple limits(nb::handle device, bool quick, bool fresh, bool disk, const std::string& directory,
                 const nb::object& progress) {
  const Device on = device_from(device);
  LimitsRequest request{.measure = quick ? quick_limits() : LimitsOptions{},
                        .fresh = fresh,
                        .keep = !quick,  // rough figures are not cached
                        .this_directory = true};
  request.measure.disk = disk;
  request.measure.directory = directory;
  LimitsAnswer answer;
  naming(directory, [&] {
    interruptible(progress, [&](const std::stop_token& stop, const Report& report) {
      request.measure.stop = stop;
      request.measure.progress = [&](const LimitsProgress& now) {
        report(description(now.ceiling), now.fraction);
      };
      answer = obtain_limits(on, request);
    });
  });
  nb::list warnings;
  for (const std::string& warning : answer.warnings) warnings.append(warning);
  return nb::make_tuple(as_json(answer.limits), answer.cached, warnings);
}

Ways ways_from(int ways) {
  if (ways == 2) return Ways::two;
  if (ways == 3) return Ways::three;
  if (ways == 4) return Ways::four;
  throw InvalidArgument("ways", "2, 3 or 4", std::to_string(ways));
}

nb::tuple overlap(nb::handle device, int ways, std::size_t items, std::size_t item_bytes,
                  std::size_t chunk, std::size_t depth, double compute_ratio, int rounds,
                  int repeats, const nb::object& progress) {
  const Device on = device_from(device);
  OverlapOptions options{.device = on,
                         .ways = ways_from(ways),
                         .chunk = chunk,
                         .depth = depth,
                         .compute_ratio = compute_ratio,
                         .rounds = rounds,
                         .repeats = repeats};
  std::shared_ptr<OverlapResult> result;
  std::string document;
  interruptible(progress, [&](const std::stop_token& stop, const Report& report) {
    report("initialising memory", 0);
    OverlapExperiment experiment(on, items, item_bytes);
    options.stop = stop;
    options.progress = report;
    result = experiment.run(options);
    document = as_json(*result, on, false);
  });
  const auto part = [&](Timeline& timeline) {
    return std::shared_ptr<Timeline>(result, &timeline);
  };
  return nb::make_tuple(document, part(result->sequential_timeline),
                        part(result->pipelined_timeline));
}

}  // namespace

void bind_measure(nb::module_& m) {
  m.def("inspect", &inspect, nb::sig("def inspect() -> tuple[str, list[dict[str, str]]]"));
  m.def("limits", &limits, nb::arg("device").none(), nb::arg("quick"), nb::arg("fresh"),
        nb::arg("disk"), nb::arg("directory"), nb::arg("progress").none(),
        nb::sig("def limits(device: str | Device | None, quick: bool, fresh: bool, disk: bool, "
                "directory: str, progress: typing.Callable[[str, float], object] | None) -> "
                "tuple[str, bool, list[str]]"));
  m.def("overlap", &overlap, nb::arg("device").none(), nb::arg("ways"), nb::arg("items"),
        nb::arg("item_bytes"), nb::arg("chunk"), nb::arg("depth"), nb::arg("compute_ratio"),
        nb::arg("rounds"), nb::arg("repeats"), nb::arg("progress").none(),
        nb::sig("def overlap(device: str | Device | None, ways: int, items: int, item_bytes: int, "
                "chunk: int, depth: int, compute_ratio: float, rounds: int, repeats: int, "
                "progress: typing.Callable[[str, float], object] | None) -> tuple[str, Timeline, "
                "Timeline]"));
}

}  // namespace ps::python
