// Stands in for a profiler: NVTX loads it, and it writes the name of every range that is pushed to
// the file that PENSTOCK_TEST_RANGES names.
#include <nvtx3/nvToolsExt.h>

#include <cstdio>
#include <cstdlib>
#include <mutex>

namespace {

int NVTX_API range_push(nvtxDomainHandle_t, const nvtxEventAttributes_t* attributes) {
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  static std::FILE* const file = std::fopen(std::getenv("PENSTOCK_TEST_RANGES"), "w");
  if (file == nullptr) std::abort();
  std::fprintf(file, "%s\n", attributes->message.ascii);
  std::fflush(file);
  return 0;
}

}  // namespace

extern "C" __attribute__((visibility("default"))) int InitializeInjectionNvtx2(
    NvtxGetExportTableFunc_t get_table) {
  const auto* callbacks =
      static_cast<const NvtxExportTableCallbacks*>(get_table(NVTX_ETID_CALLBACKS));
  NvtxFunctionTable table = nullptr;
  unsigned int size = 0;
  if (callbacks == nullptr ||
      callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE2, &table, &size) == 0 ||
      size <= NVTX_CBID_CORE2_DomainRangePushEx) {
    return 0;
  }
  *table[NVTX_CBID_CORE2_DomainRangePushEx] = reinterpret_cast<NvtxFunctionPointer>(&range_push);
  return 1;
}
