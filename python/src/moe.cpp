// The expert layer of mixture-of-experts models, for penstock/_moe.py.
#include <nanobind/stl/string_view.h>

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>

#include "bindings.h"
#include "call_pool.h"
#include "call_stream.h"
#include "moe_names.h"
#include "penstock/ops/moe.h"
#include "views.h"

namespace ps::python {
namespace {

constexpr std::size_t alignment = 64;  // of a workspace in host memory

// torch aligns its tensors. NumPy does not: the workspace begins at the first multiple inside the
// array, which is the same in every step.
MemoryView aligned(const MemoryView& memory, const CallStream& on) {
  const std::size_t past = reinterpret_cast<std::uintptr_t>(memory.data) % alignment;
  const std::size_t skipped = past == 0 || on.library != nullptr ? 0 : alignment - past;
  return skipped < memory.bytes ? memory.sub(skipped, memory.bytes - skipped) : memory;
}

using Step = void (*)(const MoeOptions&, const Stream&);

// One step, or moe() itself, which alone may do without a workspace.
template <Step step, bool allocates>
void moe_arrays(nb::handle x, nb::handle gate_up, nb::handle down, nb::handle ids,
                nb::handle weights, nb::handle gate_up_bias, nb::handle down_bias,
                nb::handle shared_gate_up, nb::handle shared_down, nb::handle shared_weights,
                nb::handle slots, std::string_view activation, float alpha, float limit,
                std::string_view layout, std::string_view kernel, bool batch_invariant, bool check,
                nb::handle out, nb::handle workspace, nb::handle stream) {
  const CallStream on = stream_or_current(stream, std::initializer_list{x, gate_up, out});
  Views views(on);
  MoeOptions options{.x = views.add(x, "x"),
                     .gate_up = views.add(gate_up, "gate_up"),
                     .down = views.add(down, "down"),
                     .ids = views.add(ids, "ids"),
                     .weights = views.add(weights, "weights"),
                     .out = views.add_written(out, "out"),
                     .slots = views.add(slots, "slots"),
                     .layout = layout_named(layout),
                     .gate_up_bias = views.add(gate_up_bias, "gate_up_bias"),
                     .down_bias = views.add(down_bias, "down_bias"),
                     .activation = activation_named(activation),
                     .alpha = alpha,
                     .limit = limit,
                     .shared_gate_up = views.add(shared_gate_up, "shared_gate_up"),
                     .shared_down = views.add(shared_down, "shared_down"),
                     .shared_weights = views.add(shared_weights, "shared_weights"),
                     .workspace = aligned(views.add_memory(workspace, "workspace"), on),
                     .batch_invariant = batch_invariant,
                     .kernel = kernel_named(kernel),
                     .check = check};
  if (allocates && workspace.is_none()) {
    options.pool = &call_pool(on.stream ? on.stream->device() : Device::cpu());
  }
  run_on(on.stream, [&](const Stream& own) { step(options, own); });
}

std::size_t workspace_bytes(nb::handle x, nb::handle gate_up, nb::handle ids, nb::handle slots,
                            nb::handle shared_gate_up) {
  const CallStream on{.stream = std::nullopt, .library = exchange_of(x)};
  Views views(on);
  return alignment +
         moe_workspace_bytes({.x = views.add(x, "x"),
                              .gate_up = views.add(gate_up, "gate_up"),
                              .ids = views.add(ids, "ids"),
                              .slots = views.add(slots, "slots"),
                              .shared_gate_up = views.add(shared_gate_up, "shared_gate_up")});
}

template <Step step, bool allocates = false>
void bind_step(nb::module_& m, const std::string& name) {
  const std::string signature =
      "def " + name +
      "(x: typing.Any, gate_up: typing.Any, down: typing.Any, ids: typing.Any, weights: "
      "typing.Any, gate_up_bias: typing.Any, down_bias: typing.Any, shared_gate_up: typing.Any, "
      "shared_down: typing.Any, shared_weights: typing.Any, slots: typing.Any, activation: str, "
      "alpha: float, limit: float, layout: str, kernel: str, batch_invariant: bool, check: bool, "
      "out: typing.Any, workspace: typing.Any, stream: typing.Any) -> None";
  m.def(name.c_str(), &moe_arrays<step, allocates>, nb::arg("x").none(), nb::arg("gate_up").none(),
        nb::arg("down").none(), nb::arg("ids").none(), nb::arg("weights").none(),
        nb::arg("gate_up_bias").none(), nb::arg("down_bias").none(),
        nb::arg("shared_gate_up").none(), nb::arg("shared_down").none(),
        nb::arg("shared_weights").none(), nb::arg("slots").none(), nb::arg("activation"),
        nb::arg("alpha"), nb::arg("limit"), nb::arg("layout"), nb::arg("kernel"),
        nb::arg("batch_invariant"), nb::arg("check"), nb::arg("out").none(),
        nb::arg("workspace").none(), nb::arg("stream").none(), nb::sig(signature.c_str()),
        ("Implements penstock." + name + ".").c_str());
}

}  // namespace

void bind_moe(nb::module_& m) {
  bind_step<moe, true>(m, "moe");
  bind_step<moe_plan>(m, "moe_plan");
  bind_step<moe_experts>(m, "moe_experts");
  bind_step<moe_combine>(m, "moe_combine");
  m.def("moe_workspace_bytes", &workspace_bytes, nb::arg("x").none(), nb::arg("gate_up").none(),
        nb::arg("ids").none(), nb::arg("slots").none(), nb::arg("shared_gate_up").none(),
        nb::sig("def moe_workspace_bytes(x: typing.Any, gate_up: typing.Any, ids: typing.Any, "
                "slots: typing.Any, shared_gate_up: typing.Any) -> int"),
        "Implements penstock.moe_workspace_bytes.");
}

}  // namespace ps::python
