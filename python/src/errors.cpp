#include "errors.h"

#include <cstring>
#include <new>
#include <typeinfo>
#include <utility>

#include "interpreter.h"
#include "penstock/base/error.h"
#include "penstock/host/pipeline.h"

namespace ps::python {
namespace {

nb::object error_class(const char* name) {
  return nb::module_::import_("penstock._errors").attr(name);
}

nb::object builtin(PyObject* type, const char* text) { return nb::borrow(type)(nb::str(text)); }

// Python chooses the subclass by errno: FileNotFoundError, PermissionError and so on.
nb::object os_error(int code, const char* text) {
  return nb::borrow(PyExc_OSError)(code, nb::str(text));
}

nb::object python_exception(const std::exception_ptr& failure);

nb::object pipeline_error(const PipelineError& error) {
  nb::object cause = python_exception(error.cause());
  // KeyboardInterrupt and SystemExit are raised as they are, not as the cause of an error.
  if (PyObject_IsInstance(cause.ptr(), PyExc_Exception) == 0) return cause;
  nb::object raised =
      error_class("PipelineError")(error.what(), nb::str(error.stage().c_str()), error.item());
  PyException_SetCause(raised.ptr(), cause.release().ptr());
  return raised;
}

// The Python exception of a C++ one.
nb::object python_exception(const std::exception_ptr& failure) {
  try {
    std::rethrow_exception(failure);
  } catch (const PythonFailure& error) {
    return nb::borrow(error.exception());
  } catch (const PipelineError& error) {
    return pipeline_error(error);
  } catch (const InterpreterGone& error) {
    return builtin(PyExc_SystemExit, error.what());  // ends a daemon thread silently
  } catch (const Cancelled& error) {
    return builtin(PyExc_SystemExit, error.what());  // only at exit; Ctrl-C has its own exception
  } catch (const InvalidArgument& error) {
    return error_class("InvalidArgument")(error.argument().c_str(), error.expected().c_str(),
                                          error.given().c_str());
  } catch (const FileFailure& error) {
    return nb::borrow(PyExc_OSError)(error.code(), nb::str(error.what()),
                                     nb::str(error.path().c_str()));
  } catch (const SystemError& error) {
    return os_error(error.code().value(), error.what());
  } catch (const OutOfMemory& error) {
    return error_class("OutOfMemory")(error.what());
  } catch (const Unsupported& error) {
    return error_class("Unsupported")(error.what());
  } catch (const DeviceLost& error) {
    return error_class("DeviceLost")(error.what(), error.code());
  } catch (const DeviceError& error) {
    return error_class("DeviceError")(error.what(), error.code());
  } catch (const std::bad_alloc& error) {
    return builtin(PyExc_MemoryError, error.what());
  } catch (const std::exception& error) {
    return builtin(PyExc_RuntimeError, error.what());
  } catch (...) {
    return builtin(PyExc_RuntimeError, "a C++ exception of unknown type");
  }
}

void translate(const std::exception_ptr& failure, void* /*payload*/) {
  try {
    std::rethrow_exception(failure);
  } catch (const nb::python_error&) {
    throw;
  } catch (const nb::builtin_exception&) {
    throw;
  } catch (const std::bad_cast&) {
    throw;  // nanobind's signal that an argument has another type
  } catch (...) {
    const nb::object raised = python_exception(failure);
    PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(raised.ptr())), raised.ptr());
  }
}

}  // namespace

PythonFailure::PythonFailure(const std::string& text, std::shared_ptr<PyObject> exception)
    : std::runtime_error(text), exception_(std::move(exception)) {}

PythonFailure PythonFailure::take() {
  nb::python_error error;
  const nb::object value = nb::borrow(error.value());
  std::string text = Py_TYPE(value.ptr())->tp_name;
  try {
    const nb::str said(value);
    if (std::strlen(said.c_str()) > 0) text += std::string(": ") + said.c_str();
  } catch (const nb::python_error&) {
    // The exception cannot be printed; its type must do.
  }
  return {text, share(value.ptr())};
}

void throw_if_interrupted() {
  const Inside inside;
  if (PyErr_CheckSignals() != 0) throw PythonFailure::take();
}

FileFailure::FileFailure(int code, const std::string& text, std::string path)
    : std::runtime_error(text), code_(code), path_(std::move(path)) {}

std::exception_ptr with_path(std::exception_ptr failure, const std::string& path) {
  try {
    std::rethrow_exception(failure);
  } catch (const SystemError& error) {
    return std::make_exception_ptr(FileFailure(error.code().value(), error.what(), path));
  } catch (...) {
    return failure;
  }
}

void bind_errors() { nb::register_exception_translator(translate); }

}  // namespace ps::python
