#include "penstock/base/error.h"
#include "penstock/trace/device_trace.h"

namespace ps {

std::string DeviceTrace::why_not() { return "this build is without CUDA"; }

DeviceTrace::DeviceTrace(Timeline& timeline) : timeline_(timeline) { throw Unsupported(why_not()); }
DeviceTrace::~DeviceTrace() = default;
void DeviceTrace::record(const Interval& interval) noexcept { timeline_.record(interval); }
void DeviceTrace::begin_run(std::int64_t /*steady_ns*/) noexcept {}
void DeviceTrace::begin_enqueue(std::string_view /*stage*/, std::uint64_t /*item*/) noexcept {}
void DeviceTrace::end_enqueue() noexcept {}

}  // namespace ps
