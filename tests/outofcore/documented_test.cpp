// The C++ examples of docs/ops/expert-streaming.md.
#include <gtest/gtest.h>

#include <random>

#include "penstock/outofcore/expert_file.h"
#include "penstock/outofcore/experts.h"
#include "penstock/weights/writer.h"
#include "support/expert_arrays.h"
#include "support/temporary_directory.h"

namespace ps::test {
namespace {

TEST(DocumentedExperts, ArePackedAndStreamedFromADisk) {
  const TemporaryDirectory directory;
  const auto checkpoint = directory.path(), packed = directory.path() / "experts";
  const ps::ExpertShape shape{.layers = 2, .experts = 3, .hidden = 16, .width = 8};
  const ExpertStore wanted(Device::cpu(), shape);
  std::mt19937 random(1);
  randomise(wanted, random);
  {
    std::vector<WeightSpec> specs;
    std::vector<MemoryView> bytes;
    for (std::int64_t l = 0; l < 2; ++l) {
      for (std::int64_t e = 0; e < 3; ++e) {
        const std::string name =
            "model.layers." + std::to_string(l) + ".mlp.experts." + std::to_string(e);
        const auto add = [&](const char* part, std::vector<std::int64_t> extents, void* data) {
          specs.push_back({name + part, WeightType::bf16, std::move(extents)});
          bytes.push_back({static_cast<std::byte*>(data), 2 * 8 * 16, {}});
        };
        auto* gate = static_cast<std::byte*>(wanted.gate_up(l, e).data());
        add(".gate_proj.weight", {8, 16}, gate);
        add(".up_proj.weight", {8, 16}, gate + 2 * 8 * 16);
        add(".down_proj.weight", {16, 8}, wanted.down(l, e).data());
      }
    }
    WeightsWriter writer(checkpoint / "model.safetensors", specs);
    for (std::size_t i = 0; i < specs.size(); ++i) writer.write(specs[i].name, bytes[i]);
    writer.finish();
  }
  // clang-format off
const ps::Weights weights(checkpoint);
const ps::ExpertFileInfo info = ps::pack_experts(
    packed, shape, weights,
    {.gate = "model.layers.{layer}.mlp.experts.{expert}.gate_proj.weight",
     .up = "model.layers.{layer}.mlp.experts.{expert}.up_proj.weight",
     .down = "model.layers.{layer}.mlp.experts.{expert}.down_proj.weight"});
  // clang-format on
  EXPECT_EQ(info.path, packed.string());

  const std::int64_t layer = 1;
  Arrays arrays(wanted, layer, 10, 2, 0, random);
  const Device gpu = Device::cpu();
  const Stream stream(gpu);
  const auto result = arrays.wanted(stream);
  const TensorView x = arrays.call().x, ids = arrays.call().ids,
                   route_weights = arrays.call().weights, out = arrays.call().out;
  const Pool pool(gpu);
  const std::size_t host_bytes = 2 * wanted.block_bytes(), device_bytes = 0;
  // clang-format off
const ps::DiskExpertStore store(gpu, packed, {.host_bytes = host_bytes});
ps::StreamedExperts experts({.disk = &store, .device = gpu, .device_bytes = device_bytes});
experts.forward(layer, {.x = x, .ids = ids, .weights = route_weights, .out = out, .pool = &pool},
                stream);
  // clang-format on
  stream.synchronize();
  EXPECT_EQ(arrays.take_out(), result);
}

}  // namespace
}  // namespace ps::test
