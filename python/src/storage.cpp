#include "storage.h"

#include <nanobind/stl/string.h>

#include <algorithm>
#include <utility>

#include "bindings.h"
#include "borrowed.h"
#include "errors.h"
#include "interpreter.h"
#include "penstock/base/error.h"
#include "penstock/base/units.h"

namespace ps::python {
namespace {

// Takes a few tenths of a second on a slow disk.
constexpr std::size_t piece = 256 * MiB;

FileMode mode_from(const std::string& mode) {
  if (mode == "r") return FileMode::read;
  if (mode == "w") return FileMode::write;
  throw InvalidArgument("mode", "'r' or 'w'", "'" + mode + "'");
}

FileEngine engine_named_in_python(const std::string& text) {
  for (const FileEngine engine : {FileEngine::best, FileEngine::uring, FileEngine::threads}) {
    if (name(engine) == text) return engine;
  }
  throw InvalidArgument("engine", "'best', 'io_uring' or 'threads'", "'" + text + "'");
}

std::uint64_t checked(std::int64_t offset) {
  if (offset < 0) throw InvalidArgument("offset", "0 or more", std::to_string(offset));
  return static_cast<std::uint64_t>(offset);
}

}  // namespace

std::string path_from(nb::handle object) {
  PyObject* bytes = nullptr;
  if (PyUnicode_FSConverter(object.ptr(), static_cast<void*>(&bytes)) == 0)
    throw nb::python_error();
  const nb::object held = nb::steal(bytes);
  return {PyBytes_AsString(bytes), static_cast<std::size_t>(PyBytes_Size(bytes))};
}

OpenedFile::OpenedFile(std::string path, FileOptions options)
    : path_(std::move(path)), mode_(options.mode) {
  without_lock([&] { naming(path_, [&] { file_.emplace(path_, options); }); });
}

const File& OpenedFile::file() const {
  if (!file_) throw InvalidArgument("file", "an open file", path_ + ", which is closed");
  return *file_;
}

template <class Move>
void OpenedFile::in_pieces(std::uint64_t offset, MemoryView memory, const Move& move) const {
  const File held = file();  // stays open if close() is called meanwhile
  for (std::size_t at = 0; at < memory.bytes;) {
    const std::size_t bytes = std::min(piece, memory.bytes - at);
    without_lock([&] { naming(path_, [&] { move(held, offset + at, memory.sub(at, bytes)); }); });
    at += bytes;
    if (PyErr_CheckSignals() != 0) throw nb::python_error();
  }
}

void OpenedFile::read(std::uint64_t offset, MemoryView to) const {
  in_pieces(offset, to,
            [](const File& file, std::uint64_t at, MemoryView part) { file.read(at, part); });
}

void OpenedFile::write(std::uint64_t offset, MemoryView from) const {
  in_pieces(offset, from,
            [](const File& file, std::uint64_t at, MemoryView part) { file.write(at, part); });
}

void bind_storage(nb::module_& m) {
  nb::class_<OpenedFile>(
      m, "File",
      R"(A file that is read or written with many transfers in flight, bypassing the page cache.

`mode` is "r" to read, or "w" to write to a new or emptied file. Any offset and size is allowed;
multiples of 4 KiB into memory of Penstock (slots, :func:`penstock.empty`) are fastest. `engine` is
"io_uring", "threads", or the "best" that is available; `in_flight` limits the transfers in flight.
With ``direct=False`` the page cache is used.

>>> import os, penstock, tempfile
>>> path = os.path.join(tempfile.mkdtemp(), "numbers")
>>> with penstock.File(path, "w") as file:
...     file.write(b"0123456789")
>>> data = bytearray(4)
>>> with penstock.File(path) as file:
...     file.read(data, offset=3)
...     file.size
10
>>> bytes(data)
b'3456'
)")
      .def(
          "__init__",
          [](OpenedFile* self, nb::handle path, const std::string& mode, const std::string& engine,
             std::size_t in_flight, bool direct) {
            new (self) OpenedFile(path_from(path), {.mode = mode_from(mode),
                                                    .engine = engine_named_in_python(engine),
                                                    .in_flight = in_flight,
                                                    .direct = direct});
          },
          nb::arg("path"), nb::arg("mode") = "r", nb::kw_only(), nb::arg("engine") = "best",
          nb::arg("in_flight") = FileOptions{}.in_flight, nb::arg("direct") = true,
          nb::sig("def __init__(self, path: str | bytes | os.PathLike[str], mode: str = 'r', *, "
                  "engine: str = 'best', in_flight: int = 16, direct: bool = True) -> None"))
      .def_prop_ro("path",
                   [](const OpenedFile& f) {
                     return nb::steal<nb::str>(PyUnicode_DecodeFSDefault(f.path().c_str()));
                   })
      .def_prop_ro(
          "size",
          [](const OpenedFile& f) { return naming(f.path(), [&] { return f.file().size(); }); },
          "The current size of the file in bytes.")
      .def_prop_ro(
          "direct", [](const OpenedFile& f) { return f.file().direct(); },
          "Whether transfers bypass the page cache.")
      .def_prop_ro(
          "engine", [](const OpenedFile& f) { return std::string(name(f.file().engine())); },
          "How data is transferred: 'io_uring' or 'threads'.")
      .def_prop_ro("closed", &OpenedFile::closed)
      .def(
          "read",
          [](const OpenedFile& f, nb::handle out, std::int64_t offset) {
            if (const auto gpu = gpu_of(out)) return f.read_to_gpu(checked(offset), out, *gpu);
            const Borrowed to(
                out, {.argument = "out", .access = Access::write, .elements = Elements::bytes});
            f.read(checked(offset), to.memory());
          },
          nb::arg("out").none(), nb::arg("offset") = 0,
          nb::sig("def read(self, out: typing.Any, offset: int = 0) -> None"),
          "Fills `out`, a contiguous array, with the bytes at `offset`. If it is on a GPU, reading "
          "and "
          "uploading overlap.")
      .def(
          "write",
          [](const OpenedFile& f, nb::handle source, std::int64_t offset) {
            const Borrowed from(source, {.argument = "source", .elements = Elements::bytes});
            f.write(checked(offset), from.memory());
          },
          nb::arg("source").none(), nb::arg("offset") = 0,
          nb::sig("def write(self, source: typing.Any, offset: int = 0) -> None"),
          "Writes `source`, a contiguous array in host memory or bytes, at `offset`.")
      .def(
          "flush",
          [](const OpenedFile& f) {
            without_lock([&] { naming(f.path(), [&] { f.file().flush(); }); });
          },
          "Waits until everything written is on the disk, as fsync does.")
      .def("close", &OpenedFile::close, "Closes the file. Transfers in flight are completed.")
      .def(
          "__enter__", [](nb::handle self) { return nb::borrow(self); },
          nb::sig("def __enter__(self) -> typing.Self"))
      .def(
          "__exit__", [](OpenedFile& f, const nb::args&) { f.close(); },
          nb::sig("def __exit__(self, *args: object) -> None"))
      .def("__repr__", [](const OpenedFile& f) {
        return "<penstock.File '" + f.path() + (f.closed() ? "', closed>" : "'>");
      });
}

}  // namespace ps::python
