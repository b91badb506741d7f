// Long work that Ctrl-C ends.
#pragma once

#include <nanobind/nanobind.h>

#include <functional>
#include <stop_token>
#include <string_view>

#include "penstock/host/pipeline.h"

namespace ps::python {

namespace nb = nanobind;

using Report = std::function<void(std::string_view what, double share)>;
using LongWork = std::function<void(const std::stop_token& stop, const Report& report)>;

// Runs `work` on a thread of its own, while this one listens for Ctrl-C and tells `progress` (a
// function of Python, or None) what is going on. Whatever ends it, the work is over on return.
void interruptible(const nb::object& progress, const LongWork& work);

// For the `progress` of a run, whether or not somebody wants to see it (`progress` may be None):
// Ctrl-C is heard there, ten times a second. `progress` must outlive the run.
std::function<void(const Progress&)> listening(const nb::object& progress);

}  // namespace ps::python
