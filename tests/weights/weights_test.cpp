// Reading checkpoints: whole tensors, rows, several files, files that change.
#include "penstock/weights/weights.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <fstream>
#include <future>

#include "penstock/base/error.h"
#include "penstock/host/buffer.h"
#include "support/failure_of.h"
#include "support/temporary_directory.h"
#include "support/watchdog.h"
#include "weights/support.h"

namespace ps::test {
namespace {

void expect_message(const std::exception_ptr& failure, const std::string& part) {
  EXPECT_NE(text(failure).find(part), std::string::npos) << text(failure) << "\nexpected " << part;
}

class Checkpoints : public testing::Test {
 protected:
  Watchdog watchdog{"Checkpoints"};
  TemporaryDirectory here;
};

TEST_F(Checkpoints, TensorsAndRowsAreReadStraightIntoMemory) {
  const auto path = here.path() / "model.safetensors";
  const auto bytes = write_random(path, {{"a", WeightType::bf16, {100, 30, 7}},
                                         {"b", WeightType::f8_e4m3, {20'000}},
                                         {"c", WeightType::f4, {6, 4}}});
  for (const bool direct : {true, false}) {
    const Weights weights(path, {.direct = direct});
    EXPECT_EQ(weights.files().size(), 1U);
    EXPECT_EQ(read(weights, "a"), bytes[0]);
    EXPECT_EQ(read(weights, "b"), bytes[1]);

    // Direct, where the memory begins as far behind a page as the tensor does.
    const WeightInfo& b = weights.tensors()[1];
    const PinnedBuffer memory(Device::cpu(), 32'768);
    const MemoryView to = memory.view().sub(b.offset % 4096, b.bytes);
    weights.read(1, to);
    EXPECT_EQ(std::memcmp(to.data, bytes[1].data(), to.bytes), 0);

    // Several parts with one completion.
    const std::size_t row = 30 * 7 * 2;
    std::vector<std::byte> rows(5 * row), rest(2 * row), one_of_c(2), none;
    const std::vector<WeightRead> reads{
        {.tensor = 0, .to = in(rows), .first_row = 40, .rows = 5},
        {.tensor = 0, .to = in(rest), .first_row = 98},
        {.tensor = 2, .to = in(one_of_c), .first_row = 3, .rows = 1},
        {.tensor = 0, .to = in(none), .first_row = 100},
        {.tensor = 0, .to = in(none), .first_row = 7, .rows = 0}};
    std::promise<std::exception_ptr> over;
    weights.read(reads, [&](std::exception_ptr failure) { over.set_value(std::move(failure)); },
                 {.priority = ReadPriority::urgent});
    const auto failure = over.get_future().get();
    EXPECT_EQ(failure, nullptr) << text(failure);
    EXPECT_EQ(std::memcmp(rows.data(), bytes[0].data() + 40 * row, rows.size()), 0);
    EXPECT_EQ(std::memcmp(rest.data(), bytes[0].data() + 98 * row, rest.size()), 0);
    EXPECT_EQ(std::memcmp(one_of_c.data(), bytes[2].data() + 6, 2), 0);
  }
}

TEST_F(Checkpoints, ReadsAreRefusedByName) {
  const auto path = here.path() / "model.safetensors";
  write_random(path, {{"a", WeightType::f32, {4, 2}},
                      {"scalar", WeightType::f32, {}},
                      {"odd", WeightType::f4, {2, 3}}});
  const Weights weights(path);
  std::vector<std::byte> memory(32, std::byte{0xEE});
  const auto refused = [&](WeightRead bad) {
    std::vector<std::byte> fine(4);
    const std::vector<WeightRead> reads{{.tensor = 1, .to = in(fine)}, bad};
    const auto failure = failure_of([&] { weights.read(reads); });
    EXPECT_TRUE(is<InvalidArgument>(failure)) << text(failure);
    return failure;
  };
  const auto part = [&](std::size_t bytes) { return in(memory).sub(0, bytes); };
  expect_message(refused({.tensor = 3, .to = part(1)}),
                 "reads[1].tensor: expected an index below 3");
  expect_message(refused({.tensor = 0, .to = part(31)}),
                 "reads[1].to: expected 32 bytes for \"a\"");
  expect_message(refused({.tensor = 0, .to = part(8), .first_row = -1}), "reads[1].first_row");
  expect_message(refused({.tensor = 0, .to = part(8), .first_row = 5}),
                 "first_row: expected 0 to 4");
  expect_message(refused({.tensor = 0, .to = part(8), .first_row = 3, .rows = 2}),
                 "rows: expected 0 to 1");
  expect_message(refused({.tensor = 0, .to = part(8), .first_row = 3, .rows = -2}),
                 "reads[1].rows");
  expect_message(refused({.tensor = 0, .to = part(8), .first_row = 1, .rows = 2}),
                 "reads[1].to: expected 16 bytes");
  expect_message(refused({.tensor = 1, .to = part(4), .first_row = 0, .rows = 1}), "reads[1].rows");
  expect_message(refused({.tensor = 2, .to = part(2), .first_row = 1}),
                 "rows that fill whole bytes");
  expect_message(refused({.tensor = 0, .to = {nullptr, 32, {Memory::host}}}), "reads[1].to");
  expect_message(refused({.tensor = 0, .to = {memory.data(), 32, {Memory::device, 0}}}),
                 "reads[1].to: expected host memory");
  expect_message(failure_of([&] { weights.index_of("missing"); }), "name: expected one of the 3");
  expect_message(failure_of([&] { weights.read(std::vector<WeightRead>{}, TransferDone{}); }),
                 "done");
  EXPECT_EQ(memory, std::vector<std::byte>(32, std::byte{0xEE}));
  EXPECT_NO_THROW(weights.read(std::vector<WeightRead>{}));
}

TEST_F(Checkpoints, AViewHasTheTensorsTypeAndShape) {
  const auto path = here.path() / "model.safetensors";
  write_random(path, {{"a", WeightType::bf16, {4, 2}},
                      {"fp8", WeightType::f8_e4m3, {4}},
                      {"deep", WeightType::u8, {1, 1, 1, 1, 1, 1, 1, 1, 1}}});
  const Weights weights(path);
  std::vector<std::byte> memory(16);
  const TensorView view = view_of(weights.tensors()[0], in(memory));
  EXPECT_EQ(view.describe(), "bf16[4, 2] on host");
  EXPECT_EQ(view.data(), memory.data());
  const auto refused = [&](std::size_t tensor, std::size_t bytes) {
    return failure_of([&] { view_of(weights.tensors()[tensor], in(memory).sub(0, bytes)); });
  };
  expect_message(refused(0, 15), "tensor \"a\": expected memory of 16 bytes");
  expect_message(refused(1, 4), "given F8_E4M3; its bytes can be read");
  EXPECT_TRUE(is<InvalidArgument>(refused(2, 1)));
}

TEST_F(Checkpoints, AFileThatShrinksOrChangesIsAnErrorThatNamesIt) {
  const auto path = here.path() / "model.safetensors";
  const auto bytes =
      write_random(path, {{"a", WeightType::u8, {50'000}}, {"b", WeightType::u8, {50'000}}});
  const Weights weights(path);
  EXPECT_EQ(read(weights, "a"), bytes[0]);
  EXPECT_NO_THROW(weights.check_unchanged(0));
  EXPECT_THROW(weights.check_unchanged(1), InvalidArgument);

  const auto whole = std::filesystem::file_size(path);
  std::filesystem::resize_file(path, 60'000);
  const auto beyond = failure_of([&] { read(weights, "b"); });
  EXPECT_TRUE(is<SystemError>(beyond));
  expect_message(beyond, path.string() + ", which ends at byte 60000");
  // What is left of the file is no longer what was opened.
  const auto before = failure_of([&] { read(weights, "a"); });
  EXPECT_TRUE(is<SystemError>(before));
  expect_message(before, path.string() + ", of " + std::to_string(whole) +
                             " bytes when it was opened, now of 60000");

  std::filesystem::resize_file(path, whole);
  using namespace std::chrono_literals;
  std::filesystem::last_write_time(path, std::filesystem::last_write_time(path) + 1s);
  expect_message(failure_of([&] { read(weights, "a"); }), "modified since it was opened");
}

TEST_F(Checkpoints, AReplacedFileIsReadAsItWasOpened) {
  const auto path = here.path() / "model.safetensors";
  const auto old = write_random(path, {{"a", WeightType::u8, {1000}}});
  const Weights weights(path);
  write_random(path, {{"b", WeightType::u8, {7}}, {"a", WeightType::u8, {1000}}});
  EXPECT_EQ(read(weights, "a"), old[0]);
  EXPECT_EQ(Weights(path).tensors().size(), 2U);
}

TEST_F(Checkpoints, CancelledReadsReadNothing) {
  const auto path = here.path() / "model.safetensors";
  write_random(path, {{"a", WeightType::u8, {1000}}});
  const Weights weights(path);
  std::vector<std::byte> memory(1000);
  std::stop_source stop;
  stop.request_stop();
  const std::vector<WeightRead> reads{{.tensor = 0, .to = in(memory)}};
  const auto failure = failure_of([&] { weights.read(reads, {.stop = stop.get_token()}); });
  EXPECT_TRUE(is<Cancelled>(failure)) << text(failure);
}

TEST_F(Checkpoints, WhatCannotBeOpenedIsNamed) {
  const auto open = [](const std::filesystem::path& path) {
    return failure_of([&] { Weights weights(path); });
  };
  const auto expect = [&](const std::filesystem::path& path, const std::filesystem::path& named) {
    const auto failure = open(path);
    EXPECT_TRUE(is<SystemError>(failure)) << text(failure);
    expect_message(failure, named.string());
  };
  expect(here.path() / "none.safetensors", here.path() / "none.safetensors");
  expect(here.path() / "none.json", here.path() / "none.json");
  expect(here.path(), here.path() / "model.safetensors.index.json");  // an empty folder
  expect_message(failure_of([&] { Weights w("/dev/null"); }), "/dev/null: expected a file of");
  write_random(here.path() / "model.safetensors", {{"a", WeightType::u8, {1}}});
  expect_message(failure_of([&] { Weights w(here.path(), {.queue = {.in_flight = 0}}); }),
                 "in_flight");
}

class Sharded : public Checkpoints {
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

TEST_F(Checkpoints, OtherFieldsOfAnIndexAreIgnored) {
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
