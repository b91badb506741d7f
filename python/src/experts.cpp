// Expert layers whose weights stay in host memory, for penstock/_experts.py.
#include "penstock/outofcore/experts.h"

#include <fmt/format.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/variant.h>
#include <nanobind/stl/vector.h>

#include <cstddef>
#include <cstdint>
#include <exception>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "array.h"
#include "bindings.h"
#include "call_pool.h"
#include "call_stream.h"
#include "interpreter.h"
#include "moe_names.h"
#include "penstock/base/error.h"
#include "penstock/base/units.h"
#include "penstock/outofcore/compressed_expert_store.h"
#include "penstock/outofcore/disk_expert_store.h"
#include "penstock/outofcore/expert_store.h"
#include "views.h"

namespace ps::python {
namespace {

using SharedStore = std::shared_ptr<const ExpertStore>;
using AnyStore = std::variant<std::shared_ptr<ExpertStore>, std::shared_ptr<CompressedExpertStore>,
                              std::shared_ptr<DiskExpertStore>>;

// The memory of a part of an expert, as bytes in the order in which they are stored.
Array part_of_expert(const SharedStore& store, std::int64_t layer, std::int64_t expert,
                     std::string_view part) {
  const TensorView view = without_lock([&] {
    if (part == "gate_up") return store->gate_up(layer, expert);
    if (part == "down") return store->down(layer, expert);
    if (part == "gate_up_bias") return store->gate_up_bias(layer, expert);
    return store->down_bias(layer, expert);
  });
  const auto bytes = view.elements() * static_cast<std::int64_t>(size_of(view.dtype()));
  return {TensorView(view.data(), DType::u8, {bytes}, view.place()), store};
}

ExpertPrefetch prefetch_named(std::string_view name) {
  if (name == "none") return ExpertPrefetch::none;
  if (name == "previous") return ExpertPrefetch::previous;
  throw InvalidArgument("prefetch", "'none' or 'previous'", fmt::format("'{}'", name));
}

HostExperts host_experts_named(std::string_view name) {
  if (name == "none") return HostExperts::none;
  if (name == "balanced") return HostExperts::balanced;
  if (name == "fixed") return HostExperts::fixed;
  throw InvalidArgument("host_experts", "'none', 'balanced' or 'fixed'", fmt::format("'{}'", name));
}

// StreamedExperts and the store that it reads.
class OpenedExperts {
 public:
  OpenedExperts(AnyStore store, StreamedExpertsOptions options)
      : store_(std::move(store)),
        device_(options.device),
        experts_(without_lock([&] {
          if (const auto* plain = std::get_if<std::shared_ptr<ExpertStore>>(&store_)) {
            options.store = plain->get();
          } else if (const auto* disk = std::get_if<std::shared_ptr<DiskExpertStore>>(&store_)) {
            options.disk = disk->get();
          } else {
            options.compressed = std::get<std::shared_ptr<CompressedExpertStore>>(store_).get();
          }
          return std::make_shared<StreamedExperts>(std::move(options));
        })),
        closed_at_exit_([experts = std::weak_ptr(experts_)] {
          const auto open = experts.lock();
          if (!open) return;
          try {
            open->close();
          } catch (const std::exception&) {
            // The process ends in any case.
          }
        }) {}
  ~OpenedExperts() {
    without_lock([&] { experts_.reset(); });
  }
  OpenedExperts(const OpenedExperts&) = delete;
  OpenedExperts& operator=(const OpenedExperts&) = delete;

  StreamedExperts& experts() const { return *experts_; }
  const ExpertShape& shape() const {
    return std::visit([](const auto& store) -> const ExpertShape& { return store->shape(); },
                      store_);
  }
  MemoryView any_block() const {
    if (const auto* disk = std::get_if<std::shared_ptr<DiskExpertStore>>(&store_)) {
      return (*disk)->memory().sub(0, (*disk)->block_bytes());
    }
    if (const auto* plain = std::get_if<std::shared_ptr<ExpertStore>>(&store_)) {
      return (*plain)->block(0, 0);
    }
    return std::get<std::shared_ptr<CompressedExpertStore>>(store_)->block(0, 0);
  }
  const Device& device() const { return device_; }

