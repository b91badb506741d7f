// Files read and written through both engines, past the page cache and through it.
#include "penstock/host/storage.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <fstream>
#include <future>
#include <optional>
#include <random>
#include <vector>

#include "penstock/base/error.h"
#include "penstock/host/buffer.h"
#include "support/failure_of.h"
#include "support/full_disk.h"
#include "support/temporary_directory.h"
#include "support/watchdog.h"

namespace ps::test {
namespace {

struct Way {
  const char* name;
  FileEngine engine;
  bool direct;
};

class Files : public testing::TestWithParam<Way> {
 protected:
  void SetUp() override {
    if (GetParam().engine != FileEngine::uring) return;
    const auto failure = failure_of([&] { File(make(1), options()); });
    if (is<Unsupported>(failure)) GTEST_SKIP() << text(failure);
  }

  FileOptions options(FileMode mode = FileMode::read) const {
    return {.mode = mode,
            .engine = GetParam().engine,
            .in_flight = 4,
            .piece = 16 * KiB,
            .direct = GetParam().direct};
  }

  // A file of random bytes.
  std::filesystem::path make(std::size_t bytes) {
    contents.resize(bytes);
    std::mt19937 random(static_cast<unsigned>(bytes));
    for (std::byte& byte : contents) byte = static_cast<std::byte>(random());
    const auto path = here.path() / "file";
    std::ofstream(path, std::ios::binary)
        .write(reinterpret_cast<const char*>(contents.data()), static_cast<std::streamsize>(bytes));
    return path;
  }

  void expect_contents(MemoryView got, std::uint64_t offset) const {
    EXPECT_EQ(std::memcmp(got.data, contents.data() + offset, got.bytes), 0)
        << got.bytes << " bytes at " << offset;
  }

