// Attention, for penstock/_attention.py, and one step of a generation, for
// penstock/_append_attention.py.
#include <fmt/format.h>
#include <nanobind/stl/string_view.h>

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string_view>

#include "bindings.h"
#include "call_pool.h"
#include "call_stream.h"
#include "penstock/base/error.h"
#include "penstock/ops/append_attention.h"
#include "penstock/ops/attention.h"
#include "views.h"

namespace ps::python {
namespace {

AttentionKernel attention_kernel_named(std::string_view name) {
  if (name == "best") return AttentionKernel::best;
  if (name == "portable") return AttentionKernel::portable;
  if (name == "sm90") return AttentionKernel::sm90;
  if (name == "decode") return AttentionKernel::decode;
  if (name == "decode_portable") return AttentionKernel::decode_portable;
  throw InvalidArgument("kernel", "'best', 'portable', 'sm90', 'decode' or 'decode_portable'",
                        fmt::format("'{}'", name));
}

void attention_arrays(nb::handle q, nb::handle k, nb::handle v, nb::handle sinks, nb::handle cu_q,
                      nb::handle cu_k, nb::handle first_k, nb::handle lengths_k, nb::handle pages,
                      bool causal, std::int64_t window_left, std::int64_t window_right,
                      float softcap, float scale, std::int64_t max_q, std::int64_t max_k,
                      std::string_view kernel, bool batch_invariant, bool check, nb::handle out,
                      nb::handle lse, nb::handle workspace, nb::handle stream) {
  const CallStream on = stream_or_current(stream, std::initializer_list{q, k, out});
  Views views(on);
  AttentionOptions options{.q = views.add(q, "q"),
                           .k = views.add(k, "k"),
                           .v = views.add(v, "v"),
                           .out = views.add_written(out, "out"),
                           .lse = views.add_written(lse, "lse"),
                           .causal = causal,
                           .window_left = window_left,
                           .window_right = window_right,
                           .softcap = softcap,
                           .scale = scale,
                           .sinks = views.add(sinks, "sinks"),
                           .cu_q = views.add(cu_q, "cu_q"),
                           .cu_k = views.add(cu_k, "cu_k"),
                           .max_q = max_q,
                           .max_k = max_k,
                           .first_k = views.add(first_k, "first_k"),
                           .lengths_k = views.add(lengths_k, "lengths_k"),
                           .pages = views.add(pages, "pages"),
                           .workspace = views.add_memory(workspace, "workspace"),
                           .kernel = attention_kernel_named(kernel),
                           .batch_invariant = batch_invariant,
                           .check = check};
  if (on.stream && workspace.is_none()) options.pool = &call_pool(on.stream->device());
  run_on(on.stream, [&](const Stream& own) { attention(options, own); });
}

std::size_t attention_bytes(nb::handle q, nb::handle k, nb::handle v, nb::handle cu_q,
                            nb::handle cu_k, nb::handle pages, std::int64_t max_q,
                            std::int64_t max_k, std::string_view kernel, bool batch_invariant) {
  const CallStream on{.stream = std::nullopt, .library = exchange_of(q)};
  Views views(on);
  return attention_workspace_bytes({.q = views.add(q, "q"),
                                    .k = views.add(k, "k"),
                                    .v = views.add(v, "v"),
                                    .cu_q = views.add(cu_q, "cu_q"),
                                    .cu_k = views.add(cu_k, "cu_k"),
                                    .max_q = max_q,
                                    .max_k = max_k,
                                    .pages = views.add(pages, "pages"),
                                    .kernel = attention_kernel_named(kernel),
                                    .batch_invariant = batch_invariant});
}

void append_attention_arrays(nb::handle q, nb::handle k, nb::handle v, nb::handle k_cache,
                             nb::handle v_cache, nb::handle lengths, nb::handle pages,
                             nb::handle cu_new, nb::handle cos, nb::handle sin,
                             nb::handle positions, nb::handle sinks, nb::handle first_k,
                             std::int64_t length, bool advance, bool interleaved, bool causal,
                             std::int64_t window_left, std::int64_t window_right, float softcap,
                             float scale, std::int64_t max_q, std::int64_t max_k,
                             std::string_view kernel, bool batch_invariant, bool check,
                             nb::handle out, nb::handle lse, nb::handle workspace,
                             nb::handle stream) {
  const CallStream on =
      stream_or_current(stream, std::initializer_list{q, k, k_cache, v_cache, out});
  Views views(on);
  const AppendKVOptions append{
      .k = views.add(k, "k"),
      .v = views.add(v, "v"),
      .k_cache = views.add_written(k_cache, "k_cache"),
      .v_cache = views.add_written(v_cache, "v_cache"),
      .pages = views.add(pages, "pages"),
      .cu_new = views.add(cu_new, "cu_new"),
      .lengths = advance ? views.add_written(lengths, "lengths") : views.add(lengths, "lengths"),
      .length = length,
      .advance = advance,
      .cos = views.add(cos, "cos"),
      .sin = views.add(sin, "sin"),
      .pairs = interleaved ? RotaryPairs::neighbours : RotaryPairs::halves,
      .positions = views.add(positions, "positions"),
      .check = check};
  AttentionOptions options{.q = views.add(q, "q"),
                           .out = views.add_written(out, "out"),
                           .lse = views.add_written(lse, "lse"),
                           .causal = causal,
                           .window_left = window_left,
                           .window_right = window_right,
                           .softcap = softcap,
                           .scale = scale,
                           .sinks = views.add(sinks, "sinks"),
                           .max_q = max_q,
                           .max_k = max_k,
                           .first_k = views.add(first_k, "first_k"),
                           .workspace = views.add_memory(workspace, "workspace"),
                           .kernel = attention_kernel_named(kernel),
                           .batch_invariant = batch_invariant};
  if (on.stream && workspace.is_none()) options.pool = &call_pool(on.stream->device());
  run_on(on.stream, [&](const Stream& own) { append_attention(append, options, own); });
}

std::size_t append_attention_bytes(nb::handle q, nb::handle k_cache, nb::handle v_cache,
                                   nb::handle cu_new, nb::handle pages, nb::handle cos,
                                   std::int64_t max_q, std::int64_t max_k, std::string_view kernel,
                                   bool batch_invariant) {
  const CallStream on{.stream = std::nullopt, .library = exchange_of(q)};
  Views views(on);
  return append_attention_workspace_bytes({.k_cache = views.add(k_cache, "k_cache"),
                                           .v_cache = views.add(v_cache, "v_cache"),
                                           .pages = views.add(pages, "pages"),
                                           .cu_new = views.add(cu_new, "cu_new"),
                                           .cos = views.add(cos, "cos")},
                                          {.q = views.add(q, "q"),
                                           .max_q = max_q,
                                           .max_k = max_k,
                                           .kernel = attention_kernel_named(kernel),
                                           .batch_invariant = batch_invariant});
}

void bind_append_attention(nb::module_& m) {
  m.def("append_attention", &append_attention_arrays, nb::arg("q").none(), nb::arg("k").none(),
        nb::arg("v").none(), nb::arg("k_cache").none(), nb::arg("v_cache").none(),
        nb::arg("lengths").none(), nb::arg("pages").none(), nb::arg("cu_new").none(),
        nb::arg("cos").none(), nb::arg("sin").none(), nb::arg("positions").none(),
        nb::arg("sinks").none(), nb::arg("first_k").none(), nb::arg("length"), nb::arg("advance"),
        nb::arg("interleaved"), nb::arg("causal"), nb::arg("window_left"), nb::arg("window_right"),
        nb::arg("softcap"), nb::arg("scale"), nb::arg("max_q"), nb::arg("max_k"), nb::arg("kernel"),
        nb::arg("batch_invariant"), nb::arg("check"), nb::arg("out").none(), nb::arg("lse").none(),
        nb::arg("workspace").none(), nb::arg("stream").none(),
        nb::sig("def append_attention(q: typing.Any, k: typing.Any, v: typing.Any, k_cache: "
                "typing.Any, v_cache: typing.Any, lengths: typing.Any, pages: typing.Any, cu_new: "
                "typing.Any, cos: typing.Any, sin: typing.Any, positions: typing.Any, sinks: "
                "typing.Any, first_k: typing.Any, length: int, advance: bool, interleaved: bool, "
                "causal: bool, window_left: int, window_right: int, softcap: float, scale: float, "
                "max_q: int, max_k: int, kernel: str, batch_invariant: bool, check: bool, out: "
                "typing.Any, lse: typing.Any, workspace: typing.Any, stream: typing.Any) -> None"),
        "Implements penstock.append_attention.");
  m.def("append_attention_workspace_bytes", &append_attention_bytes, nb::arg("q").none(),
        nb::arg("k_cache").none(), nb::arg("v_cache").none(), nb::arg("cu_new").none(),
        nb::arg("pages").none(), nb::arg("cos").none(), nb::arg("max_q"), nb::arg("max_k"),
        nb::arg("kernel"), nb::arg("batch_invariant"),
        nb::sig("def append_attention_workspace_bytes(q: typing.Any, k_cache: typing.Any, v_cache: "
                "typing.Any, cu_new: typing.Any, pages: typing.Any, cos: typing.Any, max_q: int, "
                "max_k: int, kernel: str, batch_invariant: bool) -> int"),
        "The bytes of workspace that penstock.append_attention needs on a GPU.");
}

}  // namespace

void bind_attention(nb::module_& m) {
  m.def("attention", &attention_arrays, nb::arg("q").none(), nb::arg("k").none(),
        nb::arg("v").none(), nb::arg("sinks").none(), nb::arg("cu_q").none(),
        nb::arg("cu_k").none(), nb::arg("first_k").none(), nb::arg("lengths_k").none(),
        nb::arg("pages").none(), nb::arg("causal"), nb::arg("window_left"), nb::arg("window_right"),
        nb::arg("softcap"), nb::arg("scale"), nb::arg("max_q"), nb::arg("max_k"), nb::arg("kernel"),
        nb::arg("batch_invariant"), nb::arg("check"), nb::arg("out").none(), nb::arg("lse").none(),
        nb::arg("workspace").none(), nb::arg("stream").none(),
        nb::sig("def attention(q: typing.Any, k: typing.Any, v: typing.Any, sinks: typing.Any, "
                "cu_q: typing.Any, cu_k: typing.Any, first_k: typing.Any, lengths_k: typing.Any, "
                "pages: typing.Any, causal: bool, window_left: int, window_right: int, softcap: "
                "float, scale: float, "
                "max_q: int, max_k: int, kernel: str, batch_invariant: bool, check: bool, out: "
                "typing.Any, lse: "
                "typing.Any, workspace: typing.Any, stream: typing.Any) -> None"),
        "Implements penstock.attention.");
  m.def("attention_workspace_bytes", &attention_bytes, nb::arg("q").none(), nb::arg("k").none(),
        nb::arg("v").none(), nb::arg("cu_q").none(), nb::arg("cu_k").none(),
        nb::arg("pages").none(), nb::arg("max_q"), nb::arg("max_k"), nb::arg("kernel"),
        nb::arg("batch_invariant"),
        nb::sig("def attention_workspace_bytes(q: typing.Any, k: typing.Any, v: typing.Any, "
                "cu_q: typing.Any, cu_k: typing.Any, pages: typing.Any, max_q: int, max_k: int, "
                "kernel: str, batch_invariant: bool) -> int"),
        "The bytes of workspace that penstock.attention needs on a GPU.");
  bind_append_attention(m);
}

}  // namespace ps::python
