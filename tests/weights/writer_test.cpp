// Writing checkpoints: what is in the files, and that failures leave the old ones.
#include "penstock/weights/writer.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <set>

#include "penstock/base/error.h"
#include "penstock/weights/weights.h"
#include "support/failure_of.h"
#include "support/full_disk.h"
#include "support/temporary_directory.h"
#include "weights/support.h"

namespace ps::test {
namespace {

class Writers : public testing::Test {
 protected:
  std::filesystem::path path() const { return here.path() / "model.safetensors"; }
  std::set<std::string> files() const {
    std::set<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(here.path())) {
      names.insert(entry.path().filename().string());
    }
    return names;
  }
  static void expect_refused(const std::function<void()>& code, const std::string& message) {
    const auto failure = failure_of(code);
    EXPECT_TRUE(is<InvalidArgument>(failure)) << text(failure);
    EXPECT_NE(text(failure).find(message), std::string::npos) << text(failure);
  }

  TemporaryDirectory here;
};

TEST_F(Writers, AFileIsWrittenByteForByte) {
  WeightsWriter writer(path(), {{"b\"", WeightType::i16, {1, 2}}, {"a", WeightType::u8, {}}},
                       {.metadata = {{"format", "pt"}}});
  std::vector<std::byte> first{std::byte{1}, std::byte{2}, std::byte{3}, std::byte{4}};
  std::vector<std::byte> second{std::byte{5}};
  EXPECT_FALSE(std::filesystem::exists(path()));
  writer.write("b\"", in(first));
  writer.write("a", in(second));
  EXPECT_FALSE(std::filesystem::exists(path())) << "complete or not there";
  writer.finish();
  std::string header = R"({"__metadata__":{"format":"pt"},)"
                       R"("b\"":{"dtype":"I16","shape":[1,2],"data_offsets":[0,4]},)"
                       R"("a":{"dtype":"U8","shape":[],"data_offsets":[4,5]}})";
  header.resize((header.size() + 7) / 8 * 8, ' ');
  EXPECT_EQ(read_text(path()), safetensors(header, 0) + "\x01\x02\x03\x04\x05");
  EXPECT_EQ(files(), std::set<std::string>{"model.safetensors"});
  EXPECT_EQ(std::filesystem::status(path()).permissions(), std::filesystem::perms{0644});
}

