#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "bindings.h"
#include "device.h"
#include "engine.h"
#include "penstock/base/error.h"
#include "pipeline.h"

namespace ps::python {
namespace {

// Stage functions may refer to the pipeline: cycles that the garbage collector must see.
int traverse(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  if (!nb::inst_ready(self)) return 0;
  for (const nb::object& function : nb::inst_ptr<PipelineOfPython>(self)->functions()) {
    Py_VISIT(function.ptr());
  }
  return 0;
}

int clear(PyObject* self) {
  for (nb::object& function : nb::inst_ptr<PipelineOfPython>(self)->functions()) function.reset();
  return 0;
}

PyType_Slot slots[] = {{Py_tp_traverse, reinterpret_cast<void*>(traverse)},
                       {Py_tp_clear, reinterpret_cast<void*>(clear)},
                       {0, nullptr}};

Memory memory_from(const std::string& memory) {
  if (memory == "pinned") return Memory::pinned;
  if (memory == "device") return Memory::device;
  throw InvalidArgument("memory", "'pinned' or 'device'", "'" + memory + "'");
}

void refuse_uncallable(nb::handle function) {
  if (PyCallable_Check(function.ptr()) != 0) return;
  throw InvalidArgument("function", "a function of one item", nb::repr(function).c_str());
}

nb::tuple shape_of(const Ring& ring) {
  nb::list list;
  for (const std::int64_t extent : ring.shape) list.append(extent);
  return nb::tuple(list);
}

nb::dict done_by_stage(const RunReport& report) {
  nb::dict d;
  for (const StageReport& stage : report.stages) d[nb::str(stage.name.c_str())] = stage.done;
  return d;
}

nb::dict waits_by_ring(const RunReport& report) {
  nb::dict d;
  for (const RingReport& ring : report.rings) d[nb::str(ring.name.c_str())] = ring.exhausted;
  return d;
}

void bind_parts(nb::module_& m) {
  nb::class_<Ring>(m, "Ring", "A ring of slots, created by :meth:`Pipeline.ring`.")
      .def_ro("name", &Ring::name)
      .def_ro("bytes", &Ring::bytes, "The size of one slot.")
      .def_prop_ro("shape", &shape_of, nb::sig("def shape(self) -> tuple[int, ...]"))
      .def_prop_ro("dtype", [](const Ring& r) { return std::string(name(r.dtype)); })
      .def("__repr__", [](const Ring& r) { return "<penstock.Ring '" + r.name + "'>"; });
  nb::class_<Stage>(m, "Stage", "A stage of a pipeline, to be passed as `after`.")
      .def_ro("name", &Stage::name)
      .def("__repr__", [](const Stage& s) { return "<penstock.Stage '" + s.name + "'>"; });
  nb::class_<ItemOfPython>(m, "Item", R"(The argument of a stage function: the item to work on.

The item and its slots may be used until the function returns; later use raises RuntimeError. A NumPy
or torch view of a slot remains valid memory after that, but other items will overwrite it.)")
      .def_prop_ro("index", &ItemOfPython::index, "The number of the item, starting at 0.")
      .def("slot", &ItemOfPython::slot, nb::arg("ring"),
           nb::sig("def slot(self, ring: Ring | str) -> Array"),
           "The slot of this item in a ring, which must be in the `uses` of the stage.")
      .def_prop_ro("stream", &ItemOfPython::stream,
                   "The stream to enqueue work on. Host stages have none.")
      .def_prop_ro("stopping", &ItemOfPython::stopping,
                   "True if the run is about to stop early. Long stage functions should check it.")
      .def("__repr__", [](const ItemOfPython& i) {
        return "<penstock.Item " + std::to_string(i.index()) + (i.over() ? ", over>" : ">");
      });
  nb::class_<RunReport>(m, "RunReport", "The result of a run.")
      .def_ro("items", &RunReport::items, "The number of items that all stages are done with.")
      .def_ro("cancelled", &RunReport::cancelled)
      .def_ro("seconds", &RunReport::seconds, "From the first submission to the last completion.")
      .def_ro("submit_cpu_seconds", &RunReport::submit_cpu_seconds,
              "The CPU time of the thread that enqueued the work of the device stages.")
      .def_ro(
          "allocations", &RunReport::allocations,
          "The number of buffers, streams and events created in the run; 0 from the second run on.")
      .def_prop_ro("stages", &done_by_stage, nb::sig("def stages(self) -> dict[str, int]"),
                   "The number of items done by each stage.")
      .def_prop_ro("rings", &waits_by_ring, nb::sig("def rings(self) -> dict[str, int]"),
                   "How often an item had to wait for a slot, for each ring.")
      .def("__repr__", [](const RunReport& r) {
        return "<penstock.RunReport: " + std::to_string(r.items) + " items in " +
               std::to_string(r.seconds) + " s" + (r.cancelled ? ", cancelled>" : ">");
      });
}

}  // namespace

void bind_pipeline(nb::module_& m) {
  bind_parts(m);
  using P = PipelineOfPython;
  nb::class_<P>(m, "Pipeline", nb::type_slots(slots), nb::is_weak_referenceable(),
                "The base class of penstock.Pipeline.")
      .def(
          "__init__",
          [](P* self, nb::handle device, std::size_t depth) {
            new (self) P(device_from(device), depth);
          },
          nb::arg("device").none(), nb::arg("depth"))
      .def_prop_ro("device", &P::device)
      .def("_ring",
           [](P& p, std::string name, std::size_t bytes, const std::string& dtype,
              std::vector<std::int64_t> shape, const std::string& memory, std::size_t depth) {
             return p.ring(std::move(name),
                           {.memory = memory_from(memory), .bytes = bytes, .depth = depth},
                           parse_dtype(dtype), std::move(shape));
           })
      .def(
          "_stage",
          [](P& p, const std::string& name, nb::object function, nb::handle after, nb::handle uses,
             const std::string& engine, nb::handle stream, bool high_priority) {
            refuse_uncallable(function);
            StageOptions options{.after = p.stages_from(after),
                                 .uses = p.rings_from(uses),
                                 .engine = engine_from(engine),
                                 .priority = high_priority ? Priority::high : Priority::normal};
            if (!stream.is_none()) options.stream = stream_from(stream, p.device());
            return p.device_stage(name, std::move(function), options);
          },
          nb::arg(), nb::arg().none(), nb::arg().none(), nb::arg().none(), nb::arg(),
          nb::arg().none(), nb::arg())
      .def(
          "_host_stage",
          [](P& p, const std::string& name, nb::object function, nb::handle after, nb::handle uses,
             const std::string& engine) {
            refuse_uncallable(function);
            return p.host_stage(name, std::move(function),
                                {.after = p.stages_from(after),
                                 .uses = p.rings_from(uses),
                                 .engine = engine_from(engine)});
          },
          nb::arg(), nb::arg().none(), nb::arg().none(), nb::arg().none(), nb::arg())
      .def(
          "_read_stage",
          [](P& p, const std::string& name, const OpenedFile& file, nb::handle into,
             std::uint64_t offset, nb::handle after) {
            return p.read_stage(name, file, p.ring_from("into", into), offset,
                                {.after = p.stages_from(after), .engine = Engine::disk});
          },
          nb::arg(), nb::arg(), nb::arg().none(), nb::arg(), nb::arg().none())
      .def(
          "_write_stage",
          [](P& p, const std::string& name, const OpenedFile& file, nb::handle source,
             std::uint64_t offset, std::optional<std::uint64_t> size, nb::handle after) {
            return p.write_stage(name, file, p.ring_from("source", source), offset, size,
                                 {.after = p.stages_from(after), .engine = Engine::disk});
          },
          nb::arg(), nb::arg(), nb::arg().none(), nb::arg(), nb::arg().none(), nb::arg().none())
      .def(
          "_run",
          [](P& p, std::uint64_t items, nb::object progress, Timeline* recorder, nb::handle after) {
            PythonRunOptions options{
                .items = items, .progress = std::move(progress), .recorder = recorder};
            if (!after.is_none()) options.after = stream_from(after, p.device());
            return p.run(options);
          },
          nb::arg(), nb::arg().none(), nb::arg().none(), nb::arg().none());
}

}  // namespace ps::python
