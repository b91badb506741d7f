#include "gpu/stream_detector.h"

#if __has_include(<cupti.h>)

#include <cuda.h>
#include <cupti.h>
#include <dlfcn.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <sstream>
#include <stdexcept>
#include <string_view>
#include <thread>

#include "trace/cupti_library.h"

namespace ps::test {
namespace {

// ---- the calls that matter -------------------------------------------------------------------

// Finds the stream among the arguments of a call.
using StreamOf = CUstream (*)(const void* arguments);

enum class Kind {
  enqueues,   // work on its stream
  waits,      // for its stream, or for an event
  forbidden,  // waits for the device or the default stream, or may
};

struct Call {
  Kind kind;
  StreamOf stream = nullptr;
  bool per_thread = false;  // stream 0 is the per-thread default stream, not the legacy one
};

// Both names of a call: for stream 0 as the legacy and as the per-thread default stream. Pasted
// directly, since cuda.h makes macros of some of the names.
#define TAKES_STREAM(kind, function, member)                                                     \
  {CUPTI_DRIVER_TRACE_CBID_##function,                                                           \
   {kind, [](const void* a) { return static_cast<const function##_params*>(a)->member; }}},      \
  {                                                                                              \
    CUPTI_DRIVER_TRACE_CBID_##function##_ptsz, {                                                 \
      kind, [](const void* a) { return static_cast<const function##_ptsz_params*>(a)->member; }, \
          true                                                                                   \
    }                                                                                            \
  }
#define FORBIDDEN(function)                                 \
  {                                                         \
    CUPTI_DRIVER_TRACE_CBID_##function, { Kind::forbidden } \
  }
#define FORBIDDEN_BOTH(function)                                   \
  {CUPTI_DRIVER_TRACE_CBID_##function, {Kind::forbidden}}, {       \
    CUPTI_DRIVER_TRACE_CBID_##function##_ptds, { Kind::forbidden } \
  }

const std::map<CUpti_CallbackId, Call>& calls() {
  static const std::map<CUpti_CallbackId, Call> all = {
      TAKES_STREAM(Kind::enqueues, cuMemcpyAsync, hStream),
      TAKES_STREAM(Kind::enqueues, cuMemcpyHtoDAsync_v2, hStream),
      TAKES_STREAM(Kind::enqueues, cuMemcpyDtoHAsync_v2, hStream),
      TAKES_STREAM(Kind::enqueues, cuMemcpyDtoDAsync_v2, hStream),
      TAKES_STREAM(Kind::enqueues, cuMemcpy2DAsync_v2, hStream),
      TAKES_STREAM(Kind::enqueues, cuMemcpy3DAsync_v2, hStream),
      TAKES_STREAM(Kind::enqueues, cuMemcpyPeerAsync, hStream),
      TAKES_STREAM(Kind::enqueues, cuMemsetD8Async, hStream),
      TAKES_STREAM(Kind::enqueues, cuMemsetD16Async, hStream),
      TAKES_STREAM(Kind::enqueues, cuMemsetD32Async, hStream),
      TAKES_STREAM(Kind::enqueues, cuMemsetD2D8Async, hStream),
      TAKES_STREAM(Kind::enqueues, cuMemsetD2D16Async, hStream),
      TAKES_STREAM(Kind::enqueues, cuMemsetD2D32Async, hStream),
      TAKES_STREAM(Kind::enqueues, cuMemPrefetchAsync_v2, hStream),
      TAKES_STREAM(Kind::enqueues, cuMemAllocAsync, hStream),
      TAKES_STREAM(Kind::enqueues, cuMemAllocFromPoolAsync, hStream),
      TAKES_STREAM(Kind::enqueues, cuMemFreeAsync, hStream),
      TAKES_STREAM(Kind::enqueues, cuLaunchKernel, hStream),
      TAKES_STREAM(Kind::enqueues, cuLaunchKernelEx, config->hStream),
      TAKES_STREAM(Kind::enqueues, cuLaunchCooperativeKernel, hStream),
      TAKES_STREAM(Kind::enqueues, cuLaunchHostFunc, hStream),
      TAKES_STREAM(Kind::enqueues, cuStreamAddCallback, hStream),
      TAKES_STREAM(Kind::enqueues, cuGraphLaunch, hStream),
      TAKES_STREAM(Kind::enqueues, cuEventRecord, hStream),
      TAKES_STREAM(Kind::enqueues, cuEventRecordWithFlags, hStream),
      TAKES_STREAM(Kind::enqueues, cuStreamWaitEvent, hStream),
      TAKES_STREAM(Kind::enqueues, cuStreamWaitValue32_v2, stream),
      TAKES_STREAM(Kind::enqueues, cuStreamWaitValue64_v2, stream),
      TAKES_STREAM(Kind::enqueues, cuStreamWriteValue32_v2, stream),
      TAKES_STREAM(Kind::enqueues, cuStreamWriteValue64_v2, stream),
      TAKES_STREAM(Kind::enqueues, cuStreamBatchMemOp_v2, stream),
      TAKES_STREAM(Kind::enqueues, cuStreamQuery, hStream),
      TAKES_STREAM(Kind::waits, cuStreamSynchronize, hStream),
      {CUPTI_DRIVER_TRACE_CBID_cuEventSynchronize, {Kind::waits}},
      FORBIDDEN(cuCtxSynchronize),
#if CUDA_VERSION >= 13000
      FORBIDDEN(cuCtxSynchronize_v2),
#endif
      FORBIDDEN_BOTH(cuMemcpy),
      FORBIDDEN_BOTH(cuMemcpyHtoD_v2),
      FORBIDDEN_BOTH(cuMemcpyDtoH_v2),
      FORBIDDEN_BOTH(cuMemcpyDtoD_v2),
      FORBIDDEN_BOTH(cuMemcpy2D_v2),
      FORBIDDEN_BOTH(cuMemcpy2DUnaligned_v2),
      FORBIDDEN_BOTH(cuMemcpy3D_v2),
      FORBIDDEN_BOTH(cuMemcpyPeer),
      FORBIDDEN_BOTH(cuMemsetD8_v2),
      FORBIDDEN_BOTH(cuMemsetD16_v2),
      FORBIDDEN_BOTH(cuMemsetD32_v2),
      // These may stop the device until all streams are idle.
      FORBIDDEN(cuMemAlloc_v2),
      FORBIDDEN(cuMemFree_v2),
      FORBIDDEN(cuMemHostAlloc_v2),
      FORBIDDEN(cuMemHostAlloc),
      FORBIDDEN(cuMemFreeHost),
  };
  return all;
}

// A call that the table lacks and that may enqueue work, by its name: no hole goes unnoticed.
bool unknown_but_suspicious(std::string_view name) {
  return name.find("Async") != name.npos || name.find("cuLaunch") != name.npos ||
         name.find("cuMemcpy") != name.npos || name.find("cuMemset") != name.npos;
}

// ---- what was seen ---------------------------------------------------------------------------

// Callbacks come from any thread, and one may still be on its way when the detector is gone.
struct Watch {
  std::mutex mutex;
  bool armed = false;
  DetectorOptions options;
  std::thread::id owner;
  std::vector<std::string> violations;
  std::size_t seen = 0;

  void look(CUpti_CallbackId id, const CUpti_CallbackData& data);
  bool allowed(CUstream stream) const {
    return std::find(options.streams.begin(), options.streams.end(), stream) !=
           options.streams.end();
  }
  void complain(const char* function, const std::string& what) {
    violations.push_back(std::string(function) + " " + what);
  }
};

Watch& watch() {
  static auto* const instance = new Watch;
  return *instance;
}

std::string describe(CUstream stream) {
  if (stream == CU_STREAM_LEGACY) return "the legacy default stream";
  if (stream == CU_STREAM_PER_THREAD) return "the per-thread default stream";
  std::ostringstream text;
  text << "stream " << static_cast<const void*>(stream);
  return text.str();
}

void Watch::look(CUpti_CallbackId id, const CUpti_CallbackData& data) {
  const std::lock_guard lock(mutex);
  if (!armed) return;
  const auto found = calls().find(id);
  if (found == calls().end()) {
    if (unknown_but_suspicious(data.functionName)) {
      complain(data.functionName, "is a call that the detector does not know");
    }
    return;
  }
  const Call& call = found->second;
  if (call.kind == Kind::forbidden) {
    complain(data.functionName, "waits for the device, or may");
    return;
  }
  if (call.stream != nullptr) {
    ++seen;
    CUstream stream = call.stream(data.functionParams);
    if (stream == nullptr) stream = call.per_thread ? CU_STREAM_PER_THREAD : CU_STREAM_LEGACY;
    if (!allowed(stream)) complain(data.functionName, "on " + describe(stream));
  }
  if (call.kind == Kind::waits && !options.may_wait && std::this_thread::get_id() == owner) {
    complain(data.functionName, "waits");
  }
}

void CUPTIAPI called(void* /*unused*/, CUpti_CallbackDomain /*domain*/, CUpti_CallbackId id,
                     const void* data) {
  const auto& call = *static_cast<const CUpti_CallbackData*>(data);
  if (call.callbackSite == CUPTI_API_ENTER) watch().look(id, call);
}

// ---- CUPTI, found at run time ----------------------------------------------------------------

struct Cupti {
  decltype(&cuptiSubscribe) subscribe = nullptr;
  decltype(&cuptiEnableDomain) enable_domain = nullptr;
  decltype(&cuptiGetResultString) result_string = nullptr;
  CUpti_SubscriberHandle subscriber = nullptr;  // for as long as the process lives
  std::string why_not;

  Cupti();
  void load();
  void watch_driver(bool on) const {
    check(enable_domain(on ? 1 : 0, subscriber, CUPTI_CB_DOMAIN_DRIVER_API), "watching the driver");
  }
  void check(CUptiResult result, const char* what) const {
    if (result == CUPTI_SUCCESS) return;
    const char* meaning = "";
    result_string(result, &meaning);
    throw std::runtime_error(std::string(what) + ": " + meaning);
  }
};

template <class Function>
bool find(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  return function != nullptr;
}

void Cupti::load() {
  void* const library = detail::open_cupti(CUDA_VERSION / 1000);
  if (library != nullptr && find(library, "cuptiSubscribe", subscribe) &&
      find(library, "cuptiEnableDomain", enable_domain) &&
      find(library, "cuptiGetResultString", result_string)) {
    return;
  }
  why_not = "CUPTI was not found; put libcupti.so beside this program or name it in PENSTOCK_CUPTI";
}

Cupti::Cupti() {
  load();
  if (!why_not.empty()) return;
  const CUptiResult result = subscribe(&subscriber, called, nullptr);
  // A profiler or a sanitizer that runs this program takes the only place there is.
  if (result == CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED ||
      result == CUPTI_ERROR_NOT_COMPATIBLE) {
    why_not = "another tool uses CUPTI";
    return;
  }
  check(result, "subscribing to CUPTI");
}

Cupti& cupti() {
  static auto* const instance = new Cupti;
  return *instance;
}

}  // namespace

std::string StreamDetector::why_not() { return cupti().why_not; }

StreamDetector::StreamDetector(const DetectorOptions& options) {
  {
    Watch& w = watch();
    const std::lock_guard lock(w.mutex);
    w.options = options;
    w.owner = std::this_thread::get_id();
    w.violations.clear();
    w.seen = 0;
    w.armed = true;
  }
  cupti().watch_driver(true);
}

StreamDetector::~StreamDetector() {
  cupti().watch_driver(false);
  const std::lock_guard lock(watch().mutex);
  watch().armed = false;
}

std::vector<std::string> StreamDetector::violations() const {
  const std::lock_guard lock(watch().mutex);
  return watch().violations;
}

std::size_t StreamDetector::seen() const {
  const std::lock_guard lock(watch().mutex);
  return watch().seen;
}

}  // namespace ps::test

#else  // no headers of CUPTI

namespace ps::test {

std::string StreamDetector::why_not() { return "built without the headers of CUPTI"; }
StreamDetector::StreamDetector(const DetectorOptions& /*options*/) {}
StreamDetector::~StreamDetector() = default;
std::vector<std::string> StreamDetector::violations() const { return {}; }
std::size_t StreamDetector::seen() const { return 0; }

}  // namespace ps::test

#endif
