#include "ops/arguments.h"
#include "ops/moe/routing.h"

namespace ps::detail {

void moe_publish_rows_gpu(const MoeWork&, const MoeRouting&, const Stream& stream) {
  throw_no_cuda(stream.device(), "moe");
}
void moe_take_rows_gpu(const MoeWork&, const MoeHostRows&, const Stream& stream) {
  throw_no_cuda(stream.device(), "moe");
}
void moe_publish_ids_gpu(const TensorView&, std::int64_t, const MoeRouting&, const Stream& stream) {
  throw_no_cuda(stream.device(), "moe");
}
void moe_load_publish_ids_gpu(const Device& device) { throw_no_cuda(device, "moe"); }
void moe_take_slots_gpu(const std::int32_t*, const TensorView&, const Stream& stream) {
  throw_no_cuda(stream.device(), "moe");
}

void moe_load_kernels_gpu(const MoeOptions&, const Stream& stream) {
  throw_no_cuda(stream.device(), "moe");
}

}  // namespace ps::detail
