#include "fake_cupti.h"

#include <cupti.h>

#include <cstring>
#include <vector>

namespace {

// Large enough for each kind of record that is written here, and aligned as CUPTI's are.
constexpr std::size_t stride = (sizeof(CUpti_ActivityKernel10) + 7) / 8 * 8;

struct Kernel {
  std::uint64_t begin_ns, end_ns, external;
};

CUpti_BuffersCallbackRequestFunc request = nullptr;
CUpti_BuffersCallbackCompleteFunc complete = nullptr;
std::vector<Kernel> kernels;
std::vector<std::uint64_t> externals;
std::size_t dropped = 0;
bool broken = false;

template <class Record>
void write(std::uint8_t*& at, const Record& record) {
  std::memset(at, 0, stride);
  std::memcpy(at, &record, sizeof record);
  at += stride;
}

}  // namespace

void fake_cupti_kernel(std::uint64_t begin_ns, std::uint64_t end_ns) {
  kernels.push_back({begin_ns, end_ns, externals.empty() ? 0 : externals.back()});
}
void fake_cupti_drop(std::size_t records) { dropped += records; }
void fake_cupti_break() { broken = true; }

CUptiResult cuptiActivityRegisterCallbacks(CUpti_BuffersCallbackRequestFunc on_request,
                                           CUpti_BuffersCallbackCompleteFunc on_complete) {
  request = on_request;
  complete = on_complete;
  return CUPTI_SUCCESS;
}

CUptiResult cuptiActivityRegisterTimestampCallback(CUpti_TimestampCallbackFunc) {
  return CUPTI_SUCCESS;
}
CUptiResult cuptiActivityEnable(CUpti_ActivityKind) { return CUPTI_SUCCESS; }
CUptiResult cuptiActivityDisable(CUpti_ActivityKind) { return CUPTI_SUCCESS; }

CUptiResult cuptiActivityFlushAll(std::uint32_t) {
  if (kernels.empty() && !broken) return CUPTI_SUCCESS;
  std::uint8_t* buffer = nullptr;
  std::size_t size = 0, most = 0;
  request(&buffer, &size, &most);
  std::uint8_t* at = buffer;
  std::uint32_t correlation = 0;
  for (const Kernel& kernel : kernels) {
    ++correlation;
    if (kernel.external > 0) {
      CUpti_ActivityExternalCorrelation owner{};
      owner.kind = CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION;
      owner.correlationId = correlation;
      owner.externalId = kernel.external;
      write(at, owner);
    }
    CUpti_ActivityKernel10 record{};
    record.kind = CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL;
    record.correlationId = correlation;
    record.start = kernel.begin_ns;
    record.end = kernel.end_ns;
    record.name = "fake_kernel";
    write(at, record);
  }
  kernels.clear();
  complete(nullptr, 0, buffer, size, static_cast<std::size_t>(at - buffer));
  return CUPTI_SUCCESS;
}

CUptiResult cuptiActivityGetNextRecord(std::uint8_t* buffer, std::size_t valid,
                                       CUpti_Activity** record) {
  std::uint8_t* const next =
      *record == nullptr ? buffer : reinterpret_cast<std::uint8_t*>(*record) + stride;
  if (next >= buffer + valid) {
    const bool unreadable = broken;
    broken = false;
    return unreadable ? CUPTI_ERROR_INVALID_KIND : CUPTI_ERROR_MAX_LIMIT_REACHED;
  }
  *record = reinterpret_cast<CUpti_Activity*>(next);
  return CUPTI_SUCCESS;
}

CUptiResult cuptiActivityGetNumDroppedRecords(CUcontext, std::uint32_t, std::size_t* records) {
  *records = dropped;
  dropped = 0;
  return CUPTI_SUCCESS;
}

CUptiResult cuptiActivityPushExternalCorrelationId(CUpti_ExternalCorrelationKind,
                                                   std::uint64_t external) {
  externals.push_back(external);
  return CUPTI_SUCCESS;
}

CUptiResult cuptiActivityPopExternalCorrelationId(CUpti_ExternalCorrelationKind,
                                                  std::uint64_t* external) {
  *external = externals.back();
  externals.pop_back();
  return CUPTI_SUCCESS;
}

CUptiResult cuptiGetResultString(CUptiResult, const char** text) {
  *text = "a fake error";
  return CUPTI_SUCCESS;
}
