// A fork's child has none of the library's threads: its calls must fail instead of waiting for
// ever.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <functional>
#include <memory>
#include <string_view>

#include "penstock/base/error.h"
#include "penstock/host/pinned_arena.h"
#include "penstock/host/pipeline.h"
#include "penstock/host/session.h"
#include "penstock/host/slot_cache.h"
#include "penstock/host/storage.h"
#include "penstock/host/stream.h"

namespace ps {
namespace {

// Whether `use` throws Unsupported, with a text that says why, in a child of this process.
bool refused_in_a_child(const std::function<void()>& use) {
  const pid_t child = fork();
  if (child == 0) {
    alarm(10);  // a child that waits for a thread is killed
    bool refused = false;
    try {
      use();
    } catch (const Unsupported& error) {
      refused = std::string_view(error.what()).find("do not survive a fork") != std::string::npos;
    } catch (...) {
      refused = false;
    }
    _exit(refused ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

TEST(Fork, EveryUseOfAThreadIsRefusedInTheChild) {
  const Device device = Device::cpu();
  const Stream stream(device);
  const Event event(device);
  stream.record(event);
  Pipeline pipeline({.device = device});
  pipeline.host_stage("work", {}, [](Item&) {});
  pipeline.run({.items = 1});
  Session session({.device = device});
  session.host_stage("work", {}, [](Item&) {});
  session.push(1).wait();
  const File file(std::filesystem::read_symlink("/proc/self/exe"));
  std::byte byte{};
  const MemoryView memory{&byte, 1, {}};
  file.read(0, memory);
  SlotCache cache(device, memory, {.granularity = 1});
  auto slot = cache.acquire(1, 1);
  slot.filled();
  // More than there is, so that it is never ready.
  const PinnedArena arena(device, {.bytes = 2 * device.capabilities().memory_bytes});

  EXPECT_TRUE(refused_in_a_child([] { Device::best(); }));
  EXPECT_TRUE(refused_in_a_child([&] { stream.synchronize(); }));
  EXPECT_TRUE(refused_in_a_child([&] { stream.call([] {}); }));
  EXPECT_TRUE(refused_in_a_child([&] { stream.wait(event); }));
  EXPECT_TRUE(refused_in_a_child([&] { event.synchronize(); }));
  EXPECT_TRUE(refused_in_a_child([&] { copy(memory, memory, stream); }));
  EXPECT_TRUE(refused_in_a_child([&] { pipeline.run({.items = 1}); }));
  EXPECT_TRUE(refused_in_a_child([&] { session.push(1); }));
  EXPECT_TRUE(refused_in_a_child([&] { session.drain(); }));
  EXPECT_TRUE(refused_in_a_child([&] { file.read(0, memory); }));
  EXPECT_TRUE(refused_in_a_child([&] { (void)cache.acquire(1, 1); }));
  EXPECT_TRUE(refused_in_a_child([&] { (void)cache.acquire_cached(1); }));
  EXPECT_TRUE(refused_in_a_child([&] { slot.join(stream); }));
  EXPECT_TRUE(refused_in_a_child([&] { slot.wait(); }));
  EXPECT_TRUE(refused_in_a_child([&] { arena.wait(1); }));
  EXPECT_TRUE(refused_in_a_child([&] { PinnedArena(device, {.bytes = 1}); }));

  // The parent goes on, its file too: a child that drops the handle must leave the queues alone.
  file.read(0, memory);
  EXPECT_EQ(pipeline.run({.items = 1}).items, 1U);
  session.push(1).wait();
}

TEST(Fork, AChildThatDropsASessionDoesNotWaitForItsThreads) {
  auto session = std::make_unique<Session>(SessionOptions{.device = Device::cpu()});
  session->host_stage("work", {}, [](Item&) {});
  session->push(1).wait();
  const pid_t child = fork();
  if (child == 0) {
    alarm(10);
    session.reset();
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  session->push(2).wait();
}

TEST(Fork, AChildMayDropACacheAndAnArena) {
  const Stream stream(Device::cpu());
  std::byte byte{};
  auto cache = std::make_unique<SlotCache>(Device::cpu(), MemoryView{&byte, 1, {}},
                                           SlotCacheOptions{.granularity = 1});
  {
    auto slot = cache->acquire(1, 1);
    slot.filled();
    stream.call([] {});
    slot.release_after(stream);
  }
  auto arena = std::make_unique<PinnedArena>(Device::cpu(), PinnedArenaOptions{.bytes = 1});
  arena->wait(1);
  const pid_t child = fork();
  if (child == 0) {
    alarm(10);
    cache.reset();
    arena.reset();
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
}

TEST(Fork, AChildThatDropsAFileLeavesTheParentsQueuesAlone) {
  Device::cpu();
  auto file = std::make_unique<File>(std::filesystem::read_symlink("/proc/self/exe"));
  const pid_t child = fork();
  if (child == 0) {
    alarm(10);
    file.reset();
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  std::byte byte{};
  for (int i = 0; i < 64; ++i) file->read(0, {&byte, 1, {}});
}

}  // namespace
}  // namespace ps