  // Work for these arrays is done on a stream of the device that has the experts.
  void check_device(const CallStream& on, const char* argument) const {
    const Device given = on.stream ? on.stream->device() : Device::cpu();
    if (given == device_) return;
    throw InvalidArgument(argument, "an array on " + device_.name() + ", as the experts are",
                          "one on " + given.name());
  }

 private:
  AnyStore store_;
  Device device_;
  std::shared_ptr<StreamedExperts> experts_;
  StoppedAtExit closed_at_exit_;
};

void forward(const OpenedExperts& self, std::int64_t layer, nb::handle x, nb::handle ids,
             nb::handle weights, nb::handle shared_gate_up, nb::handle shared_down,
             nb::handle shared_weights, std::string_view activation, float alpha, float limit,
             std::string_view kernel, bool batch_invariant, bool check, nb::handle out,
             nb::handle workspace, nb::handle stream) {
  const CallStream on = stream_or_current(stream, std::initializer_list{x, ids, out});
  self.check_device(on, "x");
  Views views(on);
  MoeOptions options{.x = views.add(x, "x"),
                     .ids = views.add(ids, "ids"),
                     .weights = views.add(weights, "weights"),
                     .out = views.add_written(out, "out"),
                     .activation = activation_named(activation),
                     .alpha = alpha,
                     .limit = limit,
                     .shared_gate_up = views.add(shared_gate_up, "shared_gate_up"),
                     .shared_down = views.add(shared_down, "shared_down"),
                     .shared_weights = views.add(shared_weights, "shared_weights"),
                     .workspace = views.add_memory(workspace, "workspace"),
                     .batch_invariant = batch_invariant,
                     .kernel = kernel_named(kernel),
                     .check = check};
  if (workspace.is_none()) options.pool = &call_pool(self.device());
  run_on(on.stream, [&](const Stream& own) { self.experts().forward(layer, options, own); });
}

// What forward() needs. The contents of the arrays are not read.
std::size_t workspace_bytes(const OpenedExperts& self, nb::handle x, nb::handle ids,
                            nb::handle shared_gate_up) {
  const CallStream on{.stream = std::nullopt, .library = exchange_of(x)};
  Views views(on);
  MoeOptions options{.x = views.add(x, "x"),
                     .ids = views.add(ids, "ids"),
                     .shared_gate_up = views.add(shared_gate_up, "shared_gate_up")};
  const ExpertShape& shape = self.shape();
  // Only shapes matter here, so the memory is that of any block.
  const auto slots = static_cast<std::int64_t>(self.experts().slots());
  const MemoryView block = without_lock([&] { return self.any_block(); });
  ExpertStore::set_weights(shape, block, slots, options);
  options.slots = TensorView(block.data, DType::i32, {shape.experts}, block.place);
  return moe_workspace_bytes(options);
}

void prefetch_ids(const OpenedExperts& self, std::int64_t layer, nb::handle ids,
                  nb::handle stream) {
  const CallStream on = stream_or_current(stream, std::initializer_list{ids});
  self.check_device(on, "experts");
  Views views(on);
  const TensorView view = views.add(ids, "experts");
  run_on(on.stream, [&](const Stream& own) { self.experts().prefetch(layer, view, own); });
}

nb::dict statistics_of(const OpenedExperts& self) {
  const ExpertStatistics counted = without_lock([&] { return self.experts().statistics(); });
  nb::dict d;
  d["calls"] = counted.calls;
  d["needed"] = counted.needed;
  d["hits"] = counted.hits;
  d["late"] = counted.late;
  d["misses"] = counted.misses;
  d["on_host"] = counted.on_host;
  d["prefetched"] = counted.prefetched;
  d["wasted"] = counted.wasted;
  d["evicted"] = counted.evicted;
  d["bytes"] = counted.bytes;
  d["failed_calls"] = counted.failed_calls;
  return d;
}

nb::list records_of(const OpenedExperts& self) {
  nb::list records;
  for (const ExpertCallRecord& call : without_lock([&] { return self.experts().records(); })) {
    nb::dict d;
    d["layer"] = call.layer;
    d["tokens"] = call.tokens;
    d["needed"] = call.needed;
    d["hits"] = call.hits;
    d["late"] = call.late;
    d["misses"] = call.misses;
    d["on_host"] = call.on_host;
    d["groups"] = call.groups;
    d["enqueued_ns"] = call.enqueued_ns;
    d["routed_ns"] = call.routed_ns;
    d["answered_ns"] = call.answered_ns;
    records.append(d);
  }
  return records;
}

void bind_store(nb::module_& m) {
  nb::class_<ExpertShape>(m, "ExpertShape", "The arguments of penstock.ExpertStore.")
      .def(
          "__init__",
          [](ExpertShape* self, std::int64_t layers, std::int64_t experts, std::int64_t hidden,
             std::int64_t width, const std::string& dtype, std::string_view layout, bool transposed,
             bool bias) {
            new (self) ExpertShape{.layers = layers,
                                   .experts = experts,
                                   .hidden = hidden,
                                   .width = width,
                                   .dtype = parse_dtype(dtype),
                                   .layout = layout_named(layout),
                                   .transposed = transposed,
                                   .gate_up_bias = bias,
                                   .down_bias = bias};
          },
          nb::arg("layers"), nb::arg("experts"), nb::arg("hidden"), nb::arg("width"),
          nb::arg("dtype"), nb::arg("layout"), nb::arg("transposed"), nb::arg("bias"))
      .def_prop_ro("nbytes",
                   [](const ExpertShape& self) { return ExpertStore::bytes_needed(self); })
      .def(
          "least_bytes",
          [](const ExpertShape& self, std::size_t pinned, std::size_t calls_in_flight,
             bool compressed) {
            return StreamedExperts::least_bytes(self, pinned, calls_in_flight, compressed);
          },
          nb::arg("pinned"), nb::arg("calls_in_flight"), nb::arg("compressed"),
          "Of the memory of a GPU.");
  nb::class_<ExpertStore>(m, "ExpertStore", "The experts of a model; see penstock.ExpertStore.")
      .def(nb::new_([](const Device& device, const ExpertShape& shape) {
             return without_lock([&] { return std::make_shared<ExpertStore>(device, shape); });
           }),
           nb::arg("device"), nb::arg("shape"))
      .def_prop_ro("nbytes", &ExpertStore::bytes)
      .def_prop_ro("block_bytes", nb::overload_cast<>(&ExpertStore::block_bytes, nb::const_));
  m.def("expert_part", &part_of_expert, nb::arg("store"), nb::arg("layer"), nb::arg("expert"),
        nb::arg("part"),
        nb::sig("def expert_part(store: ExpertStore, layer: int, expert: int, part: str) -> Array"),
        "The bytes of 'gate_up', 'down', 'gate_up_bias' or 'down_bias' of an expert.");
}

void bind_compressed_store(nb::module_& m) {
  nb::class_<CompressedExpertStore>(m, "CompressedExpertStore",
                                    "See penstock.CompressedExpertStore.")
      .def(nb::new_([](const Device& device, const ExpertShape& shape) {
             return without_lock(
                 [&] { return std::make_shared<CompressedExpertStore>(device, shape); });
           }),
           nb::arg("device"), nb::arg("shape"))
      .def(
          "set",
          [](CompressedExpertStore& self, std::int64_t layer, std::int64_t expert,
             const ExpertStore& plain, std::int64_t plain_layer, std::int64_t plain_expert) {
            without_lock([&] { self.set(layer, expert, plain.block(plain_layer, plain_expert)); });
          },
          nb::arg("layer"), nb::arg("expert"), nb::arg("plain"), nb::arg("plain_layer"),
          nb::arg("plain_expert"))
      .def_prop_ro("count", &CompressedExpertStore::count)
      .def_prop_ro("complete", &CompressedExpertStore::complete)
      .def_prop_ro("nbytes", &CompressedExpertStore::bytes);
}

void bind_opened(nb::module_& m) {
  nb::class_<OpenedExperts>(m, "StreamedExperts", "See penstock.StreamedExperts.")
      .def(
          "__init__",
          [](OpenedExperts* self, AnyStore store, const Device& device, std::size_t device_bytes,
             std::string_view policy, std::vector<std::pair<std::int64_t, std::int64_t>> pinned,
             std::string_view prefetch, std::string_view host_experts, double host_share,
             std::size_t host_threads, std::size_t calls_in_flight, std::size_t records) {
            new (self)
                OpenedExperts(std::move(store), {.device = device,
                                                 .device_bytes = device_bytes,
                                                 .policy = policy_named(policy),
                                                 .pinned = std::move(pinned),
                                                 .prefetch = prefetch_named(prefetch),
                                                 .host_experts = host_experts_named(host_experts),
                                                 .host_share = host_share,
                                                 .host_threads = host_threads,
                                                 .calls_in_flight = calls_in_flight,
                                                 .records = records});
          },
          nb::arg("store"), nb::arg("device"), nb::arg("device_bytes"), nb::arg("policy"),
          nb::arg("pinned"), nb::arg("prefetch"), nb::arg("host_experts"), nb::arg("host_share"),
          nb::arg("host_threads"), nb::arg("calls_in_flight"), nb::arg("records"))
      .def("forward", &forward, nb::arg("layer"), nb::arg("x").none(), nb::arg("ids").none(),
           nb::arg("weights").none(), nb::arg("shared_gate_up").none(),
           nb::arg("shared_down").none(), nb::arg("shared_weights").none(), nb::arg("activation"),
           nb::arg("alpha"), nb::arg("limit"), nb::arg("kernel"), nb::arg("batch_invariant"),
           nb::arg("check"), nb::arg("out").none(), nb::arg("workspace").none(),
           nb::arg("stream").none(),
           nb::sig("def forward(self, layer: int, x: typing.Any, ids: typing.Any, weights: "
                   "typing.Any, shared_gate_up: typing.Any, shared_down: typing.Any, "
                   "shared_weights: typing.Any, activation: str, alpha: float, limit: float, "
                   "kernel: str, batch_invariant: bool, check: bool, out: typing.Any, workspace: "
                   "typing.Any, stream: typing.Any) -> None"))
      .def("workspace_bytes", &workspace_bytes, nb::arg("x").none(), nb::arg("ids").none(),
           nb::arg("shared_gate_up").none(),
           nb::sig("def workspace_bytes(self, x: typing.Any, ids: typing.Any, shared_gate_up: "
                   "typing.Any) -> int"))
      .def(
          "prefetch",
          [](const OpenedExperts& self, std::int64_t layer,
             const std::vector<std::int32_t>& experts) {
            without_lock([&] { self.experts().prefetch(layer, experts); });
          },
          nb::arg("layer"), nb::arg("experts"))
      .def("prefetch_ids", &prefetch_ids, nb::arg("layer"), nb::arg("ids"),
           nb::arg("stream").none(),
           nb::sig("def prefetch_ids(self, layer: int, ids: typing.Any, stream: typing.Any) -> "
                   "None"))
      .def("clear",
           [](const OpenedExperts& self) { without_lock([&] { self.experts().clear(); }); })
      .def("check",
           [](const OpenedExperts& self) { without_lock([&] { self.experts().check(); }); })
      .def("synchronize",
           [](const OpenedExperts& self) { without_lock([&] { self.experts().synchronize(); }); })
      .def("close",
           [](const OpenedExperts& self) { without_lock([&] { self.experts().close(); }); })
      .def_prop_ro("statistics", &statistics_of, nb::sig("def statistics(self) -> dict[str, int]"))
      .def_prop_ro("records", &records_of, nb::sig("def records(self) -> list[dict[str, int]]"))
      .def_prop_ro("slots", [](const OpenedExperts& self) { return self.experts().slots(); })
      .def_prop_ro("device_bytes",
                   [](const OpenedExperts& self) { return self.experts().device_bytes(); })
      .def_prop_ro("device", [](const OpenedExperts& self) { return self.device(); });
}

// Others go on to the translator of the module.
void translate(const std::exception_ptr& failure, void* /*payload*/) {
  try {
    std::rethrow_exception(failure);
  } catch (const ExpertsClosed& error) {
    const nb::object type = nb::module_::import_("penstock._errors").attr("ExpertsClosed");
    PyErr_SetString(type.ptr(), error.what());
  }
}

}  // namespace

void bind_experts(nb::module_& m) {
  nb::register_exception_translator(translate);
  bind_store(m);
  bind_compressed_store(m);
  bind_packed_experts(m);
  bind_opened(m);
  m.def(
      "parse_bytes",
      [](std::string_view text, std::string_view argument) { return parse_bytes(text, argument); },
      nb::arg("text"), nb::arg("argument"), "Bytes from text such as '20GiB'.");
}

}  // namespace ps::python
