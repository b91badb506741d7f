// Reading checkpoints: whole tensors, rows, files that change.
#include "penstock/weights/weights.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <fstream>
#include <future>

#include "penstock/base/error.h"
#include "penstock/host/buffer.h"
#include "support/failing_reads.h"
#include "support/failure_of.h"
#include "support/temporary_directory.h"
#include "support/watchdog.h"
#include "weights/support.h"

namespace ps::test {
namespace {

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

TEST_F(Checkpoints, ABadBlockIsAnErrorThatNamesIt) {
  const auto path = here.path() / "model.safetensors";
  const auto bytes =
      write_random(path, {{"a", WeightType::u8, {10'000}}, {"b", WeightType::u8, {100'000}}});
  const Weights weights(path);
  {
    const FailingReads failing("model.safetensors", 49'152);
    expect_message(failure_of([&] { read(weights, "b"); }),
                   "model.safetensors at byte 49152: Input/output error");
    EXPECT_EQ(failing.failures(), 1);
    EXPECT_EQ(read(weights, "a"), bytes[0]);
  }
  EXPECT_EQ(read(weights, "b"), bytes[1]);
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

}  // namespace
}  // namespace ps::test
