#include "penstock/ops/transform.h"

#include <cmath>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "gpu/gpu_test.h"
#include "gpu/recording.h"
#include "penstock/base/error.h"
#include "penstock/host/buffer.h"
#include "penstock/host/cuda.h"
#include "support/elements.h"
#include "support/transform_cases.h"

namespace ps::test {
namespace {

// Elements on the GPU, `offset` behind a 256-byte boundary, between margins of poison.
class There {
 public:
  There(const Device& gpu, Elements& host, std::size_t offset, const Stream& stream)
      : type_(host.type()),
        count_(host.size()),
        begin_(256 + offset * size_of(type_)),
        buffer_(gpu, begin_ + count_ * size_of(type_) + 256) {
    fill(buffer_.view(), poison, stream);
    if (count_ > 0) copy(inside(), outside(host), stream, {.allow_pageable = true});
  }

  TensorView view() const {
    return {inside().data, type_, {static_cast<std::int64_t>(count_)}, buffer_.view().place};
  }

  // Waits; false when a margin was written.
  bool fetch(Elements& host, const Stream& stream) const {
    std::vector<std::uint8_t> all(buffer_.bytes());
    const MemoryView to{reinterpret_cast<std::byte*>(all.data()), all.size(), {}};
    copy(to, buffer_.view(), stream, {.allow_pageable = true});
    stream.synchronize();
    std::memcpy(host.data(), all.data() + begin_, inside().bytes);
    all.erase(all.begin() + static_cast<std::ptrdiff_t>(begin_),
              all.begin() + static_cast<std::ptrdiff_t>(begin_ + inside().bytes));
    return all_are(all, poison);
  }

 private:
  MemoryView inside() const { return buffer_.view().sub(begin_, count_ * size_of(type_)); }
  static MemoryView outside(Elements& host) {
    return {static_cast<std::byte*>(host.data()), host.size() * size_of(host.type()), {}};
  }

  DType type_;
  std::size_t count_, begin_;
  DeviceBuffer buffer_;
};

class TransformGpu : public GpuTest {
 protected:
  std::vector<TransformKernel> kernels() const {
    std::vector<TransformKernel> all = {TransformKernel::best, TransformKernel::portable};
    if (gpu.capabilities().compute_major == 9) all.push_back(TransformKernel::sm90);
    return all;
  }

  // Inputs and output `offsets` elements off their boundaries, the last one the output's.
  void check(const TransformCase& each, DType type, std::size_t count,
             const std::vector<std::size_t>& offsets, TransformKernel kernel) {
    std::string trace = each.name + ", " + std::string(name(type)) + ", " + std::to_string(count) +
                        " elements, kernel " + std::to_string(static_cast<int>(kernel)) + ", at";
    for (const std::size_t offset : offsets) trace += " " + std::to_string(offset);
    SCOPED_TRACE(trace);
    const Stream stream(gpu);
    std::vector<Elements> in(each.inputs, Elements(type, count));
    std::vector<There> there;
    std::vector<TensorView> views;
    there.reserve(in.size());
    for (std::size_t i = 0; i < in.size(); ++i) {
      fill_random_quickly(in[i], random_);
      views.push_back(there.emplace_back(gpu, in[i], offsets[i], stream).view());
    }
    Elements out(type, count);
    const There result(gpu, out, offsets.back(), stream);
    each.run(views, result.view(), kernel, stream);
    EXPECT_TRUE(result.fetch(out, stream)) << "written outside";
    const std::size_t dense = 20'000;
    for (std::size_t i = 0; i < count; i += i < dense || i + dense > count ? 1 : 997) {
      ASSERT_EQ(wrong(each, in, out, i, true), "");
    }
  }

