// Checkpoints of several files with an index.
#include <gtest/gtest.h>

#include <filesystem>
#include <ostream>
#include <string>
#include <vector>

#include "penstock/base/error.h"
#include "penstock/weights/weights.h"
#include "support/failure_of.h"
#include "support/temporary_directory.h"
#include "support/watchdog.h"
#include "weights/support.h"

namespace ps::test {
namespace {

class Sharded : public testing::Test {
 protected:
  void SetUp() override {
    bytes = write_random(here.path() / "model.safetensors", specs, {.shard_bytes = 4000});
  }
  std::filesystem::path shard(int number) const {
    return here.path() / ("model-0000" + std::to_string(number) + "-of-00003.safetensors");
  }
  std::filesystem::path index() const { return here.path() / "model.safetensors.index.json"; }
  std::exception_ptr failure() const {
    return failure_of([&] { Weights weights(index()); });
  }

  Watchdog watchdog{"Sharded"};
  TemporaryDirectory here;
  const std::vector<WeightSpec> specs{{"a", WeightType::u8, {3000}},
                                      {"b", WeightType::u8, {1000}},
                                      {"c", WeightType::u8, {9000}},
                                      {"d", WeightType::u8, {0}},
                                      {"e", WeightType::u8, {10}}};
  std::vector<std::vector<std::byte>> bytes;
};

TEST_F(Sharded, AreReadThroughTheIndexOrTheFolder) {
  for (const auto& path : {index(), here.path()}) {
    const Weights weights(path);
    ASSERT_EQ(weights.files().size(), 3U);
    ASSERT_EQ(weights.tensors().size(), 5U);
    EXPECT_EQ(weights.bytes(), 13'010U);
    for (std::size_t i = 0; i < specs.size(); ++i) {
      EXPECT_EQ(weights.tensors()[i].name, specs[i].name);
      EXPECT_EQ(read(weights, specs[i].name), bytes[i]);
    }
    EXPECT_EQ(weights.tensors()[1].file, 0U);
    EXPECT_EQ(weights.tensors()[4].file, 2U);
    EXPECT_EQ(weights.files()[1].path(), shard(2).string());

    // One completion over several files.
    std::vector<std::byte> a(3000), c(9000);
    const std::vector<WeightRead> reads{{.tensor = 0, .to = in(a)}, {.tensor = 2, .to = in(c)}};
    weights.read(reads);
    EXPECT_EQ(a, bytes[0]);
    EXPECT_EQ(c, bytes[2]);
  }
}

TEST_F(Sharded, AMissingFileIsNamed) {
  std::filesystem::remove(shard(2));
  EXPECT_TRUE(is<SystemError>(failure()));
  expect_message(failure(), shard(2).string());
}

TEST_F(Sharded, ATensorThatItsFileLacksIsNamed) {
  write_random(shard(1), {{"a", WeightType::u8, {3000}}});
  EXPECT_TRUE(is<InvalidArgument>(failure()));
  expect_message(failure(), index().string() + ": tensor \"b\": expected a tensor of " +
                                shard(1).filename().string());
}

TEST_F(Sharded, ATensorInAnotherFileThanTheIndexSaysIsNamed) {
  write_random(shard(1), {{"a", WeightType::u8, {3000}}});
  write_random(shard(2), {{"b", WeightType::u8, {1000}}, {"c", WeightType::u8, {9000}}});
  expect_message(failure(), ": tensor \"b\": expected a tensor of");
}

TEST_F(Sharded, ATensorInTwoFilesIsNamed) {
  write_random(shard(2), {{"b", WeightType::u8, {1000}}, {"c", WeightType::u8, {9000}}});
  EXPECT_TRUE(is<InvalidArgument>(failure()));
  expect_message(failure(), shard(2).string() + ": tensor \"b\"");
  expect_message(failure(), "the same name in " + shard(1).string());
}

TEST_F(Sharded, ADamagedFileIsNamed) {
  std::filesystem::resize_file(shard(2), 100);
  EXPECT_TRUE(is<InvalidArgument>(failure()));
  expect_message(failure(), shard(2).string());
}

TEST_F(Sharded, TensorsThatTheIndexDoesNotNameAreNotPartOfIt) {
  write_random(
      shard(1),
      {{"x", WeightType::u8, {5}}, {"a", WeightType::u8, {3000}}, {"b", WeightType::u8, {1000}}});
  const Weights weights(index());
  EXPECT_EQ(weights.tensors().size(), 5U);
  EXPECT_FALSE(weights.contains("x"));
  EXPECT_EQ(weights.bytes(), 13'010U);
}

struct WrongIndex {
  const char* name;
  const char* text;
  const char* message;
};

void PrintTo(const WrongIndex& wrong, std::ostream* out) { *out << wrong.name; }

class WrongIndexes : public testing::TestWithParam<WrongIndex> {};

TEST_P(WrongIndexes, AreRefusedWithTheReason) {
  const TemporaryDirectory here;
  const auto path = here.write("index.json", GetParam().text);
  const auto failure = failure_of([&] { Weights weights(path); });
  EXPECT_TRUE(is<InvalidArgument>(failure)) << text(failure);
  EXPECT_EQ(text(failure).find(path.string()), 0U) << text(failure);
  expect_message(failure, GetParam().message);
}

INSTANTIATE_TEST_SUITE_P(
    All, WrongIndexes,
    testing::Values(
        WrongIndex{"Empty", "", "JSON in UTF-8"}, WrongIndex{"Array", "[]", "an object"},
        WrongIndex{"Text", "\"a\"", "an object, given \"a\""},
        WrongIndex{"NoMap", "{}", "weight_map: expected an object, given none"},
        WrongIndex{"MapNumber", R"({"weight_map":1})", "weight_map: expected an object, given 1"},
        WrongIndex{"MapArray", R"({"weight_map":[]})", "weight_map: expected an object"},
        WrongIndex{"FileNumber", R"({"weight_map":{"a":1}})", "tensor \"a\": expected the name"},
        WrongIndex{"FileArray", R"({"weight_map":{"a":[]}})", "the name of a file"},
        WrongIndex{"FileObject", R"({"weight_map":{"a":{}}})", "the name of a file"},
        WrongIndex{"FileEmpty", R"({"weight_map":{"a":""}})", "the name of a file"},
        WrongIndex{"FileElsewhere", R"({"weight_map":{"a":"/etc/passwd"}})",
                   "in the folder of the index, given \"/etc/passwd\""},
        WrongIndex{"FileAbove", R"({"weight_map":{"a":".."}})", "in the folder of the index"},
        WrongIndex{"FileBelow", R"({"weight_map":{"a":"b/../../c"}})", "in the folder"},
        WrongIndex{"FileWithZero", R"({"weight_map":{"a":"b\u0000"}})", "in the folder"},
        WrongIndex{"TensorTwice", R"({"weight_map":{"a":"b","a":"c"}})", "every key once"},
        WrongIndex{"MapTwice", R"({"weight_map":{},"weight_map":{}})", "every key once"},
        WrongIndex{"DeepMetadata", R"({"metadata":[[[[[[[[[[[[[[[[[[[[]]]]]]]]]]]]]]]]]]]]})",
                   "at most 16 levels"},
        WrongIndex{"ByteOrderMark", "\xEF\xBB\xBF{\"weight_map\":{}}", "byte order mark"}),
    [](const auto& tested) { return std::string(tested.param.name); });

TEST(WeightIndex, OtherFieldsAreIgnored) {
  const TemporaryDirectory here;
  write_random(here.path() / "one.safetensors", {{"a", WeightType::u8, {5}}});
  const auto path = here.write(
      "index.json",
      R"({"metadata":{"total_size":5.0,"more":[1,{"weight_map":2}]},"weight_map":{"a":"one.safetensors"},"x":null})");
  EXPECT_EQ(Weights(path).bytes(), 5U);
  const Weights none(here.write("none.json", R"({"weight_map":{}})"));
  EXPECT_TRUE(none.tensors().empty());
  EXPECT_THROW(none.metadata(), InvalidArgument);
  EXPECT_THROW(none.index_of("a"), InvalidArgument);
}

}  // namespace
}  // namespace ps::test
