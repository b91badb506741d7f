#include "penstock/trace/device_trace.h"

#if __has_include(<cupti.h>)

#include <cuda.h>
#include <cupti.h>
#include <cxxabi.h>
#include <dlfcn.h>

#include <array>
#include <cstdlib>
#include <ctime>
#include <memory>
#include <mutex>
#include <new>
#include <utility>

#include "penstock/base/error.h"
#include "trace/cupti_library.h"
#include "trace/device_records.h"

namespace ps {
namespace {

using detail::DeviceRecords;
using detail::DeviceWork;

// ---- the functions of CUPTI that are used ------------------------------------------------------

struct Cupti {
  decltype(&cuptiActivityRegisterCallbacks) register_callbacks = nullptr;
  decltype(&cuptiActivityRegisterTimestampCallback) register_clock = nullptr;
  decltype(&cuptiActivityEnable) enable = nullptr;
  decltype(&cuptiActivityDisable) disable = nullptr;
  decltype(&cuptiActivityFlushAll) flush = nullptr;
  decltype(&cuptiActivityGetNextRecord) next_record = nullptr;
  decltype(&cuptiActivityGetNumDroppedRecords) dropped_records = nullptr;
  decltype(&cuptiActivityPushExternalCorrelationId) push = nullptr;
  decltype(&cuptiActivityPopExternalCorrelationId) pop = nullptr;
  decltype(&cuptiGetResultString) result_string = nullptr;
  std::string why_not;