  std::mt19937 random_{20261115};
};

TEST_F(TransformGpu, AnySize) {
  for (const TransformCase& each : transform_cases()) {
    const std::vector<std::size_t> aligned(each.inputs + 1, 0);
    for (const DType type : float_types) {
      for (const TransformKernel kernel : kernels()) {
        for (const std::size_t count : {1, 3, 8, 17, 1023, 8191, 8192, 8193, 30'001}) {
          check(each, type, count, aligned, kernel);
        }
      }
    }
  }
}

// Every block takes several tiles, and a ring goes round more than once.
TEST_F(TransformGpu, ManyTilesABlock) {
  for (const TransformCase& each : transform_cases()) {
    const std::vector<std::size_t> aligned(each.inputs + 1, 0);
    for (const DType type : {DType::f32, DType::bf16}) {
      for (const TransformKernel kernel : kernels()) check(each, type, 9'000'003, aligned, kernel);
    }
  }
}

TEST_F(TransformGpu, AnyAlignment) {
  for (const TransformCase& each : transform_cases()) {
    for (const DType type : float_types) {
      for (const TransformKernel kernel : kernels()) {
        // All equally far from a boundary, each by itself, and anyhow.
        for (std::size_t offset = 1; offset < 9; ++offset) {
          check(each, type, 4099, std::vector<std::size_t>(each.inputs + 1, offset), kernel);
        }
        for (std::size_t which = 0; which <= each.inputs; ++which) {
          std::vector<std::size_t> offsets(each.inputs + 1, 0);
          offsets[which] = 1 + random_() % 8;
          check(each, type, 4099, offsets, kernel);
        }
        std::vector<std::size_t> offsets;
        for (unsigned i = 0; i <= each.inputs; ++i) offsets.push_back(random_() % 20);
        check(each, type, 1 + random_() % 5000, offsets, kernel);
      }
    }
  }
}

TEST_F(TransformGpu, InPlaceOfAnyInput) {
  const Stream stream(gpu);
  for (const TransformCase& each : transform_cases()) {
    for (const TransformKernel kernel : kernels()) {
      for (unsigned which = 0; which < each.inputs; ++which) {
        std::vector<Elements> in(each.inputs, Elements(DType::bf16, 100'003));
        std::vector<There> there;
        std::vector<TensorView> views;
        there.reserve(in.size());
        for (Elements& input : in) {
          fill_random(input, random_);
          views.push_back(there.emplace_back(gpu, input, 5, stream).view());
        }
        each.run(views, views[which], kernel, stream);
        Elements out(DType::bf16, 100'003);
        EXPECT_TRUE(there[which].fetch(out, stream));
        for (std::size_t i = 0; i < out.size(); i += 7) {
          ASSERT_EQ(wrong(each, in, out, i, true), "");
        }
      }
    }
  }
}

TEST_F(TransformGpu, HasItsLimitsAtTheEdges) {
  const double edges[] = {NAN,  INFINITY, -INFINITY, 0.0,   -0.0, 1e-42, -1e-42,
                          3e38, -3e38,    65504,     -1e-8, 88.7, -88.7, -103.5};
  const Stream stream(gpu);
  for (const TransformCase& each : transform_cases()) {
    for (const DType type : float_types) {
      for (const TransformKernel kernel : kernels()) {
        std::vector<Elements> in(each.inputs, Elements(type, 14 * 64));
        for (std::size_t i = 0; i < in[0].size(); ++i) {
          in[0].set(i, edges[i % 14]);
          for (unsigned other = 1; other < each.inputs; ++other) in[other].set(i, 1);
        }
        std::vector<There> there;
        std::vector<TensorView> views;
        there.reserve(in.size());
        for (Elements& input : in) {
          views.push_back(there.emplace_back(gpu, input, 0, stream).view());
        }
        Elements out(type, in[0].size());
        const There result(gpu, out, 0, stream);
        each.run(views, result.view(), kernel, stream);
        EXPECT_TRUE(result.fetch(out, stream));
        for (std::size_t i = 0; i < out.size(); ++i) {
          if (!each.same_bits && in[0][i] == -INFINITY) {
            EXPECT_EQ(out[i], 0) << each.name;
          } else {
            EXPECT_EQ(wrong(each, in, out, i, true), "") << name(type);
          }
        }
      }
    }
  }
}

TEST_F(TransformGpu, CastsBetweenAllTypes) {
  const Stream stream(gpu);
  for (const DType from : float_types) {
    for (const DType to : float_types) {
      for (const TransformKernel kernel : kernels()) {
        for (const std::size_t count : {1, 7, 8, 4097, 200'001}) {
          for (const std::size_t offset : {0, 1, 4}) {
            Elements in(from, count), out(to, count);
            for (std::size_t i = 0; i < count; ++i) {
              in.set_bits(i, static_cast<std::uint32_t>(random_()));
            }
            const There source(gpu, in, offset, stream), target(gpu, out, offset * 3 % 7, stream);
            cast({.in = source.view(), .out = target.view(), .kernel = kernel}, stream);
            EXPECT_TRUE(target.fetch(out, stream));
            for (std::size_t i = 0; i < count; ++i) {
              if (from == to) {
                ASSERT_EQ(in.bits(i), out.bits(i)) << "a copy, bit by bit";
                continue;
              }
              const double wanted = rounded(in[i], to);
              ASSERT_TRUE(std::isnan(wanted) ? std::isnan(out[i]) : out[i] == wanted)
                  << name(from) << " to " << name(to) << ": " << in[i] << " became " << out[i];
            }
          }
        }
      }
    }
  }
}

TEST_F(TransformGpu, MayBeCaptured) {
  const Stream stream(gpu);
  for (const TransformKernel kernel : kernels()) {
    Elements in(DType::f32, 100'001), out(DType::f32, 100'001);
    fill_random(in, random_);
    const There source(gpu, in, 0, stream), target(gpu, out, 0, stream);
    gelu({.in = target.view(), .out = target.view(), .kernel = kernel}, stream);  // loads it
    stream.synchronize();
    Recording recording(cuda_stream(stream));
    gelu({.in = source.view(), .out = target.view(), .kernel = kernel}, stream);
    recording.replay(cuda_stream(stream));
    EXPECT_TRUE(target.fetch(out, stream));
    for (const TransformCase& each : transform_cases()) {
      if (each.name != "gelu_exact") continue;
      const std::vector<Elements> all = {in};
      for (std::size_t i = 0; i < out.size(); i += 11) {
        ASSERT_EQ(wrong(each, all, out, i, true), "");
      }
    }
  }
}

TEST_F(TransformGpu, RefusesHostMemory) {
  const Stream stream(gpu);
  float value = 0;
  const TensorView host(&value, DType::f32, {1});
  try {
    scale({.in = host, .out = host}, stream);
    FAIL() << "accepted memory that the GPU cannot reach";
  } catch (const InvalidArgument& error) {
    EXPECT_EQ(error.argument(), "in");
  }
}

}  // namespace
}  // namespace ps::test
