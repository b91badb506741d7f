// One queue for many files: batches, priorities, cancellation, with both engines.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <fstream>
#include <future>
#include <latch>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "penstock/base/error.h"
#include "penstock/host/buffer.h"
#include "penstock/host/storage.h"
#include "support/failing_reads.h"
#include "support/failure_of.h"
#include "support/temporary_directory.h"
#include "support/watchdog.h"

namespace ps::test {
namespace {

class FileQueues : public testing::TestWithParam<FileEngine> {
 protected:
  void SetUp() override {
    const auto failure = failure_of([] { FileQueue({.engine = GetParam()}); });
    if (is<Unsupported>(failure)) GTEST_SKIP() << text(failure);
  }

  FileQueue queue(std::size_t in_flight = 4) const {
    return FileQueue({.engine = GetParam(), .in_flight = in_flight, .piece = 16 * KiB});
  }

  // A file whose bytes are `index`, so that bytes of another file are noticed.
  std::filesystem::path make(std::size_t index, std::size_t bytes) const {
    const auto path = here.path() / std::to_string(index);
    std::ofstream(path, std::ios::binary) << std::string(bytes, static_cast<char>(index));
    return path;
  }

  Watchdog watchdog{"FileQueues"};
  TemporaryDirectory here;
};

INSTANTIATE_TEST_SUITE_P(Engines, FileQueues,
                         testing::Values(FileEngine::threads, FileEngine::uring),
                         [](const auto& tested) {
                           return tested.param == FileEngine::uring ? "Uring" : "Threads";
                         });

bool holds(MemoryView memory, std::size_t value) {
  return std::all_of(memory.data, memory.data + memory.bytes,
                     [&](std::byte each) { return each == static_cast<std::byte>(value); });
}

// Keeps the engine of a queue with one piece in flight busy, in the completion of a read, for as
// long as this object lives.
class Busy {
 public:
  explicit Busy(const File& file) {
    file.read(0, state_->memory.view(), [state = state_](const std::exception_ptr& failure) {
      EXPECT_EQ(failure, nullptr) << text(failure);
      state->begun.count_down();
      state->end.wait();
    });
    state_->begun.wait();
  }
  ~Busy() { state_->end.count_down(); }
  Busy(const Busy&) = delete;
  Busy& operator=(const Busy&) = delete;

