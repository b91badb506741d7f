// The C++ examples of docs/ops, word for word: a project check compares them with the pages.
#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <vector>

#include "penstock/ops/resample.h"
#include "penstock/ops/transform.h"
#include "penstock/outofcore/transform.h"
#include "support/temporary_directory.h"

namespace ps::test {
namespace {

TensorView view_of(std::vector<float>& values, std::initializer_list<std::int64_t> shape) {
  return {values.data(), DType::f32, shape, Device::cpu().place()};
}

TEST(Documented, Swiglu) {
  std::vector<float> gates{-100, 0, 100}, ups{2, 2, 2}, result(3);
  const TensorView gate = view_of(gates, {3}), up = view_of(ups, {3}), out = view_of(result, {3});
  const Stream stream(Device::cpu());

  ps::swiglu({.gate = gate, .up = up, .out = out}, stream);

  stream.synchronize();
  EXPECT_NEAR(result[0], 0, 1e-30);
  EXPECT_EQ(result[1], 0);
  EXPECT_EQ(result[2], 200);
}

TEST(Documented, Resample) {
  std::vector<float> values{0, 10, 30}, times{0, 1, 3}, targets{0.5, 2}, result(2);
  const TensorView joints = view_of(values, {1, 3, 1}), stamps = view_of(times, {1, 3});
  const TensorView clock = view_of(targets, {2}), out = view_of(result, {1, 2, 1});
  const Stream stream(Device::cpu());

  ps::resample({.sensors = {{.values = joints, .times = stamps}}, .at = clock, .out = out}, stream);

  stream.synchronize();
  EXPECT_EQ(result, (std::vector<float>{5, 20}));
}

class DocumentedFiles : public testing::Test {
 protected:
  DocumentedFiles() { std::filesystem::current_path(folder_.path()); }
  ~DocumentedFiles() override { std::filesystem::current_path(before_); }

 private:
  std::filesystem::path before_ = std::filesystem::current_path();
  TemporaryDirectory folder_;
};

TEST_F(DocumentedFiles, StreamedTransform) {
  const std::vector<float> values(10'000, 3);
  const std::uint64_t count = values.size();
  std::ofstream("in.f32", std::ios::binary)
      .write(reinterpret_cast<const char*>(values.data()), 4 * static_cast<std::streamsize>(count));

  ps::StreamedTransform halve({.in = {{.dtype = ps::DType::f32, .file = "in.f32"}},
                               .out = {.dtype = ps::DType::bf16, .file = "out.bf16"},
                               .elements = count,
                               .function = [](const ps::Piece& piece, const ps::Stream& stream) {
                                 ps::cast({.in = piece.in[0], .out = piece.out}, stream);
                               }});
  halve.run({});

  std::vector<std::uint16_t> result(count);
  std::ifstream("out.bf16", std::ios::binary)
      .read(reinterpret_cast<char*>(result.data()), 2 * static_cast<std::streamsize>(count));
  EXPECT_EQ(result, std::vector<std::uint16_t>(count, 0x4040));  // 3 in bf16
}

}  // namespace
}  // namespace ps::test
