// New rows of keys and values, for penstock/_append_kv.py, and the cache of penstock/_kv_cache.py.
#include <nanobind/stl/string.h>

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <mutex>
#include <string>

#include "array.h"
#include "bindings.h"
#include "call_stream.h"
#include "device.h"
#include "interpreter.h"
#include "penstock/ops/append_kv.h"
#include "penstock/ops/kv_cache.h"
#include "views.h"

namespace ps::python {
namespace {

RotaryPairs pairs_of(bool interleaved) {
  return interleaved ? RotaryPairs::neighbours : RotaryPairs::halves;
}

void append_arrays(nb::handle k, nb::handle v, nb::handle k_cache, nb::handle v_cache,
                   nb::handle lengths, nb::handle pages, nb::handle cu_new, nb::handle cos,
                   nb::handle sin, nb::handle positions, nb::handle q, nb::handle q_out,
                   std::int64_t length, bool advance, bool interleaved, bool check,
                   nb::handle stream) {
  const CallStream on = stream_or_current(stream, std::initializer_list{k, v, k_cache, v_cache});
  Views views(on);
  const AppendKVOptions options{
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
      .pairs = pairs_of(interleaved),
      .positions = views.add(positions, "positions"),
      .q = views.add(q, "q"),
      .q_out = views.add_written(q_out, "q_out"),
      .check = check};
  run_on(on.stream, [&](const Stream& own) { append_kv(options, own); });
}

// Threads of Python take turns.
class CacheOfPython {
 public:
  CacheOfPython(nb::handle device, const KVCacheOptions& options)
      : own_(without_lock(
            [&, on = device_from(device)] { return std::make_shared<Own>(on, options); })) {}

  void append(std::int64_t layer, nb::handle k, nb::handle v, nb::handle cos, nb::handle sin,
              nb::handle positions, nb::handle q, nb::handle q_out, bool interleaved,
              nb::handle stream) {
    const CallStream on = stream_or_current(stream, std::initializer_list{k, v});
    Views views(on);
    const KVRows rows{.k = views.add(k, "k"),
                      .v = views.add(v, "v"),
                      .cos = views.add(cos, "cos"),
                      .sin = views.add(sin, "sin"),
                      .pairs = pairs_of(interleaved),
                      .positions = views.add(positions, "positions"),
                      .q = views.add(q, "q"),
                      .q_out = views.add_written(q_out, "q_out")};
    run_on(on.stream, [&](const Stream& own) {
      const std::lock_guard lock(own_->mutex);
      own_->cache.append(layer, rows, own);
    });
  }

  // Calls function(cache) without the GIL.
  template <class Function>
  auto with(const Function& function) const {
    return without_lock([&] {
      const std::lock_guard lock(own_->mutex);
      return function(own_->cache);
    });
  }
  Array array(const TensorView& view) const { return {view, own_}; }

 private:
  struct Own {
    Own(const Device& device, const KVCacheOptions& options) : cache(device, options) {}
    std::mutex mutex;
    KVCache cache;
  };

