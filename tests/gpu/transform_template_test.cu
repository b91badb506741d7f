// transform() with functions of one's own, on the GPU and with the same code on the CPU.
#include "penstock/ops/transform.cuh"

#include <cstdint>
#include <cstring>
#include <vector>

#include "gpu/gpu_test.h"
#include "penstock/base/error.h"
#include "penstock/host/buffer.h"

namespace ps::test {
namespace {

struct Clamped {
  std::int32_t most;
  __host__ __device__ std::int32_t operator()(std::uint8_t a, std::int64_t b) const {
    const std::int64_t sum = a + b;
    return sum > most ? most : static_cast<std::int32_t>(sum);
  }
};

struct Norm {
  using computes_in = float;
  __host__ __device__ float operator()(float x, float y, float z, float w) const {
    return x * x + y * y + z * z + w * w;
  }
};

struct Half {
  __host__ __device__ double operator()(double x) const { return 0.5 * x; }
};

// The example of docs/ops/transform.md.
struct Saxpy {
  float a;
  __host__ __device__ float operator()(float x, float y) const { return a * x + y; }
};

void saxpy(float a, const ps::TensorView& x, const ps::TensorView& y, const ps::Stream& stream) {
  ps::transform<float(float, float)>({.in = {x, y}, .out = y}, Saxpy{a}, stream);
}

class TransformTemplateGpu : public GpuTest {
 protected:
  // Elements of T that are made on the host, and a view of them on `device`.
  template <class T>
  class Data {
   public:
    Data(const Device& device, std::vector<T> values, DType type, const Stream& stream)
        : values_(std::move(values)), type_(type), buffer_(device, values_.size() * sizeof(T)) {
      copy(buffer_.view(), host(), stream, {.allow_pageable = true});
    }
    TensorView view() const {
      return {buffer_.view().data,
              type_,
              {static_cast<std::int64_t>(values_.size())},
              buffer_.view().place};
    }
    const std::vector<T>& fetch(const Stream& stream) {
      copy(host(), buffer_.view(), stream, {.allow_pageable = true});
      stream.synchronize();
      return values_;
    }

   private:
    MemoryView host() {
      return {reinterpret_cast<std::byte*>(values_.data()), values_.size() * sizeof(T), {}};
    }
    std::vector<T> values_;
    DType type_;
    DeviceBuffer buffer_;
  };

  std::vector<TransformKernel> kernels(const Device& device) const {
    std::vector<TransformKernel> all = {TransformKernel::best, TransformKernel::portable};
    if (device.kind() == DeviceKind::cuda && device.capabilities().compute_major == 9) {
      all.push_back(TransformKernel::sm90);
    }
    return all;
  }

  static constexpr std::size_t count = 70'003;
};

// Elements of three sizes: 1, 8 and 4 bytes.
TEST_F(TransformTemplateGpu, MixesTypes) {
  for (const Device& device : {gpu, Device::cpu()}) {
    const Stream stream(device);
    std::vector<std::uint8_t> a(count);
    std::vector<std::int64_t> b(count);
    for (std::size_t i = 0; i < count; ++i) {
      a[i] = static_cast<std::uint8_t>(i);
      b[i] = static_cast<std::int64_t>(i * 3);
    }
    const Data<std::uint8_t> x(device, a, DType::u8, stream);
    const Data<std::int64_t> y(device, b, DType::i64, stream);
    for (const TransformKernel kernel : kernels(device)) {
      Data<std::int32_t> out(device, std::vector<std::int32_t>(count, -1), DType::i32, stream);
      transform<std::int32_t(std::uint8_t, std::int64_t)>(
          {.in = {x.view(), y.view()}, .out = out.view(), .kernel = kernel}, Clamped{100'000},
          stream);
      const auto& got = out.fetch(stream);
      for (std::size_t i = 0; i < count; ++i) ASSERT_EQ(got[i], Clamped{100'000}(a[i], b[i])) << i;
    }
  }
}

TEST_F(TransformTemplateGpu, TakesFourInputsInF32) {
  for (const Device& device : {gpu, Device::cpu()}) {
    const Stream stream(device);
    std::vector<__nv_bfloat16> a(count);
    std::vector<__half> b(count);
    std::vector<float> c(count);
    for (std::size_t i = 0; i < count; ++i) {
      a[i] = __float2bfloat16(static_cast<float>(i % 100));
      b[i] = __float2half(static_cast<float>(i % 37));
      c[i] = static_cast<float>(i % 11);
    }
    const Data<__nv_bfloat16> x(device, a, DType::bf16, stream);
    const Data<__half> y(device, b, DType::f16, stream);
    const Data<float> z(device, c, DType::f32, stream);
    for (const TransformKernel kernel : kernels(device)) {
      Data<float> out(device, std::vector<float>(count, NAN), DType::f32, stream);
      transform<float(__nv_bfloat16, __half, float, float)>(
          {.in = {x.view(), y.view(), z.view(), z.view()}, .out = out.view(), .kernel = kernel},
          Norm{}, stream);
      const auto& got = out.fetch(stream);
      for (std::size_t i = 0; i < count; ++i) {
        const auto f = static_cast<float>(i % 100), g = static_cast<float>(i % 37), h = c[i];
        ASSERT_EQ(got[i], f * f + g * g + 2 * h * h) << i;
      }
    }
  }
}

TEST_F(TransformTemplateGpu, WorksInPlaceOnDoubles) {
  const Stream stream(gpu);
  for (const TransformKernel kernel : kernels(gpu)) {
    Data<double> data(gpu, std::vector<double>(count, 3.0), DType::f64, stream);
    transform<double(double)>({.in = {data.view()}, .out = data.view(), .kernel = kernel}, Half{},
                              stream);
    for (const double value : data.fetch(stream)) ASSERT_EQ(value, 1.5);
  }
}

TEST_F(TransformTemplateGpu, RunsTheDocumentedExample) {
  for (const Device& device : {gpu, Device::cpu()}) {
    const Stream stream(device);
    const Data<float> x(device, std::vector<float>(count, 3), DType::f32, stream);
    Data<float> y(device, std::vector<float>(count, 0.5F), DType::f32, stream);
    saxpy(2, x.view(), y.view(), stream);
    for (const float value : y.fetch(stream)) ASSERT_EQ(value, 6.5F);
  }
}

TEST_F(TransformTemplateGpu, RefusesWhatTheSignatureDoesNotSay) {
  const Stream stream(gpu);
  const Data<double> data(gpu, std::vector<double>(16), DType::f64, stream);
  const auto refused = [&](const TransformOptions& options) -> std::string {
    try {
      transform<double(double)>(options, Half{}, stream);
    } catch (const InvalidArgument& error) {
      return error.argument();
    }
    return "";
  };
  EXPECT_EQ(refused({.in = {data.view()}, .out = data.view()}), "");
  EXPECT_EQ(refused({.out = data.view()}), "in");
  EXPECT_EQ(refused({.in = {data.view(), data.view()}, .out = data.view()}), "in");
  const TensorView floats(data.view().data(), DType::f32, {16}, gpu.place());
  EXPECT_EQ(refused({.in = {floats}, .out = data.view()}), "in[0]");
  EXPECT_EQ(refused({.in = {data.view()}, .out = floats}), "out");
  stream.synchronize();
}

}  // namespace
}  // namespace ps::test
