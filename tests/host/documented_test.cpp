// The C++ examples of docs/runtime.md, word for word: a project check compares them with the page.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <string>
#include <vector>

#include "penstock/base/units.h"
#include "penstock/host/buffer.h"
#include "penstock/host/pool.h"
#include "penstock/host/session.h"
#include "penstock/host/slot_cache.h"
#include "penstock/host/slot_ring.h"
#include "penstock/host/storage.h"
#include "support/temporary_directory.h"

namespace ps::test {
namespace {

class DocumentedRuntime : public testing::Test {
 protected:
  // `bytes` numbers that count up from `first`.
  static std::string numbers(std::size_t bytes, int first = 0) {
    std::string text(bytes, 0);
    std::iota(text.begin(), text.end(), static_cast<char>(first));
    return text;
  }
  static std::string text_of(ps::MemoryView view) {
    return {reinterpret_cast<const char*>(view.data), view.bytes};
  }

  const Device device = Device::cpu();
  const Stream stream{device};
  const TemporaryDirectory folder_;
};

TEST_F(DocumentedRuntime, Session) {
  const auto path = folder_.write("data", std::string(4096, 'x') + numbers(100));
  const ps::File file(path);
  const PinnedBuffer host_memory(device, 100), device_memory(device, 100), result(device, 100);
  const MemoryView host = host_memory.view(), memory = device_memory.view();
  // clang-format off
struct Load {
  std::uint64_t offset;
  ps::MemoryView host, device;
};

ps::Session session({.device = device});
const auto read = session.async_stage("read", {}, [&](ps::Item& item, const ps::Completion& done) {
  const Load& load = item.payload<Load>();
  file.read(load.offset, load.host, done);
});
session.stage("upload", {.after = {read}}, [&](ps::Item& item) {
  const Load& load = item.payload<Load>();
  ps::copy(load.device, load.host, item.stream());
});

const ps::Ticket ticket = session.push(Load{.offset = 4096, .host = host, .device = memory});
ticket.join(stream);  // work that is enqueued on `stream` from here on finds the data
  // clang-format on
  copy(result.view(), memory, stream);
  stream.synchronize();
  EXPECT_EQ(text_of(result.view()), numbers(100));
}

TEST_F(DocumentedRuntime, SlotRing) {
  const int batches = 5;
  const std::size_t batch_bytes = 64;
  const PinnedBuffer results(device, batches * batch_bytes);
  const MemoryView result = results.view();
  const auto fill_batch = [](int batch, MemoryView slot) {
    std::memset(slot.data, 'a' + batch, slot.bytes);
  };
  // clang-format off
ps::SlotRing ring(device, {.slots = 2, .slot_bytes = batch_bytes});
for (int batch = 0; batch < batches; ++batch) {
  ps::SlotRing::Slot slot = ring.acquire();  // waits while all slots are in use
  fill_batch(batch, slot.view());
  ps::copy(result.sub(batch * batch_bytes, batch_bytes), slot.view(), stream);
  slot.release_after(stream);  // free again once the copy has completed
}
  // clang-format on
  stream.synchronize();
  std::string wanted;
  for (int batch = 0; batch < batches; ++batch) {
    wanted += std::string(batch_bytes, static_cast<char>('a' + batch));
  }
  EXPECT_EQ(text_of(result), wanted);
}

TEST_F(DocumentedRuntime, SlotCache) {
  const std::size_t block_bytes = 256;
  const PinnedBuffer blocks(device, 8 * block_bytes), slots(device, 3 * block_bytes);
  const PinnedBuffer read(device, block_bytes);
  const MemoryView memory = slots.view(), result = read.view();
  const Stream copies(device);
  const auto block = [&](CacheKey key) {
    return blocks.view().sub(key * block_bytes, block_bytes);
  };
  for (int key = 0; key < 8; ++key) {
    std::memset(block(static_cast<CacheKey>(key)).data, 'a' + key, block_bytes);
  }
  // clang-format off
ps::SlotCache cache(device, memory, {.granularity = block_bytes});  // all slots have this size
const auto use = [&](ps::CacheKey key) {
  ps::SlotCache::Slot slot = cache.acquire(key, block_bytes);
  if (!slot.hit()) {
    ps::copy(slot.view(), block(key), copies);
    slot.filled(copies);  // once the copy has completed
  }
  slot.join(stream);  // work on `stream` waits for the contents
  ps::copy(result, slot.view(), stream);
  slot.release_after(stream);  // may be evicted once this work has completed
};
  // clang-format on
  for (const CacheKey key : {0, 1, 0, 2, 3, 0, 7}) {
    use(key);
    stream.synchronize();
    EXPECT_EQ(text_of(result), std::string(block_bytes, static_cast<char>('a' + key)));
  }
  EXPECT_EQ(cache.statistics().hits, 2u);
  EXPECT_EQ(cache.statistics().misses, 5u);
}

class DocumentedFileQueue : public DocumentedRuntime {
 protected:
  DocumentedFileQueue() { std::filesystem::current_path(folder_.path()); }
  ~DocumentedFileQueue() override { std::filesystem::current_path(before_); }

 private:
  std::filesystem::path before_ = std::filesystem::current_path();
};

TEST_F(DocumentedFileQueue, ReadsTwoFilesAtOnce) {
  folder_.write("model-1.bin", numbers(50));
  folder_.write("model-2.bin", std::string(4096, 'x') + numbers(60, 1));
  const PinnedBuffer up_memory(device, 50), down_memory(device, 60);
  const MemoryView up = up_memory.view(), down = down_memory.view();
  // clang-format off
const ps::FileQueue queue({.in_flight = 32});
const ps::File first(queue, "model-1.bin"), second(queue, "model-2.bin");
const std::array reads{ps::FileRead{first, 0, up}, ps::FileRead{second, 4096, down}};
queue.read(reads, {.priority = ps::ReadPriority::urgent});  // blocks until both are complete
  // clang-format on
  EXPECT_EQ(text_of(up), numbers(50));
  EXPECT_EQ(text_of(down), numbers(60, 1));
}

TEST_F(DocumentedRuntime, StreamsAndEvents) {
  const PinnedBuffer source(device, 100), between(device, 100), target(device, 100);
  const MemoryView here = source.view(), there = between.view(), result = target.view();
  std::memset(here.data, 'x', here.bytes);
  std::atomic<bool> finished = false;
  // clang-format off
const ps::Stream uploads(device), compute(device);
const ps::Event arrived(device);
ps::copy(there, here, uploads);
uploads.record(arrived);
compute.wait(arrived);  // on the device; the thread does not wait
ps::copy(result, there, compute);
compute.call([&] { finished = true; });  // a host function; later work of the stream waits for it
compute.synchronize();
  // clang-format on
  EXPECT_TRUE(finished);
  EXPECT_EQ(text_of(result), std::string(100, 'x'));
}

TEST_F(DocumentedRuntime, Pool) {
  const std::size_t bytes = 1000;
  const PinnedBuffer target(device, bytes);
  const MemoryView result = target.view();
  // clang-format off
const ps::Pool pool(device, {.limit = 64 * ps::MiB});
const ps::MemoryView scratch = pool.allocate(bytes, stream);
ps::fill(scratch, 7, stream);
ps::copy(result, scratch, stream);
pool.free(scratch, stream);
  // clang-format on
  stream.synchronize();
  EXPECT_EQ(text_of(result), std::string(bytes, 7));
}

}  // namespace
}  // namespace ps::test
