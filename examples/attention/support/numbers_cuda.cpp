#include "attention/support/numbers.h"

#include "gemm/support/fill.h"
#include "penstock/host/cuda.h"
#include "support/check_cuda.h"

namespace ladder::attention {
namespace {

// Calls call(pointer to the type's elements).
template <class Call>
auto with_type(ps::DType type, void* data, const Call& call) {
  return type == ps::DType::f16 ? call(static_cast<__half*>(data))
                                : call(static_cast<__nv_bfloat16*>(data));
}

}  // namespace

ps::DeviceBuffer random_numbers(const ps::Stream& stream, std::size_t count, ps::DType type,
                                std::uint32_t seed) {
  ps::DeviceBuffer buffer(stream.device(), count * element_bytes);
  with_type(type, buffer.view().data,
            [&](auto* to) { gemm::fill_random(to, count, seed, ps::cuda_stream(stream)); });
  return buffer;
}

std::vector<float> downloaded(const ps::Stream& stream, const void* from, ps::DType type,
                              std::size_t rows, std::size_t width, std::size_t stride) {
  std::vector<std::uint16_t> bits(rows * width);
  stream.synchronize();
  ladder::check(cudaMemcpy2D(bits.data(), width * element_bytes, from, stride * element_bytes,
                             width * element_bytes, rows, cudaMemcpyDeviceToHost),
                "cudaMemcpy2D");
  std::vector<float> values;
  values.reserve(bits.size());
  with_type(type, bits.data(), [&](const auto* each) {
    for (std::size_t i = 0; i < bits.size(); ++i) values.push_back(static_cast<float>(each[i]));
  });
  return values;
}

unsigned long long count_nan(const ps::Stream& stream, const void* from, ps::DType type,
                             std::size_t count) {
  const ps::DeviceBuffer found(stream.device(), sizeof(unsigned long long));
  ps::fill(found.view(), 0, stream);
  with_type(type, const_cast<void*>(from), [&](auto* in) {
    gemm::count_nan(in, count, found.view().as<unsigned long long>(), ps::cuda_stream(stream));
  });
  stream.synchronize();
  unsigned long long answer = 0;
  ladder::check(cudaMemcpy(&answer, found.view().data, sizeof(answer), cudaMemcpyDeviceToHost),
                "cudaMemcpy");
  return answer;
}

}  // namespace ladder::attention
