// Packed experts, and stores that read them from a disk, for penstock/_packed_experts.py.
#include <nanobind/nanobind.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include "bindings.h"
#include "errors.h"
#include "interpreter.h"
#include "interruptible.h"
#include "moe_names.h"
#include "penstock/base/error.h"
#include "penstock/outofcore/disk_expert_store.h"
#include "penstock/outofcore/expert_file.h"
#include "penstock/outofcore/expert_store.h"
#include "penstock/weights/weights.h"
#include "storage.h"

namespace ps::python {
namespace {

nb::dict dict_of(const ExpertFileInfo& info) {
  const ExpertShape& shape = info.shape;
  nb::dict d;
  d["path"] = nb::steal<nb::str>(PyUnicode_DecodeFSDefault(info.path.c_str()));
  d["layers"] = shape.layers;
  d["experts"] = shape.experts;
  d["hidden"] = shape.hidden;
  d["width"] = shape.width;
  d["dtype"] = name(shape.dtype);
  d["layout"] = shape.layout == GateUpLayout::interleaved ? "interleaved" : "concatenated";
  d["transposed"] = shape.transposed;
  d["bias"] = shape.gate_up_bias || shape.down_bias;
  d["nbytes"] = info.bytes;
  d["created_ns"] = info.created_ns;
  d["pack_seconds"] = info.pack_seconds;
  return d;
}

nb::dict file_info(nb::handle path) {
  const std::string name = path_from(path);
  return dict_of(
      without_lock([&] { return naming(name, [&] { return expert_file_info(name); }); }));
}

ExpertNames names_from(const std::map<std::string, std::string>& names, std::int64_t first_layer) {
  ExpertNames found{.first_layer = first_layer};
  const std::map<std::string_view, std::string*> parts{{"gate_up", &found.gate_up},
                                                       {"gate", &found.gate},
                                                       {"up", &found.up},
                                                       {"down", &found.down},
                                                       {"gate_up_bias", &found.gate_up_bias},
                                                       {"down_bias", &found.down_bias}};
  for (const auto& [part, pattern] : names) {
    const auto at = parts.find(part);
    if (at == parts.end()) {
      throw InvalidArgument("names", "gate_up, gate, up, down, gate_up_bias or down_bias as keys",
                            "'" + part + "'");
    }
    *at->second = pattern;
  }
  return found;
}

void pack_checkpoint(nb::handle path, const ExpertShape& shape, const Weights& weights,
                     const std::map<std::string, std::string>& names, std::int64_t first_layer,
                     const nb::object& progress) {
  const std::string name = path_from(path);
  const ExpertNames tensors = names_from(names, first_layer);
  interruptible(progress, [&](const std::stop_token& stop, const Report& report) {
    naming(name, [&] {
      pack_experts(name, shape, weights, tensors,
                   {.stop = stop, .progress = [&](std::uint64_t done, std::uint64_t total) {
                      report("", static_cast<double>(done) / static_cast<double>(total));
                    }});
    });
  });
}

// `fill` writes the next experts to the blocks of `plain`, as many as these are; from there they
// are copied, so that Python may keep views of the blocks.
void pack_filled(nb::handle path, const ExpertShape& shape, const ExpertStore& plain,
                 const nb::object& fill) {
  const std::string name = path_from(path);
  const std::int64_t all = shape.layers * shape.experts, room = plain.shape().experts;
  const auto fill_block = [&](std::int64_t layer, std::int64_t expert, const MemoryView& block) {
    const std::int64_t number = layer * shape.experts + expert;
    if (number % room == 0) {
      const std::int64_t count = std::min(room, all - number);
      for (std::int64_t i = 0; i < count; ++i) {
        std::memset(plain.block(0, i).data, 0, block.bytes);
      }
      const Inside inside;
      try {
        fill(number, count);
      } catch (nb::python_error& error) {
        error.restore();
        throw PythonFailure::take();
      }
    }
    std::memcpy(block.data, plain.block(0, number % room).data, block.bytes);
  };
  without_lock([&] { naming(name, [&] { pack_experts(name, shape, fill_block); }); });
}

// Whether an expert of the file has the bits of expert `number` of `plain`. Reads it if need be.
bool same_expert(const DiskExpertStore& self, std::int64_t layer, std::int64_t expert,
                 const ExpertStore& plain, std::int64_t number) {
  const auto pause = [] { std::this_thread::sleep_for(std::chrono::microseconds(50)); };
  return without_lock([&] {
    return naming(self.file().path, [&] {
      auto block = self.try_block(layer, expert);
      for (; !block; block = self.try_block(layer, expert)) pause();
      while (!block->ready()) pause();
      const ExpertViews mine = ExpertStore::views(self.shape(), block->view());
      const ExpertViews other = ExpertStore::views(self.shape(), plain.block(0, number));
      const auto same = [](const TensorView& a, const TensorView& b) {
        const std::size_t bytes = static_cast<std::size_t>(a.elements()) * size_of(a.dtype());
        return a.data() == nullptr || std::memcmp(a.data(), b.data(), bytes) == 0;
      };
      return same(mine.gate_up, other.gate_up) && same(mine.down, other.down) &&
             same(mine.gate_up_bias, other.gate_up_bias) && same(mine.down_bias, other.down_bias);
    });
  });
}

nb::dict statistics_of(const DiskExpertStore& self) {
  const SlotCacheStatistics counted = self.statistics();
  nb::dict d;
  d["hits"] = counted.hits;
  d["misses"] = counted.misses;
  d["evicted"] = counted.evictions;
  d["failed"] = counted.failed_fills;
  d["bytes"] = counted.missed_bytes;
  return d;
}

}  // namespace

void bind_packed_experts(nb::module_& m) {
  m.def("expert_file_info", &file_info, nb::arg("path"),
        nb::sig("def expert_file_info(path: str | bytes | os.PathLike[str]) -> "
                "dict[str, typing.Any]"));
  m.def("pack_checkpoint", &pack_checkpoint, nb::arg("path"), nb::arg("shape"), nb::arg("weights"),
        nb::arg("names"), nb::arg("first_layer"), nb::arg("progress").none(),
        nb::sig("def pack_checkpoint(path: str | bytes | os.PathLike[str], shape: ExpertShape, "
                "weights: Weights, names: dict[str, str], first_layer: int, progress: "
                "Callable[[str, float], object] | None) -> None"),
        "Packs experts of a checkpoint. `progress` is called with '' and the share that is done.");
  m.def("pack_filled", &pack_filled, nb::arg("path"), nb::arg("shape"), nb::arg("plain"),
        nb::arg("fill"),
        nb::sig("def pack_filled(path: str | bytes | os.PathLike[str], shape: ExpertShape, plain: "
                "ExpertStore, fill: Callable[[int, int], object]) -> None"),
        "Packs experts that `fill` writes to layer 0 of `plain`: it is called with the number of "
        "the first, counted over all layers, and how many they are.");
  nb::class_<DiskExpertStore>(m, "DiskExpertStore", "See penstock.DiskExpertStore.")
      .def(nb::new_([](const Device& device, nb::handle path, std::size_t host_bytes,
                       std::string_view policy, bool direct) {
             const std::string name = path_from(path);
             DiskExpertStoreOptions options{
                 .host_bytes = host_bytes, .policy = policy_named(policy), .direct = direct};
             return without_lock([&] {
               return naming(name, [&] {
                 return std::make_shared<DiskExpertStore>(device, name, std::move(options));
               });
             });
           }),
           nb::arg("device"), nb::arg("path"), nb::arg("host_bytes"), nb::arg("policy"),
           nb::arg("direct"))
      .def_prop_ro(
          "file", [](const DiskExpertStore& self) { return dict_of(self.file()); },
          nb::sig("def file(self) -> dict[str, typing.Any]"))
      .def_prop_ro("slots", &DiskExpertStore::slots)
      .def_prop_ro("host_bytes", &DiskExpertStore::host_bytes)
      .def_prop_ro("direct", &DiskExpertStore::direct)
      .def_prop_ro("shape", &DiskExpertStore::shape)
      .def_prop_ro("statistics", &statistics_of, nb::sig("def statistics(self) -> dict[str, int]"))
      .def("same_expert", &same_expert, nb::arg("layer"), nb::arg("expert"), nb::arg("plain"),
           nb::arg("number"));
}

}  // namespace ps::python