  Watchdog watchdog{"Files"};
  TemporaryDirectory here;
  std::vector<std::byte> contents;
};

INSTANTIATE_TEST_SUITE_P(Ways, Files,
                         testing::Values(Way{"Threads", FileEngine::threads, true},
                                         Way{"ThreadsCached", FileEngine::threads, false},
                                         Way{"Uring", FileEngine::uring, true},
                                         Way{"UringCached", FileEngine::uring, false}),
                         [](const auto& tested) { return std::string(tested.param.name); });

TEST_P(Files, ReadsAnyRangeIntoAnyMemory) {
  const std::size_t size = 300'001;
  const File file(make(size), options());
  EXPECT_EQ(file.size(), size);
  EXPECT_EQ(file.engine(), GetParam().engine);
  EXPECT_LE(file.direct(), GetParam().direct);
  const PinnedBuffer memory(Device::cpu(), 400'000);
  std::mt19937 random(1);
  for (int trial = 0; trial < 200; ++trial) {
    std::size_t offset = random() % size, bytes = random() % (size - offset + 1);
    std::size_t shift = random() % 3 == 0 ? random() % 5000 : 0;
    if (trial % 4 == 0) {  // whole blocks into aligned memory: all of it direct
      offset = offset / 4096 * 4096;
      bytes = bytes / 4096 * 4096;
      shift = 0;
    } else if (trial % 4 == 1) {  // direct in the middle only
      shift = offset % 4096;
    }
    std::memset(memory.view().data, 0xEE, memory.bytes());
    const MemoryView to = memory.view().sub(shift, bytes);
    file.read(offset, to);
    expect_contents(to, offset);
    for (const std::size_t edge : {shift - 1, shift + bytes}) {
      if (edge >= memory.bytes()) continue;
      EXPECT_EQ(memory.view().data[edge], std::byte{0xEE});
    }
  }
  EXPECT_NO_THROW(file.read(size, memory.view().sub(0, 0)));
}

TEST_P(Files, ManyReadsAreOnTheirWayAtOnce) {
  const std::size_t chunk = 40'000, chunks = 60;
  const File file(make(chunk * chunks), options());
  std::vector<std::byte> memory(chunk * chunks);
  std::atomic<std::size_t> left = chunks;
  std::promise<void> all;
  for (std::size_t i = 0; i < chunks; ++i) {
    file.read(i * chunk, {memory.data() + i * chunk, chunk, {Memory::host}},
              [&](std::exception_ptr failure) {
                EXPECT_EQ(failure, nullptr) << text(failure);
                if (--left == 0) all.set_value();
              });
  }
  all.get_future().wait();
  EXPECT_EQ(memory, contents);
}

TEST_P(Files, WhatIsWrittenIsRead) {
  const std::size_t size = 200'003;
  make(size);
  const auto path = here.path() / "written";
  const PinnedBuffer memory(Device::cpu(), size);
  std::memcpy(memory.view().data, contents.data(), size);
  {
    const File file(path, options(FileMode::write));
    const std::size_t middle = 100'000;
    file.write(middle, memory.view().sub(middle, size - middle));
    file.write(0, memory.view().sub(0, middle));
    file.flush();
    EXPECT_EQ(file.size(), size);
    const PinnedBuffer again(Device::cpu(), size);
    file.read(0, again.view());
    expect_contents(again.view(), 0);
  }
  const PinnedBuffer other(Device::cpu(), size);
  File(path, options()).read(0, other.view());
  expect_contents(other.view(), 0);
}

TEST_P(Files, AFileThatEndsEarlyIsAnErrorThatSaysWhere) {
  const File file(make(50'000), options());
  const PinnedBuffer memory(Device::cpu(), 65'536);
  const auto failure = failure_of([&] { file.read(0, memory.view()); });
  EXPECT_TRUE(is<SystemError>(failure));
  EXPECT_NE(text(failure).find("ends at byte 50000"), std::string::npos) << text(failure);
  EXPECT_NE(text(failure).find((here.path() / "file").string()), std::string::npos);
  file.read(0, memory.view().sub(0, 50'000));  // goes on
  expect_contents(memory.view().sub(0, 50'000), 0);
}

TEST_P(Files, AFileMayShrinkMeanwhile) {
  const auto path = make(1'000'000);
  const File file(path, options());
  const PinnedBuffer memory(Device::cpu(), 1'000'000);
  std::filesystem::resize_file(path, 10'000);
  EXPECT_TRUE(is<SystemError>(failure_of([&] { file.read(0, memory.view()); })));
  EXPECT_EQ(file.size(), 10'000U);
  file.read(0, memory.view().sub(0, 10'000));
  expect_contents(memory.view().sub(0, 10'000), 0);
}

TEST_P(Files, AReadThatTheSystemRefusesIsReported) {
  const File file("/proc/self/mem", options());  // nothing is mapped at address 0
  const PinnedBuffer memory(Device::cpu(), 4096);
  const auto failure = failure_of([&] { file.read(0, memory.view()); });
  EXPECT_TRUE(is<SystemError>(failure)) << text(failure);
  EXPECT_NE(text(failure).find("/proc/self/mem"), std::string::npos) << text(failure);
}

TEST_P(Files, AFullDiskIsReported) {
  make(1);
  const PinnedBuffer memory(Device::cpu(), 256 * KiB);
  std::memset(memory.view().data, 1, memory.bytes());
  const File file(here.path() / "large", options(FileMode::write));
  const FileSizeLimit limit(64 * KiB);
  const auto failure = failure_of([&] { file.write(0, memory.view()); });
  EXPECT_TRUE(is<SystemError>(failure)) << text(failure);
  EXPECT_NE(text(failure).find("write"), std::string::npos) << text(failure);
}

TEST_P(Files, TheLastHandleMayGoFirst) {
  const std::size_t size = 500'000;
  const PinnedBuffer memory(Device::cpu(), size);
  std::promise<std::exception_ptr> over;
  {
    auto file = std::make_shared<File>(make(size), options());
    file->read(0, memory.view(), [&, file](std::exception_ptr failure) mutable {
      file.reset();  // on the engine's own thread
      over.set_value(std::move(failure));
    });
  }
  EXPECT_EQ(over.get_future().get(), nullptr);
  expect_contents(memory.view(), 0);
}

TEST_P(Files, MayBeReadFromInsideACompletion) {
  const std::size_t size = 64'000;
  const File file(make(size), options());
  const PinnedBuffer memory(Device::cpu(), size);
  std::promise<void> over;
  std::function<void(std::size_t)> next = [&](std::size_t at) {
    file.read(at, memory.view().sub(at, 1000), [&, at](std::exception_ptr failure) {
      EXPECT_EQ(failure, nullptr) << text(failure);
      if (at + 2000 > size) return over.set_value();
      next(at + 1000);
    });
  };
  next(0);
  over.get_future().wait();
  expect_contents(memory.view().sub(0, size - 1000), 0);
}

TEST(FileErrors, NameThePathOrTheArgument) {
  const TemporaryDirectory here;
  const auto open = [](const std::filesystem::path& path, FileOptions options = {}) {
    return failure_of([&] { File(path, options); });
  };
  const auto expect = [](const std::exception_ptr& failure, const std::string& part) {
    EXPECT_NE(text(failure).find(part), std::string::npos) << text(failure);
  };
  EXPECT_TRUE(is<SystemError>(open(here.path() / "none")));
  expect(open(here.path() / "none"), (here.path() / "none").string());
  EXPECT_TRUE(is<SystemError>(open(here.path())));
  expect(open(here.path()), "directory");
  EXPECT_TRUE(is<SystemError>(open("/proc/nowhere/file", {.mode = FileMode::write})));
  const auto path = here.path() / "file";
  std::ofstream(path) << "text";
  expect(open(path, {.in_flight = 0}), "in_flight");
  expect(open(path, {.in_flight = 5000}), "in_flight");
  expect(open(path, {.piece = 0}), "piece");
  expect(open(path, {.piece = 1000}), "piece");

  const File file(path);
  std::byte byte{};
  const MemoryView memory{&byte, 1, {Memory::host}};
  expect(failure_of([&] { file.write(0, memory); }), "mode");
  expect(failure_of([&] { file.read(0, MemoryView{nullptr, 1, {Memory::host}}); }), "to");
  expect(failure_of([&] { file.read(0, MemoryView{&byte, 1, {Memory::device, 0}}); }), "to");
  expect(failure_of([&] { file.read(~std::uint64_t{0}, memory); }), "offset");
  expect(failure_of([&] { file.read(0, memory, TransferDone{}); }), "done");
}

}  // namespace
}  // namespace ps::test
