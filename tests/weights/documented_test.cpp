// The C++ example of docs/weights.md, word for word: a project check compares them.
#include <gtest/gtest.h>

#include <cstddef>
#include <vector>

#include "penstock/host/buffer.h"
#include "penstock/weights/load.h"
#include "penstock/weights/weights.h"
#include "penstock/weights/writer.h"
#include "support/temporary_directory.h"

namespace ps::test {
namespace {

TEST(DocumentedWeights, Reading) {
  const TemporaryDirectory here;
  const auto path = here.path() / "model.safetensors";
  std::vector<float> values{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};
  WeightsWriter writer(path, {{"up", WeightType::f32, {6, 2}}});
  writer.write("up", {reinterpret_cast<std::byte*>(values.data()), 48, {Memory::host}});
  writer.finish();

  const ps::Weights weights(path);
  const std::size_t up = weights.index_of("up");

  // Rows 2 and 3, straight into host memory.
  const ps::PinnedBuffer rows(ps::Device::best(), 2 * 2 * sizeof(float));
  const ps::WeightRead part{.tensor = up, .to = rows.view(), .first_row = 2, .rows = 2};
  weights.read({&part, 1});

  // The whole tensor, into device memory.
  const ps::DeviceBuffer memory(ps::Device::best(), weights.tensors()[up].bytes);
  const ps::LoadTarget target{.tensor = up, .to = memory.view()};
  ps::load(weights, {&target, 1});
  const ps::TensorView tensor = ps::view_of(weights.tensors()[up], memory.view());

  EXPECT_EQ(rows.view().as<float>()[0], 4);
  EXPECT_EQ(rows.view().as<float>()[3], 7);
  EXPECT_EQ(tensor.rank(), 2U);
  std::vector<float> back(12);
  const Stream stream(Device::best());
  copy({reinterpret_cast<std::byte*>(back.data()), 48, {Memory::host}}, memory.view(), stream,
       {.allow_pageable = true});
  stream.synchronize();
  EXPECT_EQ(back, values);
}

}  // namespace
}  // namespace ps::test