TEST_F(Writers, ATensorMayBeWrittenInParts) {
  const auto bytes = random_bytes(10'000, 1);
  WeightsWriter writer(path(), {{"none", WeightType::u8, {0}},
                                {"a", WeightType::u8, {10'000}},
                                {"also", WeightType::u8, {0, 3}}});
  for (std::size_t at = 0; at < bytes.size();) {
    std::vector<std::byte> part(
        bytes.begin() + static_cast<std::ptrdiff_t>(at),
        bytes.begin() + static_cast<std::ptrdiff_t>(std::min(at + 3333, bytes.size())));
    writer.write("a", in(part));
    at += part.size();
  }
  writer.finish();
  const Weights weights(path());
  EXPECT_EQ(read(weights, "a"), bytes);
  EXPECT_EQ(weights.tensors().size(), 3U);
}

TEST_F(Writers, TheFirstTensorIsAlignedAsAsked) {
  const auto bytes = write_random(path(), {{"a", WeightType::f32, {2048}}}, {.alignment = 4096});
  const Weights weights(path());
  EXPECT_EQ(weights.tensors()[0].offset, 4096U);
  EXPECT_EQ(read(weights, "a"), bytes[0]);
}

TEST_F(Writers, ShardsHaveAnIndex) {
  std::vector<WeightSpec> specs;
  for (const int size : {100, 100, 101, 500, 1, 199, 0, 200}) {
    specs.push_back({"t" + std::to_string(specs.size()), WeightType::u8, {size}});
  }
  write_random(path(), specs, {.metadata = {{"k", "v"}}, .shard_bytes = 200});
  EXPECT_EQ(files(), (std::set<std::string>{
                         "model-00001-of-00005.safetensors", "model-00002-of-00005.safetensors",
                         "model-00003-of-00005.safetensors", "model-00004-of-00005.safetensors",
                         "model-00005-of-00005.safetensors", "model.safetensors.index.json"}));
  const std::string index = read_text(here.path() / "model.safetensors.index.json");
  EXPECT_NE(
      index.find(R"({"metadata":{"total_size":1201},"weight_map":{"t0":"model-00001-of-00005)"),
      std::string::npos)
      << index;
  const Weights weights(here.path());
  for (std::size_t file = 0; file < 5; ++file) {
    EXPECT_EQ(weights.metadata(file).at("k"), "v");
  }
  const std::vector<std::size_t> expected{0, 0, 1, 2, 3, 3, 3, 4};
  for (std::size_t i = 0; i < expected.size(); ++i) {
    EXPECT_EQ(weights.tensors()[i].file, expected[i]) << i;
  }
}

TEST_F(Writers, OneShardNeedsNoIndex) {
  write_random(path(), {{"a", WeightType::u8, {100}}}, {.shard_bytes = 100});
  EXPECT_EQ(files(), std::set<std::string>{"model.safetensors"});
}

TEST_F(Writers, NoTensorsMakeAFileToo) {
  write_random(path(), {});
  EXPECT_TRUE(Weights(path()).tensors().empty());
}

TEST_F(Writers, AnAbandonedWriterLeavesTheOldFiles) {
  const auto old = write_random(path(), {{"a", WeightType::u8, {100}}});
  {
    auto bytes = random_bytes(150, 7);
    WeightsWriter writer(path(), {{"a", WeightType::u8, {150}}, {"b", WeightType::u8, {150}}},
                         {.shard_bytes = 150});
    writer.write("a", in(bytes));
    WeightsWriter moved = std::move(writer);
    expect_refused([&] { moved.finish(); }, "tensors: expected all bytes of \"b\", given 0 of 150");
    auto half = random_bytes(75, 8);
    moved.write("b", in(half));
    expect_refused([&] { moved.finish(); }, "given 75 of 150");
  }
  EXPECT_EQ(files(), std::set<std::string>{"model.safetensors"});
  EXPECT_EQ(read(Weights(path()), "a"), old[0]);
}

TEST_F(Writers, AFullDiskLeavesTheOldFiles) {
  const auto old = write_random(path(), {{"a", WeightType::u8, {100}}});
  const auto failure = failure_of([&] {
    const FileSizeLimit limit(64 * 1024);
    write_random(path(), {{"a", WeightType::u8, {200'000}}});
  });
  EXPECT_TRUE(is<SystemError>(failure)) << text(failure);
  EXPECT_EQ(files(), std::set<std::string>{"model.safetensors"});
  EXPECT_EQ(read(Weights(path()), "a"), old[0]);
}

TEST_F(Writers, ErrorsNameTheArgument) {
  const auto make = [&](std::vector<WeightSpec> tensors, WeightsWriterOptions options = {}) {
    return [this, tensors, options] { WeightsWriter(path(), tensors, options); };
  };
  expect_refused(make({{"a", WeightType::u8, {1}}, {"a", WeightType::u8, {1}}}),
                 "tensors[1].name: expected every name once");
  expect_refused(make({{"__metadata__", WeightType::u8, {1}}}), "tensors[0].name");
  expect_refused(make({{"\xFF", WeightType::u8, {1}}}), "name: expected text in UTF-8");
  expect_refused(make({}, {.metadata = {{"a", "\xFF"}}}), "metadata: expected text in UTF-8");
  expect_refused(make({{"a", WeightType::u8, {-1}}}), "tensors[0]: expected extents of 0 or more");
  expect_refused(make({{"a", WeightType::f4, {3}}}), "tensors[0]: expected elements that fill");
  expect_refused(make({{"a", WeightType::u64, {std::int64_t{1} << 62}}}), "tensors[0]");
  expect_refused(make({{"a", static_cast<WeightType>(99), {1}}}), "tensors[0].type");
  for (const std::size_t alignment : {0UL, 4UL, 12UL, 2UL << 20U}) {
    expect_refused(make({}, {.alignment = alignment}), "alignment");
  }
  EXPECT_TRUE(files().empty());
  EXPECT_TRUE(is<SystemError>(
      failure_of([&] { WeightsWriter(here.path() / "no" / "folder.safetensors", {}); })));

  WeightsWriter writer(path(), {{"a", WeightType::u8, {4}}, {"b", WeightType::u8, {4}}});
  std::vector<std::byte> bytes(5);
  expect_refused([&] { writer.write("b", in(bytes)); }, "name: expected \"a\", the next tensor");
  expect_refused([&] { writer.write("a", in(bytes)); }, "from: expected at most 4 bytes of \"a\"");
  expect_refused([&] { writer.write("a", {nullptr, 4, {Memory::host}}); }, "from");
  expect_refused([&] { writer.write("a", {bytes.data(), 4, {Memory::device, 0}}); }, "from");
  writer.write("a", in(bytes).sub(0, 4));
  writer.write("b", in(bytes).sub(0, 4));
  expect_refused([&] { writer.write("c", in(bytes)); }, "no more tensors");
  writer.finish();
  expect_refused([&] { writer.finish(); }, "writer: expected one that is not finished");
  expect_refused([&] { writer.write("a", in(bytes)); }, "writer");
}

}  // namespace
}  // namespace ps::test
