#include "device.h"

#include <nanobind/operators.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <bit>
#include <map>
#include <string>

#include "dlpack.h"
#include "interpreter.h"
#include "penstock/base/error.h"

namespace ps::python {

Device device_from(nb::handle object) {
  if (object.is_none()) return Device::best();
  if (nb::isinstance<Device>(object)) return nb::cast<Device>(object);
  if (nb::isinstance<nb::str>(object)) return Device::parse(nb::cast<std::string>(object));
  throw InvalidArgument("device", "a Device, 'cpu', 'cuda', 'cuda:N', 'best' or None",
                        nb::repr(object).c_str());
}

Stream stream_from(nb::handle object, const Device& device) {
  if (nb::isinstance<Stream>(object)) return nb::cast<Stream>(object);
  const nb::object number =
      nb::hasattr(object, "cuda_stream") ? object.attr("cuda_stream") : nb::borrow(object);
  if (!nb::isinstance<nb::int_>(number) || nb::isinstance<nb::bool_>(number)) {
    throw InvalidArgument("stream", "a Stream, a torch stream, or the address of a CUDA stream",
                          nb::repr(object).c_str());
  }
  // torch calls the legacy stream 0.
  auto address = nb::cast<std::intptr_t>(number);
  if (address == 0) address = dlpack::legacy;
  return borrow_native(device, std::bit_cast<void*>(address));
}

namespace {

nb::dict capabilities(const Device& device) {
  const Capabilities has = device.capabilities();
  nb::dict d;
  d["name"] = has.name;
  d["compute_capability"] = nb::make_tuple(has.compute_major, has.compute_minor);
  d["multiprocessors"] = has.multiprocessors;
  d["copy_engines"] = has.copy_engines;
  d["memory_bytes"] = has.memory_bytes;
  d["free_bytes"] = has.free_bytes;
  d["l2_bytes"] = has.l2_bytes;
  return d;
}

nb::object torch_stream(const Stream& stream) {
  const Device device = stream.device();
  if (device.kind() == DeviceKind::cpu) {
    throw Unsupported("torch has no CPU streams; its CPU calls are complete when they return");
  }
  // torch remembers on which streams page-locked memory was used, and records events on them when
  // it frees that memory, at any later time. So a stream passed to torch lives as long as the
  // process.
  static auto* const given = new std::map<void*, Stream>;
  given->emplace(stream.native(), stream);
  return nb::module_::import_("torch").attr("cuda").attr("ExternalStream")(
      reinterpret_cast<std::intptr_t>(stream.native()), nb::arg("device") = device.index());
}

}  // namespace

void bind_device(nb::module_& m) {
  nb::class_<Device>(
      m, "Device",
      R"(The CPU or a GPU: "cpu", "cuda", "cuda:N", or "best", the first GPU or else the CPU.

>>> import penstock
>>> penstock.Device("cpu")
<penstock.Device 'cpu'>
>>> penstock.Device() == penstock.Device.best()
True
)")
      .def(
          "__init__", [](Device* self, nb::handle name) { new (self) Device(device_from(name)); },
          nb::arg("name") = nb::none(),
          nb::sig("def __init__(self, name: str | Device | None = None) -> None"))
      .def_static("all", &Device::all, "All devices: the CPU, then every usable GPU.")
      .def_static("best", &Device::best, "The first usable GPU, or the CPU if there is none.")
      .def_static("cpu", &Device::cpu)
      .def_static("cuda", &Device::cuda, nb::arg("index") = 0)
      .def_static("why_no_gpu", &Device::why_no_gpu, "Why no GPU is usable; empty if one is.")
      .def_prop_ro("name", &Device::name)
      .def_prop_ro("kind",
                   [](const Device& d) { return d.kind() == DeviceKind::cpu ? "cpu" : "cuda"; })
      .def_prop_ro("index", &Device::index, "The index of the GPU; -1 for the CPU.")
      .def_prop_ro("capabilities", &capabilities,
                   nb::sig("def capabilities(self) -> dict[str, typing.Any]"))
      .def(
          "synchronize", [](const Device& d) { without_lock([&] { d.synchronize(); }); },
          "Waits until all work enqueued on the device is complete.")
      .def(nb::self == nb::self, nb::sig("def __eq__(self, other: object, /) -> bool"))
      .def("__hash__", [](const Device& d) { return d.index() + 1; })
      .def("__repr__", [](const Device& d) { return "<penstock.Device '" + d.name() + "'>"; });

  nb::class_<Stream>(m, "Stream", R"(An ordered queue of work on a device.

On the CPU, calls from Python are complete when they return. Streams exist there so that the same
program runs on both.

>>> import penstock
>>> stream = penstock.Stream("cpu")
>>> stream.synchronize()
>>> stream.device
<penstock.Device 'cpu'>
)")
      .def(
          "__init__",
          [](Stream* self, nb::handle device) { new (self) Stream(device_from(device)); },
          nb::arg("device") = nb::none(),
          nb::sig("def __init__(self, device: str | Device | None = None) -> None"))
      .def_static(
          "borrow",
          [](nb::handle stream, nb::handle device) {
            return stream_from(stream, device_from(device));
          },
          nb::arg("stream"), nb::arg("device") = nb::none(),
          nb::sig("def borrow(stream: typing.Any, device: str | Device | None = None) -> Stream"),
          "Uses a stream of another library: a torch stream, or the address of a CUDA stream. "
          "Its owner must keep it alive.")
      .def_prop_ro("device", &Stream::device)
      .def_prop_ro(
          "native", [](const Stream& s) { return reinterpret_cast<std::intptr_t>(s.native()); },
          "The address of the CUDA stream; 0 on the CPU.")
      .def_prop_ro("done", &Stream::done, "Whether all work enqueued so far is complete.")
      .def(
          "synchronize", [](const Stream& s) { without_lock([&] { s.synchronize(); }); },
          "Waits until all work enqueued so far is complete.")
      .def("torch", &torch_stream, nb::sig("def torch(self) -> typing.Any"),
           "The stream as a torch stream: ``with torch.cuda.stream(stream.torch()): ...``")
      .def(nb::self == nb::self, nb::sig("def __eq__(self, other: object, /) -> bool"))
      .def("__hash__", [](const Stream& s) { return reinterpret_cast<std::intptr_t>(&s.impl()); })
      .def("__repr__",
           [](const Stream& s) { return "<penstock.Stream on '" + s.device().name() + "'>"; });
}

}  // namespace ps::python
