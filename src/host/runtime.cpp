#include "host/runtime.h"

#include <fmt/format.h>

#include <mutex>
#include <utility>

#include "host/cpu/backend.h"
#include "host/cuda/backend.h"
#include "host/fork.h"

namespace ps::detail {
namespace {

// Never destroyed: a thread of the library, or a caller's static object, may be the last user.
struct Holder {
  std::mutex mutex;
  std::shared_ptr<const Runtime> current;
  std::shared_ptr<Backend> cpu = std::make_shared<cpu::Backend>();
};

Holder& holder() {
  static auto* instance = new Holder;
  return *instance;
}

std::string version_text(int version) {
  return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

// The GPUs the driver offers; `why` says why there are none.
std::vector<std::shared_ptr<Backend>> find_gpus(const std::shared_ptr<cuda::Driver>& driver,
                                                std::string& why) {
  int count = 0;
  const cuda::Status status = driver->device_count(&count);
  if (status != cuda::success) {
    int have = 0, need = 0;
    const bool known = driver->driver_version(&have) == cuda::success &&
                       driver->runtime_version(&need) == cuda::success;
    driver->last_error();
    if (known && have == 0) {
      why = "no NVIDIA driver is loaded";
    } else if (known && have / 1000 < need / 1000) {
      why = fmt::format("the driver supports CUDA {} and this build needs {}; update the driver",
                        version_text(have), version_text(need));
    } else {
      why = fmt::format("{}, {}", driver->error_name(status), driver->error_meaning(status));
    }
    return {};
  }
  if (count == 0) why = "the driver reports no GPU";
  std::vector<std::shared_ptr<Backend>> gpus;
  for (int i = 0; i < count; ++i) gpus.push_back(std::make_shared<cuda::Backend>(driver, i));
  return gpus;
}

std::shared_ptr<const Runtime> make_runtime(std::shared_ptr<cuda::Driver> driver,
                                            std::shared_ptr<Backend> cpu) {
  auto made = std::make_shared<Runtime>();
  made->cpu = std::move(cpu);
  made->driver = driver ? std::move(driver) : cuda::real_driver(made->why_no_gpu);
  if (made->driver) made->gpus = find_gpus(made->driver, made->why_no_gpu);
  return made;
}

}  // namespace

std::shared_ptr<const Runtime> runtime() {
  refuse_after_fork();
  Holder& h = holder();
  const std::lock_guard lock(h.mutex);
  if (!h.current) h.current = make_runtime(nullptr, h.cpu);
  return h.current;
}

void replace_driver(std::shared_ptr<cuda::Driver> driver) {
  Holder& h = holder();
  const std::lock_guard lock(h.mutex);
  h.current = make_runtime(std::move(driver), h.cpu);
}

}  // namespace ps::detail
