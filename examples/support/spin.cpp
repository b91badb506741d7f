#include "support/spin.h"

#include <ctime>

namespace ladder {
namespace {

double thread_cpu_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

}  // namespace

void spin(const SpinOptions& options, const ps::Stream& stream) {
  if (stream.device().kind() == ps::DeviceKind::cuda) {
    detail::spin_cuda(options, stream);
    return;
  }
  stream.call([seconds = options.seconds] {
    // CPU time, not wall time: threads that take turns on a core must not look concurrent.
    const double end = thread_cpu_seconds() + seconds;
    while (thread_cpu_seconds() < end) {
    }
  });
}

std::size_t most_shared_bytes(const ps::Device& device) {
  return device.kind() == ps::DeviceKind::cuda ? detail::most_shared_bytes_cuda(device) : 0;
}

}  // namespace ladder
