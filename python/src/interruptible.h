// Long work that Ctrl-C can stop.
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

// Runs `work` on a new thread, while this one watches for Ctrl-C and calls `progress` (a Python
// function or None). The work has ended when this returns or throws.
void interruptible(const nb::object& progress, const LongWork& work);

// The progress function of a run, which also checks for Ctrl-C, ten times per second. `progress`
// may be None, and must outlive the run.
std::function<void(const Progress&)> listening(const nb::object& progress);

}  // namespace ps::python