  Cupti();
  std::string description(CUptiResult result) const {
    const char* text = "unknown error";
    result_string(result, &text);
    return text;
  }
};

template <class Function>
bool find(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  return function != nullptr;
}

// ---- its records -------------------------------------------------------------------------------

constexpr std::array kinds = {CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION, CUPTI_ACTIVITY_KIND_RUNTIME,
                              CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, CUPTI_ACTIVITY_KIND_MEMCPY,
                              CUPTI_ACTIVITY_KIND_MEMSET};

// The state of the one trace that a process may have. CUPTI's callbacks take no argument of ours.
struct ActiveTrace {
  std::mutex mutex;
  bool on = false;
  std::int64_t origin_ns = 0;
  DeviceRecords records;
};

ActiveTrace& active_trace() {
  static auto* const instance = new ActiveTrace;  // CUPTI may call until the process ends
  return *instance;
}

std::string demangled(const char* name) {
  if (name == nullptr) return "kernel";
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> text(
      abi::__cxa_demangle(name, nullptr, nullptr, &status), &std::free);
  return status == 0 ? text.get() : name;
}

Engine engine_of(std::uint8_t copy_kind) {
  switch (copy_kind) {
    case CUPTI_ACTIVITY_MEMCPY_KIND_HTOD:
    case CUPTI_ACTIVITY_MEMCPY_KIND_HTOA:
      return Engine::upload;
    case CUPTI_ACTIVITY_MEMCPY_KIND_DTOH:
    case CUPTI_ACTIVITY_MEMCPY_KIND_ATOH:
      return Engine::download;
    default:
      return Engine::device_copy;
  }
}

template <class Record>
DeviceWork work_of(const CUpti_Activity* activity, Engine engine, std::string name) {
  const auto* record = reinterpret_cast<const Record*>(activity);
  return {engine, std::move(name), record->correlationId, static_cast<std::int64_t>(record->start),
          static_cast<std::int64_t>(record->end)};
}

void add_record(DeviceRecords& records, const CUpti_Activity* activity) {
  switch (activity->kind) {
    case CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION: {
      const auto* r = reinterpret_cast<const CUpti_ActivityExternalCorrelation*>(activity);
      records.link(r->correlationId, r->externalId);
      break;
    }
    case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL: {
      const auto* r = reinterpret_cast<const CUpti_ActivityKernel10*>(activity);
      records.add_work(
          work_of<CUpti_ActivityKernel10>(activity, Engine::compute, demangled(r->name)));
      break;
    }
    case CUPTI_ACTIVITY_KIND_MEMCPY: {
      const auto* r = reinterpret_cast<const CUpti_ActivityMemcpy6*>(activity);
      records.add_work(work_of<CUpti_ActivityMemcpy6>(activity, engine_of(r->copyKind), "copy"));
      break;
    }
    case CUPTI_ACTIVITY_KIND_MEMSET:
      records.add_work(work_of<CUpti_ActivityMemset4>(activity, Engine::device_copy, "fill"));
      break;
    default:
      break;
  }
}

constexpr std::size_t buffer_bytes = std::size_t{1} << 20, buffer_alignment = 8;

const Cupti& cupti();

void CUPTIAPI give_buffer(std::uint8_t** buffer, std::size_t* size, std::size_t* records) {
  *buffer = static_cast<std::uint8_t*>(std::aligned_alloc(buffer_alignment, buffer_bytes));
  *size = *buffer != nullptr ? buffer_bytes : 0;
  *records = 0;
}

// Counts what CUPTI has dropped since the last call: it resets the number.
void count_dropped(DeviceRecords& records, CUcontext context, std::uint32_t stream) {
  std::size_t dropped = 0;
  if (cupti().dropped_records(context, stream, &dropped) == CUPTI_SUCCESS) {
    records.add_lost(dropped);
  }
}

void CUPTIAPI take_buffer(CUcontext context, std::uint32_t stream, std::uint8_t* buffer,
                          std::size_t, std::size_t valid) {
  const std::unique_ptr<std::uint8_t, decltype(&std::free)> owned(buffer, &std::free);
  ActiveTrace& trace = active_trace();
  const std::lock_guard lock(trace.mutex);
  CUpti_Activity* activity = nullptr;
  CUptiResult result = CUPTI_SUCCESS;
  while ((result = cupti().next_record(buffer, valid, &activity)) == CUPTI_SUCCESS) {
    try {
      add_record(trace.records, activity);
    } catch (const std::bad_alloc&) {  // for a kernel's name
      trace.records.add_lost(1);
    }
  }
  // A record that CUPTI cannot read hides those behind it: at least one is lost.
  if (result != CUPTI_ERROR_MAX_LIMIT_REACHED) trace.records.add_lost(1);
  count_dropped(trace.records, context, stream);
}

// CUPTI converts the GPU's times to this clock, which is std::chrono::steady_clock's.
std::uint64_t CUPTIAPI steady_clock_ns() {
  timespec time{};
  clock_gettime(CLOCK_MONOTONIC, &time);
  return static_cast<std::uint64_t>(time.tv_sec) * 1'000'000'000 +
         static_cast<std::uint64_t>(time.tv_nsec);
}

Cupti::Cupti() {
  void* const library = detail::open_cupti(CUDA_VERSION / 1000);
  if (library == nullptr) {
    why_not =
        "CUPTI was not found: install the toolkit's CUPTI, or set PENSTOCK_CUPTI to the path of "
        "libcupti.so";
    return;
  }
  if (!find(library, "cuptiActivityRegisterCallbacks", register_callbacks) ||
      !find(library, "cuptiActivityRegisterTimestampCallback", register_clock) ||
      !find(library, "cuptiActivityEnable", enable) ||
      !find(library, "cuptiActivityDisable", disable) ||
      !find(library, "cuptiActivityFlushAll", flush) ||
      !find(library, "cuptiActivityGetNextRecord", next_record) ||
      !find(library, "cuptiActivityGetNumDroppedRecords", dropped_records) ||
      !find(library, "cuptiActivityPushExternalCorrelationId", push) ||
      !find(library, "cuptiActivityPopExternalCorrelationId", pop) ||
      !find(library, "cuptiGetResultString", result_string)) {
    why_not = "the CUPTI library that was found lacks functions: it is too old";
    return;
  }
  CUptiResult result = register_clock(steady_clock_ns);
  if (result == CUPTI_SUCCESS) result = register_callbacks(give_buffer, take_buffer);
  if (result != CUPTI_SUCCESS) {
    why_not = "CUPTI cannot be used, perhaps because another tool uses it: " + description(result);
  }
}

const Cupti& cupti() {
  static const auto* const instance = new Cupti;
  return *instance;
}

void disable_all() {
  for (const CUpti_ActivityKind kind : kinds) cupti().disable(kind);
}

}  // namespace

// ---- the trace ---------------------------------------------------------------------------------

std::string DeviceTrace::why_not() { return cupti().why_not; }

DeviceTrace::DeviceTrace(Timeline& timeline) : timeline_(timeline) {
  if (!cupti().why_not.empty()) throw Unsupported("no device trace: " + cupti().why_not);
  ActiveTrace& trace = active_trace();
  {
    const std::lock_guard lock(trace.mutex);
    if (trace.on) throw Unsupported("no device trace: this process already has one");
    trace.on = true;
    trace.origin_ns = static_cast<std::int64_t>(steady_clock_ns());
    trace.records.clear();
  }
  for (const CUpti_ActivityKind kind : kinds) {
    const CUptiResult result = cupti().enable(kind);
    if (result == CUPTI_SUCCESS) continue;
    disable_all();
    const std::lock_guard lock(trace.mutex);
    trace.on = false;
    throw Unsupported("no device trace: " + cupti().description(result));
  }
}

DeviceTrace::~DeviceTrace() {
  cupti().flush(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
  disable_all();
  ActiveTrace& trace = active_trace();
  const std::lock_guard lock(trace.mutex);
  // Without memory for any buffer, no callback has asked for this number.
  count_dropped(trace.records, nullptr, 0);
  trace.records.write_to(timeline_, trace.origin_ns);
  trace.on = false;
}

void DeviceTrace::record(const Interval& interval) noexcept { timeline_.record(interval); }

void DeviceTrace::begin_run(std::int64_t steady_ns) noexcept {
  const std::lock_guard lock(active_trace().mutex);
  active_trace().origin_ns = steady_ns;
}

void DeviceTrace::begin_enqueue(std::string_view stage, std::uint64_t item) noexcept {
  std::uint64_t external = 0;
  {
    const std::lock_guard lock(active_trace().mutex);
    external = active_trace().records.add_owner(stage, item);
  }
  cupti().push(CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0, external);
}

void DeviceTrace::end_enqueue() noexcept {
  std::uint64_t external = 0;
  cupti().pop(CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0, &external);
}

}  // namespace ps

#else
#include "device_trace_nocuda.cpp"
#endif
