#include "array.h"

#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <bit>
#include <utility>
#include <vector>

#include "dlpack.h"
#include "errors.h"
#include "interpreter.h"
#include "penstock/base/checked.h"
#include "penstock/base/error.h"
#include "penstock/host/buffer.h"

namespace ps::python {
namespace {

bool on_gpu(const TensorView& view) {
  return view.place().memory == Memory::device && view.place().device != cpu_index;
}

// Page-locked memory is exported as plain CPU memory: not every library knows the other kind, and
// those that benefit from it ask the driver about the pointer.
dlpack::Device dlpack_device(const TensorView& view) {
  return on_gpu(view) ? dlpack::Device{dlpack::cuda, view.place().device}
                      : dlpack::Device{dlpack::cpu, 0};
}

dlpack::DataType dlpack_type(DType type) {
  const auto bits = static_cast<std::uint8_t>(size_of(type) * 8);
  switch (type) {
    case DType::f64:
    case DType::f32:
    case DType::f16:
      return {dlpack::floating, bits, 1};
    case DType::bf16:
      return {dlpack::bfloat, bits, 1};
    case DType::i64:
    case DType::i32:
      return {dlpack::integer, bits, 1};
    case DType::u8:
      return {dlpack::unsigned_integer, bits, 1};
    case DType::boolean:
      return {dlpack::boolean, bits, 1};
  }
  throw Unsupported("DLPack has no such element type");
}

// The format character of the struct module; null if it has none.
const char* buffer_format(DType type) {
  switch (type) {
    case DType::f64:
      return "d";
    case DType::f32:
      return "f";
    case DType::f16:
      return "e";
    case DType::bf16:
      return nullptr;
    case DType::i64:
      return "l";
    case DType::i32:
      return "i";
    case DType::u8:
      return "B";
    case DType::boolean:
      return "?";
  }
  return nullptr;
}

// Makes the consumer's stream wait for the work enqueued on the producer's so far.
void order(const std::optional<Stream>& producer, const Device& device, nb::handle stream) {
  if (!producer) return;
  const std::intptr_t number = stream.is_none() ? dlpack::legacy : nb::cast<std::intptr_t>(stream);
  if (number == dlpack::no_sync) return;
  if (number == dlpack::ambiguous || number < dlpack::no_sync) {
    throw InvalidArgument("stream", "-1, 1, 2 or a stream's address", std::to_string(number));
  }
  auto* const native = std::bit_cast<void*>(number);  // 1 and 2 mean the same in CUDA
  if (native == producer->native()) return;
  const Event ready(device);
  producer->record(ready);
  borrow_native(device, native).wait(ready);
}

// A tensor that keeps a Python object alive until its consumer releases it.
template <class M>
struct Holder {
  M managed{};
  std::shared_ptr<PyObject> held;
  std::array<std::int64_t, max_rank> shape{}, strides{};
};

template <class M>
nb::object make_capsule(const TensorView& view, PyObject* keep) {
  auto holder = std::make_unique<Holder<M>>();
  holder->held = share(keep);
  std::copy(view.shape().begin(), view.shape().end(), holder->shape.begin());
  std::copy(view.strides().begin(), view.strides().end(), holder->strides.begin());
  M& managed = holder->managed;
  managed.tensor = {.data = view.data(),
                    .device = dlpack_device(view),
                    .rank = static_cast<std::int32_t>(view.rank()),
                    .dtype = dlpack_type(view.dtype()),
                    .shape = holder->shape.data(),
                    .strides = holder->strides.data(),
                    .byte_offset = 0};
  if constexpr (requires { managed.version; }) managed.version = dlpack::newest;
  managed.context = holder.get();
  managed.deleter = [](M* self) { delete static_cast<Holder<M>*>(self->context); };
  // A consumer renames the capsule when it takes the tensor over.
  PyObject* capsule = PyCapsule_New(&managed, M::name, [](PyObject* self) {
    if (PyCapsule_IsValid(self, M::name) == 0) return;
    auto* mine = static_cast<M*>(PyCapsule_GetPointer(self, M::name));
    mine->deleter(mine);
  });
  if (capsule == nullptr) throw nb::python_error();
  holder.release();
  return nb::steal(capsule);
}

bool wants_versioned(nb::handle max_version) {
  return !max_version.is_none() && nb::cast<int>(max_version[0]) >= 1;
}

}  // namespace

Array::Array(TensorView view, std::shared_ptr<const void> memory, Lease lease,
             std::optional<Stream> stream)
    : view_(view),
      memory_(std::move(memory)),
      lease_(std::move(lease)),
      stream_(std::move(stream)) {
  for (std::size_t i = 0; i < view_.rank(); ++i) {
    shape_[i] = view_.shape()[i];
    strides_[i] = view_.strides()[i] * static_cast<Py_ssize_t>(size_of(view_.dtype()));
  }
}

const TensorView& Array::view() const {
  if (lease_ && !*lease_) {
    throw std::runtime_error(
        "the slot was returned to its ring; a stage may use it only until its function returns. "
        "Copy "
        "what is needed later");
  }
  return view_;
}

Array Array::part(std::int64_t index) const {
  const TensorView& whole = view();
  auto* const data = static_cast<std::byte*>(whole.data()) +
                     index * whole.strides()[0] * static_cast<std::int64_t>(size_of(whole.dtype()));
  return {TensorView(data, whole.dtype(), whole.shape().subspan(1), whole.strides().subspan(1),
                     whole.place()),
          memory_, lease_, stream_};
}

Array Array::range(std::int64_t begin, std::int64_t count) const {
  const TensorView& whole = view();
  auto* const data = static_cast<std::byte*>(whole.data()) +
                     begin * whole.strides()[0] * static_cast<std::int64_t>(size_of(whole.dtype()));
  std::vector<std::int64_t> shape(whole.shape().begin(), whole.shape().end());
  shape[0] = count;
  return {TensorView(data, whole.dtype(), shape, whole.strides(), whole.place()), memory_, lease_,
          stream_};
}

nb::object Array::export_dlpack(nb::handle self, nb::handle stream, nb::handle max_version,
                                nb::handle device, nb::handle copy) const {
  const dlpack::Device here = dlpack_device(view());
  if (!copy.is_none() && nb::cast<bool>(copy)) {
    throw nb::buffer_error("copy: expected False or None, as __dlpack__ never copies; given True");
  }
  if (!device.is_none() &&
      (nb::cast<int>(device[0]) != here.type || nb::cast<int>(device[1]) != here.index)) {
    throw nb::buffer_error(
        "dl_device: expected the device of the array or None, as __dlpack__ never copies");
  }
  if (here.type == dlpack::cuda) {
    order(stream_, Device::cuda(here.index), stream);
  } else if (!stream.is_none() && nb::cast<std::intptr_t>(stream) != dlpack::no_sync) {
    throw InvalidArgument("stream", "None, as the array is in host memory",
                          nb::repr(stream).c_str());
  }
  return wants_versioned(max_version) ? make_capsule<dlpack::ManagedVersioned>(view_, self.ptr())
                                      : make_capsule<dlpack::Managed>(view_, self.ptr());
}

int Array::fill_buffer(PyObject* self, Py_buffer* buffer, int flags) const {
  const char* why = nullptr;
  const char* format = buffer_format(view_.dtype());
  if (lease_ && !*lease_) {
    why = "the slot was returned to its ring; a stage may use it only until its function returns";
  } else if (on_gpu(view_)) {
    why = "the array is in GPU memory; use DLPack (torch.from_dlpack) or copy it to the host first";
  } else if (format == nullptr && (flags & PyBUF_FORMAT) != 0) {
    why = "the buffer protocol has no bf16; use DLPack (torch.from_dlpack)";
  }
  if (why != nullptr) {
    PyErr_SetString(PyExc_BufferError, why);
    return -1;
  }
  *buffer = {.buf = view_.data(),
             .obj = Py_NewRef(self),
             .len = static_cast<Py_ssize_t>(view_.bytes()),
             .itemsize = static_cast<Py_ssize_t>(size_of(view_.dtype())),
             .readonly = 0,
             .ndim = static_cast<int>(view_.rank()),
             .format = (flags & PyBUF_FORMAT) != 0 ? const_cast<char*>(format) : nullptr,
             .shape = const_cast<Py_ssize_t*>(shape_.data()),
             .strides = const_cast<Py_ssize_t*>(strides_.data()),
             .suboffsets = nullptr,
             .internal = nullptr};
  return 0;
}

namespace {

int get_buffer(PyObject* self, Py_buffer* buffer, int flags) {
  return nb::inst_ptr<Array>(self)->fill_buffer(self, buffer, flags);
}

// Through a memoryview: if an object refuses its buffer, numpy.asarray does not fail but wraps the
// object itself.
nb::object numpy_view(nb::handle self) {
  nb::cast<const Array&>(self).view();  // throws if the slot was returned
  PyObject* const bytes = PyMemoryView_FromObject(self.ptr());
  if (bytes == nullptr) throw nb::python_error();
  return nb::module_::import_("numpy").attr("asarray")(nb::steal(bytes));
}

PyType_Slot slots[] = {{Py_bf_getbuffer, reinterpret_cast<void*>(get_buffer)}, {0, nullptr}};

std::size_t bytes_of(DType dtype, const std::vector<std::int64_t>& shape) {
  std::size_t bytes = size_of(dtype);
  for (const std::int64_t extent : shape) {
    if (extent < 0) throw InvalidArgument("shape", "sizes of 0 or more", std::to_string(extent));
    bytes = checked_mul(bytes, static_cast<std::size_t>(extent), "shape");
  }
  return bytes;
}

Array part_of(const Array& array, Py_ssize_t index) {
  const auto shape = array.shape_of().shape();
  if (shape.empty()) throw nb::type_error("an array of one element has no parts");
  const Py_ssize_t at = index < 0 ? index + shape[0] : index;
  if (at < 0 || at >= shape[0]) {
    throw nb::index_error(("index: expected -" + std::to_string(shape[0]) + " to " +
                           std::to_string(shape[0] - 1) + ", given " + std::to_string(index))
                              .c_str());
  }
  return array.part(at);
}

Array range_of(const Array& array, const nb::slice& range) {
  const auto shape = array.shape_of().shape();
  if (shape.empty()) throw nb::type_error("an array of one element has no parts");
  const auto [begin, end, step, count] = range.compute(static_cast<std::size_t>(shape[0]));
  if (step != 1) throw InvalidArgument("step", "1", std::to_string(step));
  return array.range(begin, static_cast<std::int64_t>(count));
}

template <class Buffer>
Array allocate_in(const Device& device, DType dtype, const std::vector<std::int64_t>& shape,
                  Place place) {
  const std::size_t bytes = bytes_of(dtype, shape);
  if (bytes == 0) return {TensorView(nullptr, dtype, shape, place), nullptr};
  auto memory = without_lock([&] { return std::make_shared<Buffer>(device, bytes); });
  return {TensorView(memory->view().data, dtype, shape, memory->view().place), memory};
}

Array allocate(const std::vector<std::int64_t>& shape, const std::string& dtype,
               const std::string& memory, const Device& device) {
  const DType type = parse_dtype(dtype);
  if (memory == "pinned") return allocate_in<PinnedBuffer>(device, type, shape, {Memory::pinned});
  if (memory == "device") return allocate_in<DeviceBuffer>(device, type, shape, device.place());
  throw InvalidArgument("memory", "'pinned' or 'device'", "'" + memory + "'");
}

nb::tuple tuple_of(std::span<const std::int64_t> values) {
  nb::list list;
  for (const std::int64_t value : values) list.append(value);
  return nb::tuple(list);
}

}  // namespace

void bind_array(nb::module_& m) {
  nb::class_<Array>(m, "Array", nb::type_slots(slots),
                    R"(An array in memory that Penstock allocated, on the host or on a GPU.

NumPy (``numpy.asarray``), ``memoryview`` and every library with DLPack (``torch.from_dlpack``)
share the memory without a copy. A view keeps the memory alive.

>>> import numpy, penstock
>>> array = penstock.empty((2, 3), "f32")
>>> view = array.numpy()
>>> view[:] = 7
>>> float(numpy.asarray(array).sum())
42.0
)")
      .def_prop_ro(
          "shape", [](const Array& a) { return tuple_of(a.shape_of().shape()); },
          nb::sig("def shape(self) -> tuple[int, ...]"))
      .def_prop_ro(
          "dtype", [](const Array& a) { return std::string(name(a.shape_of().dtype())); },
          "The element type: 'f32', 'bf16', 'u8', ...")
      .def_prop_ro("nbytes", [](const Array& a) { return a.shape_of().bytes(); })
      .def_prop_ro(
          "place", [](const Array& a) { return name(a.shape_of().place()); },
          "Where the memory is: 'pinned', 'cpu' or 'cuda:0'.")
      .def("__len__", [](const Array& a) { return a.shape_of().extent(0); })
      .def("__getitem__", &part_of, nb::arg("index"),
           "The subarray at an index of the first dimension. It shares the memory.")
      .def("__getitem__", &range_of, nb::arg("range"),
           "A range of the first dimension, with step 1. It shares the memory.")
      .def("numpy", &numpy_view, nb::sig("def numpy(self) -> typing.Any"),
           "A NumPy array that shares the memory, which must be host memory.")
      .def(
          "__array__",
          [](nb::handle self, const nb::args&, const nb::kwargs&) { return numpy_view(self); },
          nb::sig("def __array__(self, *args: typing.Any, **kwargs: typing.Any) -> typing.Any"),
          "NumPy calls it if the buffer protocol is refused; it raises the reason.")
      .def(
          "__dlpack__",
          [](nb::handle self, nb::handle stream, nb::handle max_version, nb::handle dl_device,
             nb::handle copy) {
            return nb::cast<const Array&>(self).export_dlpack(self, stream, max_version, dl_device,
                                                              copy);
          },
          nb::kw_only(), nb::arg("stream") = nb::none(), nb::arg("max_version") = nb::none(),
          nb::arg("dl_device") = nb::none(), nb::arg("copy") = nb::none(),
          nb::sig("def __dlpack__(self, *, stream: int | None = None, max_version: tuple[int, int] "
                  "| None = None, dl_device: tuple[int, int] | None = None, copy: bool | None = "
                  "None) -> typing.Any"),
          "Shares the memory. On a GPU, the consumer's `stream` waits for work on the array that "
          "was "
          "enqueued before.")
      .def("__dlpack_device__",
           [](const Array& a) {
             const dlpack::Device device = dlpack_device(a.shape_of());
             return std::pair(device.type, device.index);
           })
      .def("__repr__",
           [](const Array& a) { return "<penstock.Array " + a.shape_of().describe() + ">"; });
  m.def("allocate", &allocate, nb::arg("shape"), nb::arg("dtype"), nb::arg("memory"),
        nb::arg("device"));
}

}  // namespace ps::python
