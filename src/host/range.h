// Names what a thread does while this lives, for tools that show NVTX ranges. Costs a few
// nanoseconds when none is there.
#pragma once

#if PENSTOCK_WITH_CUDA && __has_include(<nvtx3/nvToolsExt.h>)
#include <nvtx3/nvToolsExt.h>
#define PENSTOCK_NVTX 1
#endif

#include <string>

namespace ps::detail {

class NamedRange {
 public:
#ifdef PENSTOCK_NVTX
  explicit NamedRange(const std::string& name) {
    static const nvtxDomainHandle_t domain = nvtxDomainCreateA("penstock");
    domain_ = domain;
    nvtxEventAttributes_t attributes{};
    attributes.version = NVTX_VERSION;
    attributes.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
    attributes.messageType = NVTX_MESSAGE_TYPE_ASCII;
    attributes.message.ascii = name.c_str();
    nvtxDomainRangePushEx(domain_, &attributes);
  }
  ~NamedRange() { nvtxDomainRangePop(domain_); }

 private:
  nvtxDomainHandle_t domain_;

 public:
#else
  explicit NamedRange(const std::string& /*name*/) {}
#endif
  NamedRange(const NamedRange&) = delete;
  NamedRange& operator=(const NamedRange&) = delete;
};

}  // namespace ps::detail
