// Async stages: items under way together, ended in any order, failed, dropped, cancelled.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <fstream>
#include <memory>
#include <mutex>
#include <random>
#include <thread>
#include <vector>

#include "penstock/base/error.h"
#include "penstock/host/pipeline.h"
#include "penstock/host/storage.h"
#include "support/failure_of.h"
#include "support/temporary_directory.h"
#include "support/watchdog.h"

namespace ps::test {
namespace {

class AsyncStages : public testing::Test {
 protected:
  // Begins items on threads of their own, which end in a random order.
  StageId add_begin(const AsyncFunction& function) {
    slots = pipeline.ring("slots", {.bytes = sizeof(std::uint64_t)});
    return pipeline.async_stage("begin", {.uses = {slots}}, function);
  }
  // Sees what the stage before left in the slots.
  void add_collect(StageId before) {
    pipeline.host_stage("collect", {.after = {before}, .uses = {slots}}, [this](Item& item) {
      collected.push_back(*item.slot(slots).as<std::uint64_t>());
    });
  }
  void expect_collected(std::uint64_t items) {
    ASSERT_EQ(collected.size(), items);
    for (std::uint64_t i = 0; i < items; ++i) ASSERT_EQ(collected[i], i * i);
  }

  Watchdog watchdog{"AsyncStages"};
  Pipeline pipeline{{.device = Device::cpu(), .depth = 5}};
  RingId slots;
  std::vector<std::uint64_t> collected;
};

TEST_F(AsyncStages, EndInAnyOrderAndDeliverInOrder) {
  std::atomic<int> under_way = 0, most = 0;
  std::vector<std::jthread> threads;
  std::mt19937 random(3);
  add_collect(add_begin([&](Item& item, const Completion& done) {
    auto* slot = item.slot(slots).as<std::uint64_t>();
    const int now = ++under_way;
    most = std::max(most.load(), now);
    threads.emplace_back([&, slot, index = item.index(), done, pause = random() % 300] {
      std::this_thread::sleep_for(std::chrono::microseconds(pause));
      *slot = index * index;
      --under_way;
      done();
    });
  }));
  EXPECT_EQ(pipeline.run({.items = 200}).items, 200U);
  expect_collected(200);
  EXPECT_GT(most, 1);
  EXPECT_LE(most, 5);
}

TEST_F(AsyncStages, MayEndBeforeTheyReturn) {
  add_collect(add_begin([&](Item& item, const Completion& done) {
    *item.slot(slots).as<std::uint64_t>() = item.index() * item.index();
    done();
  }));
  for (const std::uint64_t items : {0, 1, 1000}) {
    collected.clear();
    EXPECT_EQ(pipeline.run({.items = items}).items, items);
    expect_collected(items);
  }
}

TEST_F(AsyncStages, FailuresNameStageAndItemAndTheRestIsWaitedFor) {
  enum class How { tell, throws, drop };
  How how{};
  bool well = false;
  std::atomic<int> under_way = 0;
  std::vector<std::jthread> threads;
  add_collect(add_begin([&](Item& item, const Completion& done) {
    auto* slot = item.slot(slots).as<std::uint64_t>();
    const std::uint64_t index = item.index();
    if (!well && index == 7) {
      if (how == How::throws) throw std::domain_error("seven");
      if (how == How::tell) done(std::make_exception_ptr(std::domain_error("seven")));
      return;
    }
    ++under_way;
    threads.emplace_back([&, slot, index, done] {
      std::this_thread::sleep_for(std::chrono::microseconds(200));
      *slot = index * index;
      --under_way;
      done();
    });
  }));
  for (const How next : {How::tell, How::throws, How::drop}) {
    how = next;
    well = false;
    try {
      pipeline.run({.items = 30});
      ADD_FAILURE() << "no failure";
    } catch (const PipelineError& error) {
      EXPECT_EQ(error.stage(), "begin");
      EXPECT_EQ(error.item(), 7U);
      EXPECT_EQ(is<std::domain_error>(error.cause()), how != How::drop) << error.what();
    }
    EXPECT_EQ(under_way, 0) << "an item was still under way";
    well = true;
    collected.clear();
    EXPECT_EQ(pipeline.run({.items = 30}).items, 30U);
    expect_collected(30);
  }
}

TEST_F(AsyncStages, CancellationWaitsForWhatIsUnderWay) {
  std::stop_source source;
  std::atomic<int> under_way = 0;
  std::vector<std::jthread> threads;
  add_collect(add_begin([&](Item& item, const Completion& done) {
    ++under_way;
    threads.emplace_back(
        [&, slot = item.slot(slots).as<std::uint64_t>(), index = item.index(), done] {
          std::this_thread::sleep_for(std::chrono::milliseconds(1));
          *slot = index * index;
          --under_way;
          done();
        });
    if (item.index() == 10) source.request_stop();
  }));
  const RunReport report = pipeline.run({.items = 1000, .stop = source.get_token()});
  EXPECT_TRUE(report.cancelled);
  EXPECT_LT(report.items, 1000U);
  EXPECT_EQ(under_way, 0);
}

// A file through compute into another file, in more pieces than there are slots.
TEST(FilePipeline, CopiesAFile) {
  const Watchdog watchdog("FilePipeline");
  const TemporaryDirectory here;
  const std::size_t chunk = 64 * KiB, size = 50 * chunk + 1234;
  std::vector<char> contents(size);
  std::mt19937 random(5);
  for (char& c : contents) c = static_cast<char>(random());
  std::ofstream(here.path() / "in", std::ios::binary)
      .write(contents.data(), static_cast<std::streamsize>(size));

  const File in(here.path() / "in"), out(here.path() / "out", {.mode = FileMode::write});
  const auto part = [&](const Item& item, MemoryView slot) {
    return slot.sub(0, std::min(chunk, size - item.index() * chunk));
  };
  Pipeline pipeline({.device = Device::cpu(), .depth = 4});
  const RingId slots = pipeline.ring("slots", {.bytes = chunk});
  const StageId read = pipeline.async_stage(
      "read", {.uses = {slots}, .engine = Engine::disk}, [&](Item& item, const Completion& done) {
        in.read(item.index() * chunk, part(item, item.slot(slots)), done);
      });
  const StageId flip =
      pipeline.host_stage("flip", {.after = {read}, .uses = {slots}}, [&](Item& item) {
        const MemoryView piece = part(item, item.slot(slots));
        for (std::size_t i = 0; i < piece.bytes; ++i) piece.data[i] ^= std::byte{0xFF};
      });
  pipeline.async_stage("write", {.after = {flip}, .uses = {slots}, .engine = Engine::disk},
                       [&](Item& item, const Completion& done) {
                         out.write(item.index() * chunk, part(item, item.slot(slots)), done);
                       });
  EXPECT_EQ(pipeline.run({.items = 51}).items, 51U);

  std::vector<char> got(size + 1);
  std::ifstream written(here.path() / "out", std::ios::binary);
  written.read(got.data(), static_cast<std::streamsize>(got.size()));
  ASSERT_EQ(written.gcount(), static_cast<std::streamsize>(size));
  for (std::size_t i = 0; i < size; ++i) ASSERT_EQ(got[i], static_cast<char>(~contents[i])) << i;

  // The file has become shorter: the stage and the item are named.
  std::filesystem::resize_file(here.path() / "in", 10 * chunk);
  try {
    pipeline.run({.items = 51});
    FAIL() << "no failure";
  } catch (const PipelineError& error) {
    EXPECT_EQ(error.stage(), "read");
    EXPECT_GE(error.item(), 10U);
    EXPECT_TRUE(is<SystemError>(error.cause())) << error.what();
  }
}

}  // namespace
}  // namespace ps::test