  std::shared_ptr<Own> own_;
};

void bind_cache(nb::module_& m) {
  using C = CacheOfPython;
  nb::class_<C>(m, "KVCache", "The base class of penstock.KVCache.")
      .def(
          "__init__",
          [](C* self, nb::handle device, std::int64_t layers, std::int64_t sequences,
             std::int64_t heads, std::int64_t dim, std::int64_t dim_v, const std::string& dtype,
             std::int64_t capacity, std::int64_t initial, std::int64_t ahead,
             std::size_t block_bytes) {
            new (self) C(device, {.layers = layers,
                                  .sequences = sequences,
                                  .heads = heads,
                                  .dim = dim,
                                  .dim_v = dim_v,
                                  .dtype = parse_dtype(dtype),
                                  .capacity = capacity,
                                  .initial = initial,
                                  .ahead = ahead,
                                  .block_bytes = block_bytes});
          },
          nb::arg("device").none(), nb::arg("layers"), nb::arg("sequences"), nb::arg("heads"),
          nb::arg("dim"), nb::arg("dim_v"), nb::arg("dtype"), nb::arg("capacity"),
          nb::arg("initial"), nb::arg("ahead"), nb::arg("block_bytes"),
          nb::sig("def __init__(self, device: typing.Any, layers: int, sequences: int, heads: int, "
                  "dim: int, dim_v: int, dtype: str, capacity: int, initial: int, ahead: int, "
                  "block_bytes: int) -> None"))
      .def("_append", &C::append, nb::arg("layer"), nb::arg("k").none(), nb::arg("v").none(),
           nb::arg("cos").none(), nb::arg("sin").none(), nb::arg("positions").none(),
           nb::arg("q").none(), nb::arg("q_out").none(), nb::arg("interleaved"),
           nb::arg("stream").none(),
           nb::sig("def _append(self, layer: int, k: typing.Any, v: typing.Any, cos: typing.Any, "
                   "sin: typing.Any, positions: typing.Any, q: typing.Any, q_out: typing.Any, "
                   "interleaved: bool, stream: typing.Any) -> None"),
           "Implements penstock.KVCache.append.")
      .def(
          "k",
          [](const C& c, std::int64_t layer) {
            return c.array(c.with([&](const KVCache& cache) { return cache.k(layer); }));
          },
          nb::arg("layer"), "The keys of a layer: (sequences, rows, heads, dim), not contiguous.")
      .def(
          "v",
          [](const C& c, std::int64_t layer) {
            return c.array(c.with([&](const KVCache& cache) { return cache.v(layer); }));
          },
          nb::arg("layer"), "The values of a layer: (sequences, rows, heads, dim_v).")
      .def(
          "whole_k",
          [](const C& c, std::int64_t layer) {
            return c.array(c.with([&](const KVCache& cache) { return cache.whole_k(layer); }));
          },
          nb::arg("layer"),
          "The keys of a layer with room for all `capacity` rows. Only the first `reserved` may be "
          "used: there is no memory behind the others.")
      .def(
          "whole_v",
          [](const C& c, std::int64_t layer) {
            return c.array(c.with([&](const KVCache& cache) { return cache.whole_v(layer); }));
          },
          nb::arg("layer"), "The same of the values.")
      .def(
          "length",
          [](const C& c, std::int64_t layer) {
            return c.with([&](const KVCache& cache) { return cache.length(layer); });
          },
          nb::arg("layer"), "The rows of a layer.")
      .def(
          "reserve",
          [](const C& c, std::int64_t rows) {
            c.with([&](KVCache& cache) { cache.reserve(rows); });
          },
          nb::arg("rows"),
          "Maps memory for this many rows and returns when that is done, without waiting for the "
          "device.")
      .def(
          "set_length",
          [](const C& c, std::int64_t rows) {
            c.with([&](KVCache& cache) { cache.set_length(rows); });
          },
          nb::arg("rows"),
          "Says that every layer has this many rows, at most `reserved`, after append_kv() or "
          "append_attention() has appended them to whole_k() and whole_v(), for example in a CUDA "
          "graph. Without it, length() does not change, append() overwrites their rows and "
          "shrink() "
          "gives their memory back.")
      .def(
          "crop",
          [](const C& c, std::int64_t rows) { c.with([&](KVCache& cache) { cache.crop(rows); }); },
          nb::arg("rows"),
          "Removes the last rows of all layers that have more than this. Keeps the memory.")
      .def(
          "shrink", [](const C& c) { c.with([&](KVCache& cache) { cache.shrink(); }); },
          "Gives back the memory that holds no rows, when the work enqueued so far on the cache's "
          "streams has completed. Returns at once.")
      .def(
          "use",
          [](const C& c, nb::handle stream) {
            const Device device = c.with([](const KVCache& cache) { return cache.device(); });
            const Stream own = stream_from(stream, device);
            c.with([&](KVCache& cache) { cache.use(own); });
          },
          nb::arg("stream"), nb::sig("def use(self, stream: typing.Any) -> None"),
          "Names another stream that uses arrays of the cache: memory is given back only when its "
          "work has completed.")
      .def_prop_ro(
          "reserved",
          [](const C& c) { return c.with([](const KVCache& cache) { return cache.reserved(); }); },
          "Rows that may be used. A few more have memory, because attention() loads whole blocks "
          "of "
          "keys.")
      .def_prop_ro("mapped_bytes",
                   [](const C& c) {
                     return c.with([](const KVCache& cache) { return cache.mapped_bytes(); });
                   })
      .def_prop_ro(
          "waits",
          [](const C& c) { return c.with([](const KVCache& cache) { return cache.waits(); }); },
          "How many calls had to wait because memory was not mapped far enough ahead.");
}

}  // namespace

void bind_append_kv(nb::module_& m) {
  m.def("append_kv", &append_arrays, nb::arg("k").none(), nb::arg("v").none(),
        nb::arg("k_cache").none(), nb::arg("v_cache").none(), nb::arg("lengths").none(),
        nb::arg("pages").none(), nb::arg("cu_new").none(), nb::arg("cos").none(),
        nb::arg("sin").none(), nb::arg("positions").none(), nb::arg("q").none(),
        nb::arg("q_out").none(), nb::arg("length"), nb::arg("advance"), nb::arg("interleaved"),
        nb::arg("check"), nb::arg("stream").none(),
        nb::sig("def append_kv(k: typing.Any, v: typing.Any, k_cache: typing.Any, v_cache: "
                "typing.Any, lengths: typing.Any, pages: typing.Any, cu_new: typing.Any, cos: "
                "typing.Any, sin: typing.Any, positions: typing.Any, q: typing.Any, q_out: "
                "typing.Any, length: int, advance: bool, interleaved: bool, check: bool, stream: "
                "typing.Any) -> None"),
        "Implements penstock.append_kv.");
  bind_cache(m);
}

}  // namespace ps::python
