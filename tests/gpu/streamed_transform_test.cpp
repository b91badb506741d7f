// Data that streams through a real GPU: from every kind of host memory and from files, and back.
#include <cstring>
#include <fstream>
#include <string>
#include <vector>

#include "gpu/gpu_test.h"
#include "penstock/host/buffer.h"
#include "penstock/ops/transform.h"
#include "penstock/outofcore/transform.h"
#include "support/temporary_directory.h"

namespace ps::test {
namespace {

class StreamedTransformGpu : public GpuTest {
 protected:
  static constexpr std::size_t count = 3'000'017;

  // out (f32) = 3 x, with x as operand `in` and the result as `out`.
  void run(StreamedOperand in, StreamedOperand out, std::size_t device_bytes) const {
    StreamedTransform streamed({.in = {std::move(in)},
                                .out = std::move(out),
                                .elements = count,
                                .function =
                                    [](const Piece& piece, const Stream& stream) {
                                      scale({.in = piece.in[0], .out = piece.out, .factor = 3},
                                            stream);
                                    },
                                .device = gpu,
                                .device_bytes = device_bytes});
    EXPECT_LE(streamed.device_bytes(), device_bytes);
    EXPECT_GT(streamed.pieces(), 8U);
    for (int round = 0; round < 2; ++round) EXPECT_FALSE(streamed.run({}).cancelled);
  }
};

TEST_F(StreamedTransformGpu, FromEverywhereToEverywhere) {
  const TemporaryDirectory folder;
  constexpr std::size_t bytes = count * sizeof(float);
  const PinnedBuffer pinned_in(gpu, bytes), pinned_out(gpu, bytes);
  std::vector<float> pageable_in(count), pageable_out(count);
  for (std::size_t i = 0; i < count; ++i) pageable_in[i] = static_cast<float>(i % 1000);
  std::memcpy(pinned_in.view().data, pageable_in.data(), bytes);
  std::ofstream(folder.path() / "in", std::ios::binary)
      .write(reinterpret_cast<const char*>(pageable_in.data()), bytes);
  const auto pageable = [](std::vector<float>& values) {
    return MemoryView{reinterpret_cast<std::byte*>(values.data()), bytes, {}};
  };
  const StreamedOperand inputs[] = {{.memory = pinned_in.view()},
                                    {.memory = pageable(pageable_in)},
                                    {.file = folder.path() / "in"}};
  const StreamedOperand outputs[] = {{.memory = pinned_out.view()},
                                     {.memory = pageable(pageable_out)},
                                     {.file = folder.path() / "out"}};
  for (const StreamedOperand& in : inputs) {
    for (const StreamedOperand& out : outputs) {
      std::memset(pinned_out.view().data, poison, bytes);
      std::memset(pageable_out.data(), poison, bytes);
      run(in, out, 2 << 20);
      std::string written;
      if (!out.file.empty()) written = read_text(out.file);
      const void* got =
          out.file.empty() ? out.memory.data : static_cast<const void*>(written.data());
      ASSERT_TRUE(out.file.empty() || written.size() == bytes);
      for (std::size_t i = 0; i < count; ++i) {
        float value = 0;
        std::memcpy(&value, static_cast<const char*>(got) + i * sizeof(float), sizeof(value));
        ASSERT_EQ(value, 3 * pageable_in[i]) << i;
      }
    }
  }
}

TEST_F(StreamedTransformGpu, InPlace) {
  const PinnedBuffer data(gpu, count * sizeof(float));
  auto* values = data.view().as<float>();
  for (std::size_t i = 0; i < count; ++i) values[i] = static_cast<float>(i % 1000);
  run({.memory = data.view()}, {.memory = data.view()}, 64 << 20);
  for (std::size_t i = 0; i < count; ++i) {
    ASSERT_EQ(values[i], 9 * static_cast<float>(i % 1000)) << i;  // it ran twice
  }
}

}  // namespace
}  // namespace ps::test
