#include "borrowed.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "array.h"
#include "dlpack.h"
#include "penstock/base/error.h"

namespace ps::python {
namespace {

constexpr const char* element_types = "elements of type f64, f32, f16, bf16, i64, i32, u8 or bool";

std::string kind_of(nb::handle object) { return Py_TYPE(object.ptr())->tp_name; }

DType dtype_of(dlpack::DataType type, const BorrowOptions& options) {
  if (type.lanes == 1) {
    switch (type.code) {
      case dlpack::floating:
        if (type.bits == 64) return DType::f64;
        if (type.bits == 32) return DType::f32;
        if (type.bits == 16) return DType::f16;
        break;
      case dlpack::bfloat:
        if (type.bits == 16) return DType::bf16;
        break;
      case dlpack::integer:
        if (type.bits == 64) return DType::i64;
        if (type.bits == 32) return DType::i32;
        break;
      case dlpack::unsigned_integer:
        if (type.bits == 8) return DType::u8;
        break;
      case dlpack::boolean:
        if (type.bits == 8) return DType::boolean;
        break;
      default:
        break;
    }
  }
  const char* const kind = type.code == dlpack::integer            ? "i"
                           : type.code == dlpack::unsigned_integer ? "u"
                           : type.code == dlpack::floating         ? "f"
                                                                   : "type ";
  throw InvalidArgument(
      options.name(), element_types,
      fmt::format("{}{}{}", kind, type.bits,
                  type.lanes == 1 ? "" : fmt::format(" in groups of {}", type.lanes)));
}

Place place_of(dlpack::Device device, const BorrowOptions& options) {
  switch (device.type) {
    case dlpack::cpu:
      return {Memory::host, cpu_index};
    case dlpack::cuda_host:
      return {Memory::pinned, cpu_index};
    case dlpack::cuda:
    case dlpack::cuda_managed:
      return {Memory::device, device.index};
    default:
      throw InvalidArgument(options.name(), "memory of the CPU or of a CUDA GPU",
                            fmt::format("memory of DLPack device type {}", device.type));
  }
}

bool contiguous(const dlpack::Tensor& tensor) {
  if (tensor.strides == nullptr) return true;
  std::int64_t expected = 1;
  for (int i = tensor.rank - 1; i >= 0; --i) {
    if (tensor.shape[i] == 0) return true;
    if (tensor.shape[i] != 1 && tensor.strides[i] != expected) return false;
    expected *= tensor.shape[i];
  }
  return true;
}

TensorView view_of(const dlpack::Tensor& tensor, const BorrowOptions& options) {
  const auto rank = static_cast<std::size_t>(tensor.rank);
  const std::span<const std::int64_t> shape(tensor.shape, rank);
  const Place place = place_of(tensor.device, options);
  auto* const data = static_cast<std::byte*>(tensor.data) + tensor.byte_offset;
  if (options.elements == Elements::typed) {
    const DType dtype = dtype_of(tensor.dtype, options);
    if (tensor.strides == nullptr) return {data, dtype, shape, place};
    return {data, dtype, shape, std::span<const std::int64_t>(tensor.strides, rank), place};
  }
  if (!contiguous(tensor)) {
    throw InvalidArgument(options.name(), "a contiguous array",
                          fmt::format("one with strides ({})",
                                      fmt::join(tensor.strides, tensor.strides + rank, ", ")));
  }
  std::int64_t bits = tensor.dtype.bits * std::int64_t{tensor.dtype.lanes};
  if (bits % 8 != 0) {
    throw InvalidArgument(options.name(), "elements of whole bytes", fmt::format("{} bits", bits));
  }
  for (const std::int64_t extent : shape) bits *= extent;
  return {data, DType::u8, {bits / 8}, place};
}

// Whether a library refused to share its memory. Any other error is passed on as it is.
bool is_refusal(const nb::python_error& error) {
  return error.matches(PyExc_BufferError) || error.matches(PyExc_TypeError) ||
         error.matches(PyExc_ValueError);
}

[[noreturn]] void refuse(const BorrowOptions& options, const char* expected,
                         const nb::python_error& error) {
  throw InvalidArgument(options.name(), expected, nb::str(error.value()).c_str());
}

dlpack::Device device_of(nb::handle object) {
  const nb::object device = object.attr("__dlpack_device__")();
  return {nb::cast<std::int32_t>(nb::int_(device[0])), nb::cast<std::int32_t>(nb::int_(device[1]))};
}

nb::object ask_for_capsule(nb::handle object, const Stream* stream) {
  const auto ask = [&](bool versioned) {
    nb::dict keywords;
    if (versioned) {
      keywords["max_version"] = nb::make_tuple(dlpack::newest.major, dlpack::newest.minor);
    }
    // 1 and 2 name the legacy and the per-thread stream in CUDA and in DLPack alike.
    if (stream != nullptr) {
      keywords["stream"] = reinterpret_cast<std::intptr_t>(stream->native());
    }
    return object.attr("__dlpack__")(**keywords);
  };
  try {
    return ask(true);
  } catch (const nb::python_error& error) {
    if (!error.matches(PyExc_TypeError)) throw;  // the library predates DLPack versions
  }
  return ask(false);
}

// The array's memory, ready in the order of `stream`.
nb::object ask_for_ready_capsule(nb::handle object, const Stream& stream) {
  if (reinterpret_cast<std::intptr_t>(stream.native()) != dlpack::per_thread) {
    return ask_for_capsule(object, &stream);
  }
  try {
    return ask_for_capsule(object, &stream);
  } catch (const nb::python_error& error) {
    if (!is_refusal(error)) throw;  // torch does not know the per-thread stream
  }
  const Stream between(stream.device());
  nb::object capsule = ask_for_capsule(object, &between);
  const Event ready(stream.device());
  between.record(ready);
  stream.wait(ready);
  return capsule;
}

// The functions of a type, asked for once.
const dlpack::Exchange* ask_for_exchange(nb::handle type) {
  const nb::object capsule = nb::getattr(type, dlpack::Exchange::attribute, nb::none());
  if (PyCapsule_IsValid(capsule.ptr(), dlpack::Exchange::name) == 0) return nullptr;
  auto* exchange = static_cast<const dlpack::Exchange*>(
      PyCapsule_GetPointer(capsule.ptr(), dlpack::Exchange::name));
  while (exchange != nullptr && exchange->version.major > dlpack::newest.major) {
    exchange = exchange->previous;
  }
  return exchange != nullptr && exchange->view != nullptr ? exchange : nullptr;
}

bool is_gpus(dlpack::Device device) {
  return device.type == dlpack::cuda || device.type == dlpack::cuda_managed;
}

}  // namespace

const dlpack::Exchange* exchange_of(nb::handle array) {
  // The GIL is held. The types are kept alive, so that no other type gets their address.
  static auto& known = *new std::unordered_map<PyObject*, const dlpack::Exchange*>;
  static std::pair<PyObject*, const dlpack::Exchange*> last;  // one call's arrays have one type
  const nb::handle type = array.type();
  if (last.first == type.ptr()) return last.second;
  auto found = known.find(type.ptr());
  if (found == known.end()) {
    found = known.emplace(type.inc_ref().ptr(), ask_for_exchange(type)).first;
  }
  last = *found;
  return last.second;
}

std::string name_of(const char* argument, int sensor) {
  return sensor < 0 ? argument : fmt::format("sensors[{}].{}", sensor, argument);
}

std::optional<TensorView> view_in_place(nb::handle array, const BorrowOptions& options) {
  if (options.library == nullptr || exchange_of(array) != options.library) return std::nullopt;
  dlpack::Tensor tensor{};
  if (options.library->view(array.ptr(), &tensor) != 0) {
    PyErr_Clear();  // __dlpack__ gives a better reason
    return std::nullopt;
  }
  return view_of(tensor, options);
}

std::optional<int> gpu_of(nb::handle array) {
  if (const dlpack::Exchange* const exchange = exchange_of(array)) {
    dlpack::Tensor tensor{};
    if (exchange->view(array.ptr(), &tensor) == 0) {
      return is_gpus(tensor.device) ? std::optional(tensor.device.index) : std::nullopt;
    }
    PyErr_Clear();  // DLPack cannot describe the array, but perhaps its device
  }
  Place place;
  if (nb::isinstance<Array>(array)) {
    place = nb::cast<const Array&>(array).shape_of().place();
  } else if (nb::hasattr(array, "__dlpack_device__")) {
    const dlpack::Device device = device_of(array);
    if (is_gpus(device)) return device.index;
  }
  if (place.memory == Memory::device && place.device != cpu_index) return place.device;
  return std::nullopt;
}

Borrowed::Borrowed(nb::handle object, const BorrowOptions& options) {
  if (nb::isinstance<Array>(object)) {
    const TensorView& view = nb::cast<const Array&>(object).view();
    view_ = options.elements == Elements::typed
                ? view
                : TensorView(view.data(), DType::u8, {static_cast<std::int64_t>(view.bytes())},
                             view.place());
    held_ = std::make_shared<nb::object>(nb::borrow(object));
  } else if (const auto view = view_in_place(object, options)) {
    view_ = *view;
  } else if (options.elements == Elements::bytes && PyObject_CheckBuffer(object.ptr()) != 0) {
    from_buffer(object, options);
  } else if (nb::hasattr(object, "__dlpack__") && nb::hasattr(object, "__dlpack_device__")) {
    from_dlpack(object, options);
  } else {
    throw nb::type_error(fmt::format("{}: expected an array (DLPack{}), given {}", options.name(),
                                     options.elements == Elements::bytes ? " or a buffer" : "",
                                     kind_of(object))
                             .c_str());
  }
}

void Borrowed::from_buffer(nb::handle object, const BorrowOptions& options) {
  const auto release = [](Py_buffer* buffer) {
    PyBuffer_Release(buffer);  // allowed if it was never filled
    delete buffer;
  };
  const std::shared_ptr<Py_buffer> buffer(new Py_buffer{}, release);
  const bool write = options.access == Access::write;
  const int flags = PyBUF_C_CONTIGUOUS | PyBUF_FORMAT | (write ? PyBUF_WRITABLE : 0);
  if (PyObject_GetBuffer(object.ptr(), buffer.get(), flags) != 0) {
    const nb::python_error error;
    refuse(options, write ? "writable contiguous memory" : "contiguous memory", error);
  }
  held_ = buffer;
  if (buffer->format != nullptr &&
      std::string_view(buffer->format).find('O') != std::string::npos) {
    throw InvalidArgument(options.name(), "elements without Python objects", "Python objects");
  }
  view_ = TensorView(buffer->buf, DType::u8, {static_cast<std::int64_t>(buffer->len)});
}

void Borrowed::from_dlpack(nb::handle object, const BorrowOptions& options) {
  nb::object capsule;
  try {
    const Place place = place_of(device_of(object), options);
    capsule = place.memory == Memory::device && options.stream != nullptr
                  ? ask_for_ready_capsule(object, *options.stream)
                  : ask_for_capsule(object, nullptr);
  } catch (const nb::python_error& error) {
    if (!is_refusal(error)) throw;
    refuse(options, "an array that its library shares through DLPack", error);
  }
  if (PyCapsule_IsValid(capsule.ptr(), dlpack::ManagedVersioned::name) != 0) {
    take<dlpack::ManagedVersioned>(capsule, options);
  } else if (PyCapsule_IsValid(capsule.ptr(), dlpack::Managed::name) != 0) {
    take<dlpack::Managed>(capsule, options);
  } else {
    throw InvalidArgument(options.name(), "a DLPack capsule from __dlpack__()",
                          nb::repr(capsule).c_str());
  }
  // torch exports page-locked memory as CPU memory, but can tell.
  if ((options.stream != nullptr || options.ask_page_locked) &&
      view_.place().memory == Memory::host && nb::hasattr(object, "is_pinned") &&
      nb::cast<bool>(object.attr("is_pinned")())) {
    view_ = TensorView(view_.data(), view_.dtype(), view_.shape(), view_.strides(),
                       {Memory::pinned, cpu_index});
  }
}

template <class M>
void Borrowed::take(nb::handle capsule, const BorrowOptions& options) {
  auto* const managed = static_cast<M*>(PyCapsule_GetPointer(capsule.ptr(), M::name));
  if constexpr (requires { managed->version; }) {
    if (managed->version.major > dlpack::newest.major) {
      throw InvalidArgument(options.name(), "DLPack version 1 or older",
                            fmt::format("version {}", managed->version.major));
    }
    if (options.access == Access::write && (managed->flags & dlpack::read_only) != 0) {
      throw InvalidArgument(options.name(), "a writable array", "a read-only one");
    }
  }
  PyCapsule_SetName(capsule.ptr(), M::used);
  held_ = std::shared_ptr<void>(managed, [](M* done) {
    if (done->deleter != nullptr) done->deleter(done);
  });
  view_ = view_of(managed->tensor, options);
}

}  // namespace ps::python
