#include "penstock/trace/device_trace.h"

#if __has_include(<cupti.h>)

#include <cuda.h>
#include <cupti.h>
#include <cxxabi.h>
#include <dlfcn.h>

#include <array>
#include <cstdlib>
#include <ctime>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <utility>
#include <vector>

#include "penstock/base/error.h"
#include "trace/cupti_library.h"

namespace ps {
namespace {

// ---- the functions that are used ---------------------------------------------------------------

struct Cupti {
  decltype(&cuptiActivityRegisterCallbacks) register_callbacks = nullptr;
  decltype(&cuptiActivityRegisterTimestampCallback) register_clock = nullptr;
  decltype(&cuptiActivityEnable) enable = nullptr;
  decltype(&cuptiActivityDisable) disable = nullptr;
  decltype(&cuptiActivityFlushAll) flush = nullptr;
  decltype(&cuptiActivityGetNextRecord) next_record = nullptr;
  decltype(&cuptiActivityPushExternalCorrelationId) push = nullptr;
  decltype(&cuptiActivityPopExternalCorrelationId) pop = nullptr;
  decltype(&cuptiGetResultString) result_string = nullptr;
  std::string why_not;

  Cupti();
  std::string meaning(CUptiResult result) const {
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

// ---- what it tells -----------------------------------------------------------------------------

constexpr std::array kinds = {CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION, CUPTI_ACTIVITY_KIND_RUNTIME,
                              CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, CUPTI_ACTIVITY_KIND_MEMCPY,
                              CUPTI_ACTIVITY_KIND_MEMSET};

struct Work {
  Engine engine;
  std::string name;
  std::uint32_t correlation;
  std::int64_t begin_ns, end_ns;
};

struct Owner {
  std::string stage;
  std::uint64_t item;
};

// Of the one trace that there may be; CUPTI's callbacks are told nothing else.
struct Watching {
  std::mutex mutex;
  bool on = false;
  bool complete = true;  // false when memory ran out
  std::int64_t origin_ns = 0;
  std::vector<Work> work;
  std::vector<Owner> owners;                        // external numbers count from 1
  std::map<std::uint32_t, std::uint64_t> external;  // by correlation
};

Watching& watching() {
  static auto* const instance = new Watching;  // CUPTI may call until the process ends
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
Work work_of(const CUpti_Activity* activity, Engine engine, std::string name) {
  const auto* record = reinterpret_cast<const Record*>(activity);
  return {engine, std::move(name), record->correlationId, static_cast<std::int64_t>(record->start),
          static_cast<std::int64_t>(record->end)};
}

void take(Watching& to, const CUpti_Activity* activity) {
  switch (activity->kind) {
    case CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION: {
      const auto* r = reinterpret_cast<const CUpti_ActivityExternalCorrelation*>(activity);
      to.external[r->correlationId] = r->externalId;
      break;
    }
    case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL: {
      const auto* r = reinterpret_cast<const CUpti_ActivityKernel10*>(activity);
      to.work.push_back(
          work_of<CUpti_ActivityKernel10>(activity, Engine::compute, demangled(r->name)));
      break;
    }
    case CUPTI_ACTIVITY_KIND_MEMCPY: {
      const auto* r = reinterpret_cast<const CUpti_ActivityMemcpy6*>(activity);
      to.work.push_back(work_of<CUpti_ActivityMemcpy6>(activity, engine_of(r->copyKind), "copy"));
      break;
    }
    case CUPTI_ACTIVITY_KIND_MEMSET:
      to.work.push_back(work_of<CUpti_ActivityMemset4>(activity, Engine::device_copy, "fill"));
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

void CUPTIAPI take_buffer(CUcontext, std::uint32_t, std::uint8_t* buffer, std::size_t,
                          std::size_t valid) {
  const std::unique_ptr<std::uint8_t, decltype(&std::free)> owned(buffer, &std::free);
  Watching& to = watching();
  const std::lock_guard lock(to.mutex);
  try {
    CUpti_Activity* activity = nullptr;
    while (cupti().next_record(buffer, valid, &activity) == CUPTI_SUCCESS) take(to, activity);
  } catch (const std::bad_alloc&) {
    to.complete = false;
  }
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
        "CUPTI was not found: install the toolkit's CUPTI, or name libcupti.so in PENSTOCK_CUPTI";
    return;
  }
  if (!find(library, "cuptiActivityRegisterCallbacks", register_callbacks) ||
      !find(library, "cuptiActivityRegisterTimestampCallback", register_clock) ||
      !find(library, "cuptiActivityEnable", enable) ||
      !find(library, "cuptiActivityDisable", disable) ||
      !find(library, "cuptiActivityFlushAll", flush) ||
      !find(library, "cuptiActivityGetNextRecord", next_record) ||
      !find(library, "cuptiActivityPushExternalCorrelationId", push) ||
      !find(library, "cuptiActivityPopExternalCorrelationId", pop) ||
      !find(library, "cuptiGetResultString", result_string)) {
    why_not = "the CUPTI that was found lacks functions: it is too old";
    return;
  }
  CUptiResult result = register_clock(steady_clock_ns);
  if (result == CUPTI_SUCCESS) result = register_callbacks(give_buffer, take_buffer);
  if (result != CUPTI_SUCCESS)
    why_not = "CUPTI refuses, another tool may use it: " + meaning(result);
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
  Watching& to = watching();
  {
    const std::lock_guard lock(to.mutex);
    if (to.on) throw Unsupported("no device trace: another one is under way in this process");
    to.on = true;
    to.complete = true;
    to.origin_ns = static_cast<std::int64_t>(steady_clock_ns());
    to.work.clear();
    to.owners.clear();
    to.external.clear();
  }
  for (const CUpti_ActivityKind kind : kinds) {
    const CUptiResult result = cupti().enable(kind);
    if (result == CUPTI_SUCCESS) continue;
    disable_all();
    const std::lock_guard lock(to.mutex);
    to.on = false;
    throw Unsupported("no device trace: " + cupti().meaning(result));
  }
}

DeviceTrace::~DeviceTrace() {
  cupti().flush(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
  disable_all();
  Watching& from = watching();
  const std::lock_guard lock(from.mutex);
  std::uint64_t loose = 0;
  for (const Work& work : from.work) {
    const auto external = from.external.find(work.correlation);
    const bool owned = external != from.external.end() && external->second > 0 &&
                       external->second <= from.owners.size();
    const Owner* const owner = owned ? &from.owners[external->second - 1] : nullptr;
    timeline_.record({work.engine, owned ? std::string_view(owner->stage) : work.name,
                      owned ? owner->item : loose++, work.begin_ns - from.origin_ns,
                      work.end_ns - from.origin_ns});
  }
  from.on = false;
}

void DeviceTrace::record(const Interval& interval) noexcept { timeline_.record(interval); }

void DeviceTrace::begin_run(std::int64_t steady_ns) noexcept {
  const std::lock_guard lock(watching().mutex);
  watching().origin_ns = steady_ns;
}

void DeviceTrace::begin_enqueue(std::string_view stage, std::uint64_t item) noexcept {
  std::uint64_t number = 0;  // belongs to nobody
  Watching& to = watching();
  {
    const std::lock_guard lock(to.mutex);
    try {
      to.owners.push_back({std::string(stage), item});
      number = to.owners.size();
    } catch (const std::bad_alloc&) {
      to.complete = false;
    }
  }
  cupti().push(CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0, number);
}

void DeviceTrace::end_enqueue() noexcept {
  std::uint64_t number = 0;
  cupti().pop(CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0, &number);
}

}  // namespace ps

#else
#include "device_trace_nocuda.cpp"
#endif