 private:
  struct State {
    PinnedBuffer memory{Device::cpu(), 4096};
    std::latch begun{1}, end{1};
  };
  std::shared_ptr<State> state_ = std::make_shared<State>();  // the completion may outlive the test
};

TEST_P(FileQueues, FilesShareAnEngineAndABatchHasOneCompletion) {
  const FileQueue queue = this->queue();
  const std::size_t files = 9, size = 70'001;
  const PinnedBuffer memory(Device::cpu(), files * 2 * size);
  std::vector<FileRead> reads;
  for (std::size_t i = 0; i < files; ++i) {
    const File file(queue, make(i, size));
    EXPECT_EQ(file.queue(), queue);
    EXPECT_EQ(file.engine(), GetParam());
    EXPECT_EQ(file.path(), (here.path() / std::to_string(i)).string());
    reads.push_back({file, 0, memory.view().sub(2 * i * size, size)});
    reads.push_back({file, 1000, memory.view().sub((2 * i + 1) * size, size - 1000)});
  }
  std::atomic<int> calls = 0;
  std::promise<std::exception_ptr> over;
  queue.read(reads, [&](std::exception_ptr failure) {
    ++calls;
    over.set_value(std::move(failure));
  });
  const auto failure = over.get_future().get();
  EXPECT_EQ(failure, nullptr) << text(failure);
  EXPECT_EQ(calls, 1);
  for (std::size_t i = 0; i < reads.size(); ++i) EXPECT_TRUE(holds(reads[i].to, i / 2)) << i;

  std::memset(memory.view().data, 0xEE, memory.bytes());
  queue.read(reads);
  for (std::size_t i = 0; i < reads.size(); ++i) EXPECT_TRUE(holds(reads[i].to, i / 2)) << i;
  EXPECT_NO_THROW(queue.read(std::vector<FileRead>{}));
}

TEST_P(FileQueues, ABadBlockIsNamed) {
  const FileQueue queue = this->queue();
  const File good(queue, make(0, 100'000)), bad(queue, make(1, 100'000));
  const PinnedBuffer memory(Device::cpu(), 2 * 100'000);
  const std::array reads{FileRead{good, 0, memory.view().sub(0, 100'000)},
                         FileRead{bad, 0, memory.view().sub(100'000, 100'000)}};
  {
    const FailingReads failing(bad.path(), 40'960);
    const auto failure = failure_of([&] { queue.read(reads); });
    ASSERT_TRUE(is<SystemError>(failure)) << text(failure);
    EXPECT_NE(text(failure).find(bad.path() + " at byte 40960"), std::string::npos)
        << text(failure);
    EXPECT_NE(text(failure).find("Input/output error"), std::string::npos) << text(failure);
    EXPECT_EQ(failing.failures(), 1);
    EXPECT_TRUE(holds(reads[0].to, 0)) << "the other read of the batch";
    EXPECT_NO_THROW(bad.read(45'056, memory.view().sub(0, 4096))) << "other bytes of the file";
  }
  queue.read(reads);
  EXPECT_TRUE(holds(reads[1].to, 1));
}

TEST_P(FileQueues, TheFirstFailureOfABatchSaysWhere) {
  const FileQueue queue = this->queue();
  const auto path = make(1, 100'000);
  const File whole(queue, make(0, 100'000)), shrunk(queue, path);
  const FileVersion before = shrunk.version();
  EXPECT_EQ(before, shrunk.version());
  std::filesystem::resize_file(path, 50'000);
  EXPECT_NE(before, shrunk.version());
  const PinnedBuffer memory(Device::cpu(), 200'000);
  const std::vector<FileRead> reads{{whole, 0, memory.view().sub(0, 100'000)},
                                    {shrunk, 0, memory.view().sub(100'000, 100'000)}};
  const auto failure = failure_of([&] { queue.read(reads); });
  EXPECT_TRUE(is<SystemError>(failure));
  EXPECT_NE(text(failure).find(path.string() + ", which ends at byte 50000"), std::string::npos)
      << text(failure);
  EXPECT_TRUE(holds(reads[0].to, 0)) << "the others still complete";
}

TEST_P(FileQueues, UrgentReadsOvertakeThoseThatWait) {
  const FileQueue queue = this->queue(1);
  const File file(queue, make(7, 64 * KiB));
  const PinnedBuffer memory(Device::cpu(), 64 * KiB);
  using enum ReadPriority;
  const std::vector<ReadPriority> asked{background, normal, urgent, background, normal, urgent};
  std::vector<std::size_t> ended;
  std::latch all(static_cast<std::ptrdiff_t>(asked.size()));
  {
    const Busy busy(file);
    for (std::size_t i = 0; i < asked.size(); ++i) {
      // Several pieces each. One in flight: completions come one after the other.
      file.read(0, memory.view(),
                [&, i](const std::exception_ptr& failure) {
                  EXPECT_EQ(failure, nullptr) << text(failure);
                  ended.push_back(i);
                  all.count_down();
                },
                {.priority = asked[i]});
    }
  }
  all.wait();
  EXPECT_EQ(ended, (std::vector<std::size_t>{2, 5, 1, 4, 0, 3}));
}

TEST_P(FileQueues, ACancelledReadDropsWhatWaits) {
  const FileQueue queue = this->queue(1);
  const File file(queue, make(7, 64 * KiB));
  const PinnedBuffer dropped(Device::cpu(), 64 * KiB), kept(Device::cpu(), 64 * KiB);
  std::memset(dropped.view().data, 0xEE, dropped.bytes());
  std::stop_source stop;
  std::atomic<int> calls = 0;
  std::promise<std::exception_ptr> cancelled, other;
  {
    const Busy busy(file);
    const std::vector<FileRead> reads{{file, 0, dropped.view().sub(0, 32 * KiB)},
                                      {file, 0, dropped.view().sub(32 * KiB, 32 * KiB)}};
    queue.read(reads,
               [&](std::exception_ptr failure) {
                 ++calls;
                 cancelled.set_value(std::move(failure));
               },
               {.priority = ReadPriority::background, .stop = stop.get_token()});
    file.read(0, kept.view(), [&](std::exception_ptr f) { other.set_value(std::move(f)); });
    stop.request_stop();
    EXPECT_EQ(calls, 0) << "the completion runs on a thread of the library";
  }
  const auto failure = cancelled.get_future().get();
  EXPECT_TRUE(is<Cancelled>(failure)) << text(failure);
  EXPECT_NE(text(failure).find(file.path()), std::string::npos) << text(failure);
  EXPECT_EQ(other.get_future().get(), nullptr);
  EXPECT_EQ(calls, 1);
  EXPECT_TRUE(holds(dropped.view(), 0xEE)) << "nothing was read";
  EXPECT_TRUE(holds(kept.view(), 7));
}

TEST_P(FileQueues, AReadThatWasCancelledBeforeItBeganReadsNothing) {
  const FileQueue queue = this->queue();
  const File file(queue, make(7, 64 * KiB));
  const PinnedBuffer memory(Device::cpu(), 64 * KiB);
  std::memset(memory.view().data, 0xEE, memory.bytes());
  std::stop_source stop;
  stop.request_stop();
  const std::vector<FileRead> reads{{file, 0, memory.view()}};
  EXPECT_TRUE(is<Cancelled>(failure_of([&] { queue.read(reads, {.stop = stop.get_token()}); })));
  EXPECT_TRUE(holds(memory.view(), 0xEE));
}

TEST_P(FileQueues, ACancellationAfterTheEndChangesNothing) {
  const FileQueue queue = this->queue();
  const File file(queue, make(7, 64 * KiB));
  const PinnedBuffer memory(Device::cpu(), 64 * KiB);
  std::stop_source stop;
  const std::vector<FileRead> reads{{file, 0, memory.view()}};
  queue.read(reads, {.stop = stop.get_token()});
  stop.request_stop();
  EXPECT_TRUE(holds(memory.view(), 7));
}

TEST_P(FileQueues, CancelledAnywhereEveryReadEndsOnce) {
  const FileQueue queue = this->queue(3);
  const File file(queue, make(7, 256 * KiB));
  const int trials = 200, at_once = 8;
  const PinnedBuffer memory(Device::cpu(), at_once * 256 * KiB);
  std::mt19937 random(1);
  int cancelled = 0;
  for (int trial = 0; trial < trials; ++trial) {
    std::stop_source stop;
    std::latch all(at_once);
    std::array<std::atomic<int>, at_once> calls{};
    std::atomic<int> refused = 0;
    std::thread stopper([&, spins = random() % 20'000] {
      for (unsigned i = 0; i < spins; ++i) std::atomic_signal_fence(std::memory_order_seq_cst);
      stop.request_stop();
    });
    for (std::size_t i = 0; i < at_once; ++i) {
      file.read(0, memory.view().sub(i * 256 * KiB, 256 * KiB),
                [&, i](const std::exception_ptr& failure) {
                  EXPECT_TRUE(!failure || is<Cancelled>(failure)) << text(failure);
                  if (failure) ++refused;
                  EXPECT_EQ(++calls.at(i), 1);
                  all.count_down();
                },
                {.priority = static_cast<ReadPriority>(random() % 3), .stop = stop.get_token()});
    }
    all.wait();
    stopper.join();
    cancelled += refused;
  }
  EXPECT_GT(cancelled, 0);
  const MemoryView first = memory.view().sub(0, 256 * KiB);
  file.read(0, first);
  EXPECT_TRUE(holds(first, 7));
}

TEST_P(FileQueues, ACompletionMayCancelAnotherReadAndDropTheLastHandles) {
  std::stop_source stop;
  const PinnedBuffer memory(Device::cpu(), 64 * KiB);
  std::promise<std::exception_ptr> over;
  {
    auto file = std::make_shared<File>(queue(1), make(7, 64 * KiB));
    file->read(0, memory.view(), [&, file](const std::exception_ptr& failure) mutable {
      EXPECT_EQ(failure, nullptr) << text(failure);
      file->read(0, memory.view(),
                 [&](std::exception_ptr other) { over.set_value(std::move(other)); },
                 {.stop = stop.get_token()});
      file.reset();  // the queue goes with it
      stop.request_stop();
    });
  }
  EXPECT_TRUE(is<Cancelled>(over.get_future().get()));
}

TEST_P(FileQueues, ErrorsNameTheReadAndStartNone) {
  const FileQueue queue = this->queue();
  const File file(queue, make(1, 4096)), other(this->queue(), make(2, 4096));
  const PinnedBuffer memory(Device::cpu(), 4096);
  std::memset(memory.view().data, 0xEE, memory.bytes());
  const auto expect = [&](FileRead bad, const std::string& part) {
    const std::vector<FileRead> reads{{file, 0, memory.view()}, std::move(bad)};
    const auto failure = failure_of([&] { queue.read(reads); });
    EXPECT_TRUE(is<InvalidArgument>(failure)) << text(failure);
    EXPECT_NE(text(failure).find(part), std::string::npos) << text(failure);
  };
  std::byte byte{};
  expect({other, 0, memory.view()}, "reads[1].file");
  expect({file, 0, {nullptr, 1, {Memory::host}}}, "reads[1].to");
  expect({file, 0, {&byte, 1, {Memory::device, 0}}}, "reads[1].to");
  expect({file, ~std::uint64_t{0}, {&byte, 1, {Memory::host}}}, "reads[1].offset");
  const std::vector<FileRead> fine{{file, 0, memory.view()}};
  EXPECT_NE(text(failure_of([&] { queue.read(fine, TransferDone{}); })).find("done"),
            std::string::npos);
  EXPECT_TRUE(holds(memory.view(), 0xEE));
}

TEST(FileQueueErrors, NameTheOption) {
  const auto refused = [](FileQueueOptions options) {
    return text(failure_of([&] { FileQueue queue(options); }));
  };
  EXPECT_NE(refused({.in_flight = 0}).find("in_flight"), std::string::npos);
  EXPECT_NE(refused({.piece = 1000}).find("piece"), std::string::npos);
}

}  // namespace
}  // namespace ps::test
