// Packed experts on a disk: the file, the cache, and StreamedExperts on the CPU device with them.
#include "penstock/outofcore/disk_expert_store.h"

#include <gtest/gtest.h>
#include <malloc.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <deque>
#include <filesystem>
#include <fstream>
#include <future>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "host/storage/transfer.h"
#include "penstock/base/error.h"
#include "penstock/outofcore/experts.h"
#include "penstock/weights/writer.h"
#include "support/expert_arrays.h"
#include "support/expert_steps.h"
#include "support/failing_reads.h"
#include "support/failure_of.h"
#include "support/full_disk.h"
#include "support/temporary_directory.h"
#include "support/watchdog.h"

namespace ps::test {
namespace {

constexpr ExpertShape tiny{.layers = 2, .experts = 3, .hidden = 16, .width = 8, .down_bias = true};

std::int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

class ExpertFileTest : public testing::Test {
 protected:
  ExpertFileTest() { fill_store(store); }

  // The argument and what was expected, if the file is refused.
  std::string refusal() const {
    try {
      expert_file_info(path);
    } catch (const InvalidArgument& error) {
      EXPECT_NE(error.argument().find(path.string()), std::string::npos) << error.what();
      return error.what();
    }
    return "";
  }
  void change(std::streamoff at) const {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(at);
    const auto byte = static_cast<char>(file.get() ^ 1);
    file.seekp(at);
    file.put(byte);
  }

  TemporaryDirectory directory;
  const std::filesystem::path path = directory.path() / "experts";
  const ExpertStore store{Device::cpu(), tiny};
};

TEST_F(ExpertFileTest, SaysWhereAndWhenItWasPacked) {
  const std::int64_t before = now_ns();
  const ExpertFileInfo packed = pack(store, path), read = expert_file_info(path);
  for (const ExpertFileInfo& info : {packed, read}) {
    EXPECT_EQ(info.path, path.string());
    EXPECT_EQ(info.shape.layers, tiny.layers);
    EXPECT_EQ(info.shape.experts, tiny.experts);
    EXPECT_EQ(info.shape.hidden, tiny.hidden);
    EXPECT_EQ(info.shape.width, tiny.width);
    EXPECT_EQ(info.shape.dtype, tiny.dtype);
    EXPECT_EQ(info.shape.layout, tiny.layout);
    EXPECT_FALSE(info.shape.transposed);
    EXPECT_FALSE(info.shape.gate_up_bias);
    EXPECT_TRUE(info.shape.down_bias);
    EXPECT_EQ(info.bytes, 4096 + store.bytes());
    EXPECT_EQ(info.bytes, std::filesystem::file_size(path));
    EXPECT_GE(info.created_ns, before);
    EXPECT_LE(info.created_ns, now_ns());
    EXPECT_GT(info.pack_seconds, 0);
    EXPECT_LT(info.pack_seconds, 100);
  }
}

TEST_F(ExpertFileTest, OtherFilesAreRefused) {
  EXPECT_THROW(expert_file_info(path), SystemError);
  directory.write("experts", "");
  EXPECT_NE(refusal().find("0 bytes"), std::string::npos);
  directory.write("experts", std::string(5000, 'x'));
  EXPECT_NE(refusal().find("other bytes"), std::string::npos);
  pack(store, path);
  const auto bytes = std::filesystem::file_size(path);
  EXPECT_EQ(refusal(), "");
  for (const std::int64_t more : {-1, 1, -600}) {
    std::filesystem::resize_file(
        path, static_cast<std::uintmax_t>(static_cast<std::int64_t>(bytes) + more));
    EXPECT_NE(refusal().find(std::to_string(bytes)), std::string::npos);
  }
  std::filesystem::resize_file(path, bytes);
  for (int at = 0; at < 88; ++at) {
    change(at);
    EXPECT_NE(refusal(), "") << "byte " << at;
    change(at);
  }
  EXPECT_EQ(refusal(), "");
}

// With the right checksum, and numbers that cannot be.
TEST_F(ExpertFileTest, AHeaderThatLiesIsRefused) {
  pack(store, path);
  const std::string bytes = read_text(path);
  const auto with = [&](std::size_t at, const auto& value) {
    std::string changed = bytes;
    std::memcpy(changed.data() + at, &value, sizeof value);
    std::uint64_t sum = 0xcbf29ce484222325;
    for (std::size_t i = 0; i < 80; ++i) {
      sum = (sum ^ static_cast<unsigned char>(changed[i])) * 0x100000001b3;
    }
    std::memcpy(changed.data() + 80, &sum, sizeof sum);
    directory.write("experts", changed);
    return refusal();
  };
  EXPECT_EQ(with(8, tiny.layers), "") << "the checksum is the file's";
  EXPECT_NE(with(8, std::int64_t{-1}).find("layers"), std::string::npos);
  EXPECT_NE(with(8, std::int64_t{1} << 40).find("layers"), std::string::npos);
  EXPECT_NE(with(16, std::int64_t{1025}).find("experts"), std::string::npos);
  EXPECT_NE(with(24, std::int64_t{17}).find("hidden"), std::string::npos);
  EXPECT_NE(with(32, std::int64_t{0}).find("width"), std::string::npos);
  EXPECT_NE(with(40, std::uint8_t{200}).find("dtype"), std::string::npos);
  EXPECT_NE(with(41, std::uint8_t{9}).find("layout"), std::string::npos);
  EXPECT_NE(with(8, std::int64_t{1}).find("bytes"), std::string::npos) << "fewer than there are";
  EXPECT_NE(with(48, std::uint64_t{1}).find("blocks of"), std::string::npos);
  EXPECT_NE(with(56, ~std::uint64_t{0}).find("blocks of"), std::string::npos);
}

TEST_F(ExpertFileTest, AFileThatFailsDoesNotAppear) {
  const auto files = [&] {
    return std::distance(std::filesystem::directory_iterator(directory.path()), {});
  };
  int filled = 0;
  const auto fail = [&](auto, auto, const auto&) {
    if (++filled == 4) throw std::runtime_error("no more");
  };
  EXPECT_THROW(pack_experts(path, tiny, fail), std::runtime_error);
  EXPECT_EQ(filled, 4);
  EXPECT_EQ(files(), 0);

  std::stop_source stop;
  std::uint64_t told = 0;
  EXPECT_THROW(pack_experts(path, tiny, [](auto, auto, const auto&) {},
                            {.stop = stop.get_token(),
                             .progress =
                                 [&](std::uint64_t done, std::uint64_t total) {
                                   told = done;
                                   EXPECT_EQ(total, store.bytes());
                                   if (done > total / 2) stop.request_stop();
                                 }}),
               Cancelled);
  EXPECT_EQ(told, 4 * store.block_bytes());
  EXPECT_EQ(files(), 0);

  directory.write("experts", "an older file");
  {
    const FileSizeLimit limit(4096 + 1000);
    EXPECT_THROW(pack(store, path), SystemError);
  }
  EXPECT_EQ(files(), 1);
  EXPECT_EQ(read_text(path), "an older file");
  EXPECT_EQ(named([&] { pack_experts(path, tiny, FillExpert()); }), "fill");
  EXPECT_EQ(named([&] { pack_experts(path, {}, [](auto, auto, const auto&) {}); }), "layers");
}

// A checkpoint of random numbers whose experts are stacked or not, and what packing makes of it.
TEST(PackExperts, FromACheckpoint) {
  for (std::uint32_t seed = 1; seed <= 12; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937 random(seed);
    const bool stacked = seed % 2 == 0, separate = seed % 3 == 0;
    const ExpertShape shape{.layers = 2,
                            .experts = 1 + static_cast<std::int64_t>(random() % 4),
                            .hidden = 16,
                            .width = 8 + 8 * static_cast<std::int64_t>(random() % 2),
                            .dtype = seed % 4 == 1 ? DType::f32 : DType::bf16,
                            .transposed = !separate && seed % 4 == 2,
                            .gate_up_bias = seed % 5 == 0,
                            .down_bias = seed % 5 < 2};
    const std::string expert = stacked ? "" : "{expert}.";
    ExpertNames names{.down = "m.{layer}." + expert + "down", .first_layer = 3};
    if (separate) {
      names.gate = "m.{layer}." + expert + "gate";
      names.up = "m.{layer}." + expert + "up";
    } else {
      names.gate_up = "m.{layer}." + expert + "gate_up";
    }
    if (shape.gate_up_bias) names.gate_up_bias = "m.{layer}." + expert + "gate_up_bias";
    if (shape.down_bias) names.down_bias = "m.{layer}." + expert + "down_bias";

    const ExpertStore store(Device::cpu(), shape);
    for (std::int64_t layer = 0; layer < 2; ++layer) {
      for (std::int64_t e = 0; e < shape.experts; ++e) {
        const MemoryView block = store.block(layer, e);
        std::memset(block.data, 0, block.bytes);  // between the parts
      }
    }
    randomise(store, random);
    // What a checkpoint has for one pattern, all layers.
    struct Tensor {
      WeightSpec spec;
      std::vector<MemoryView> from;
    };
    std::vector<Tensor> tensors;
    const auto add = [&](const std::string& pattern, std::vector<std::int64_t> each,
                         const auto& data) {
      if (pattern.empty()) return;
      std::size_t bytes = size_of(shape.dtype);
      for (const std::int64_t extent : each) bytes *= static_cast<std::size_t>(extent);
      for (std::int64_t layer = 0; layer < 2; ++layer) {
        for (std::int64_t e = 0; e < shape.experts; ++e) {
          std::string name = pattern;
          name.replace(name.find("{layer}"), 7, std::to_string(layer + 3));
          if (!stacked) name.replace(name.find("{expert}"), 8, std::to_string(e));
          if (!stacked || e == 0) {
            tensors.push_back({{name, weight_type_of(shape.dtype), each}, {}});
            auto& dimensions = tensors.back().spec.shape;
            if (stacked) dimensions.insert(dimensions.begin(), shape.experts);
          }
          tensors.back().from.push_back({data(layer, e), bytes, {}});
        }
      }
    };
    const auto at = [](const TensorView& view) { return static_cast<std::byte*>(view.data()); };
    const std::int64_t d = shape.hidden, n = shape.width;
    const auto matrix = [&](std::int64_t rows, std::int64_t columns) {
      return shape.transposed ? std::vector{columns, rows} : std::vector{rows, columns};
    };
    add(names.gate_up, matrix(2 * n, d), [&](auto l, auto e) { return at(store.gate_up(l, e)); });
    add(names.gate, {n, d}, [&](auto l, auto e) { return at(store.gate_up(l, e)); });
    add(names.up, {n, d}, [&](auto l, auto e) {
      return at(store.gate_up(l, e)) + static_cast<std::size_t>(n * d) * size_of(shape.dtype);
    });
    add(names.down, matrix(d, n), [&](auto l, auto e) { return at(store.down(l, e)); });
    add(names.gate_up_bias, {2 * n}, [&](auto l, auto e) { return at(store.gate_up_bias(l, e)); });
    add(names.down_bias, {d}, [&](auto l, auto e) { return at(store.down_bias(l, e)); });

    const TemporaryDirectory directory;
    std::vector<WeightSpec> specs;
    for (const Tensor& each : tensors) specs.push_back(each.spec);
    WeightsWriter writer(directory.path() / "model.safetensors", specs);
    for (const Tensor& each : tensors) {
      for (const MemoryView& from : each.from) writer.write(each.spec.name, from);
    }
    writer.finish();
    const Weights weights(directory.path());
    const auto path = directory.path() / "experts";
    pack_experts(path, shape, weights, names);
    const std::string bytes = read_text(path);
    ASSERT_EQ(bytes.size(), 4096 + store.bytes());
    EXPECT_EQ(std::memcmp(bytes.data() + 4096, store.block(0, 0).data, store.bytes()), 0);

    const auto refused = [&](const auto& change_names, const auto& change_shape) {
      ExpertNames other_names = names;
      ExpertShape other_shape = shape;
      change_names(other_names);
      change_shape(other_shape);
      return named([&] { pack_experts(path, other_shape, weights, other_names); });
    };
    const auto same = [](auto&) {};
    EXPECT_EQ(refused([](auto& x) { x.down = ""; }, same), "names.down");
    EXPECT_EQ(refused([](auto& x) { x.gate_up = x.gate = ""; }, same), "names.gate_up");
    EXPECT_EQ(refused([](auto& x) { x.gate_up = x.gate = "a"; }, same), "names.gate");
    EXPECT_EQ(refused([](auto& x) { x.first_layer = 4; }, same), "name");
    EXPECT_NE(refused(same, [](auto& x) { x.hidden = 24; }).find("tensor"), std::string::npos);
    EXPECT_NE(refused(same, [](auto& x) { x.dtype = DType::f16; }).find("tensor"),
              std::string::npos);
    EXPECT_EQ(refused(same, [](auto& x) { x.down_bias = !x.down_bias; }), "names.down_bias");
    EXPECT_EQ(read_text(path), bytes) << "the file is still there";
  }
}

class DiskExpertStoreTest : public ExpertFileTest {
 protected:
  DiskExpertStoreTest() { pack(store, path); }
  std::size_t block() const { return store.block_bytes(); }

  static void wait(const DiskExpertStore::Block& each) {
    while (!each.ready()) std::this_thread::yield();
  }
};

TEST_F(DiskExpertStoreTest, KeepsToItsBudget) {
  for (const auto& [bytes, slots] : {std::pair{2 * block(), 2U},
                                     {3 * block() - 1, 2U},
                                     {5 * block(), 5U},
                                     {1000 * block(), 6U}}) {
    const DiskExpertStore disk(Device::cpu(), path, {.host_bytes = bytes});
    EXPECT_EQ(disk.slots(), slots);
    EXPECT_EQ(disk.host_bytes(), slots * block());
    EXPECT_LE(disk.host_bytes(), bytes);
    EXPECT_EQ(disk.memory().bytes, disk.host_bytes());
  }
  EXPECT_EQ(named([&] { DiskExpertStore(Device::cpu(), path, {.host_bytes = 2 * block() - 1}); }),
            "host_bytes");
  EXPECT_EQ(named([&] {
              DiskExpertStore(Device::cpu(), path, {.host_bytes = GiB, .queue = {.in_flight = 0}});
            }),
            "in_flight");
  EXPECT_THROW(DiskExpertStore(Device::cpu(), path.string() + "x", {.host_bytes = GiB}),
               SystemError);
}

TEST_F(DiskExpertStoreTest, ReadsWhatIsNotThere) {
  const DiskExpertStore disk(Device::cpu(), path,
                             {.host_bytes = 2 * block(), .policy = lru_policy()});
  std::mt19937 random(1);
  for (int i = 0; i < 200; ++i) {
    const auto layer = static_cast<std::int64_t>(random() % 2);
    const auto expert = static_cast<std::int64_t>(random() % 3);
    const bool there = disk.cached(layer, expert);
    const auto found = disk.try_block(layer, expert);
    ASSERT_TRUE(found);
    EXPECT_EQ(found->hit(), there);
    wait(*found);
    EXPECT_EQ(found->view().data, disk.memory().data + found->slot() * block());
    EXPECT_EQ(std::memcmp(found->view().data, store.block(layer, expert).data, block()), 0);
  }
  const SlotCacheStatistics counts = disk.statistics();
  EXPECT_EQ(counts.hits + counts.misses, 200U);
  EXPECT_EQ(counts.missed_bytes, counts.misses * block());
  EXPECT_EQ(named([&] { (void)disk.try_block(2, 0); }), "layer");
  EXPECT_EQ(named([&] { (void)disk.try_block(0, -1); }), "expert");
  EXPECT_EQ(named([&] { (void)disk.cached(0, 3); }), "expert");
}

TEST_F(DiskExpertStoreTest, SlotsInUseStay) {
  const DiskExpertStore disk(Device::cpu(), path, {.host_bytes = 2 * block()});
  auto first = disk.try_block(0, 0), second = disk.try_block(1, 2);
  ASSERT_TRUE(first && second);
  EXPECT_FALSE(disk.try_block(0, 1));
  wait(*first);
  EXPECT_FALSE(disk.try_block(0, 1)) << "a handle holds it";
  first.reset();
  const auto third = disk.try_block(0, 1);
  ASSERT_TRUE(third);
  wait(*third);
  wait(*second);
  EXPECT_EQ(std::memcmp(second->view().data, store.block(1, 2).data, block()), 0);
}

TEST_F(DiskExpertStoreTest, AChangedFileIsNoticed) {
  const DiskExpertStore disk(Device::cpu(), path, {.host_bytes = 2 * block()});
  const auto time = std::filesystem::last_write_time(path);
  for (int round = 0; round < 10; ++round) {
    std::filesystem::last_write_time(path, time + std::chrono::seconds(1));
    auto bad = disk.try_block(0, 1);
    ASSERT_TRUE(bad);
    try {
      wait(*bad);
      ADD_FAILURE() << "the change was not noticed";
    } catch (const SystemError& error) {
      EXPECT_NE(std::string(error.what()).find("modified"), std::string::npos) << error.what();
    }
    EXPECT_THROW((void)bad->ready(), SystemError) << "every time";
    bad.reset();
    std::filesystem::last_write_time(path, time);
    auto good = disk.try_block(0, 1);
    ASSERT_TRUE(good) << "the slot is not lost";
    wait(*good);
    EXPECT_EQ(std::memcmp(good->view().data, store.block(0, 1).data, block()), 0);
    EXPECT_EQ(disk.statistics().failed_fills, static_cast<std::uint64_t>(round) + 1);
    good.reset();
    const auto first = disk.try_block(1, 0), second = disk.try_block(1, 1);  // evict it
    ASSERT_TRUE(first && second);
    wait(*first);
    wait(*second);
  }
}

TEST_F(DiskExpertStoreTest, ABadBlockIsNamedAndNoSlotIsLost) {
  const DiskExpertStore disk(Device::cpu(), path, {.host_bytes = 2 * block()});
  const std::uint64_t at = 4096 + block();  // where expert 1 of layer 0 begins
  {
    const FailingReads failing(path.string(), at);
    for (int round = 1; round <= 3; ++round) {
      const auto bad = disk.try_block(0, 1), good = disk.try_block(1, 1);
      ASSERT_TRUE(bad && good) << "round " << round;
      const auto failure = failure_of([&] { wait(*bad); });
      EXPECT_TRUE(is<SystemError>(failure)) << text(failure);
      EXPECT_NE(text(failure).find(path.string() + " at byte " + std::to_string(at)),
                std::string::npos)
          << text(failure);
      wait(*good);
      EXPECT_EQ(failing.failures(), round) << "every call reads again";
      EXPECT_EQ(disk.statistics().failed_fills, static_cast<std::uint64_t>(round));
    }
  }
  const auto good = disk.try_block(0, 1);
  ASSERT_TRUE(good);
  wait(*good);
  EXPECT_EQ(std::memcmp(good->view().data, store.block(0, 1).data, block()), 0);
}

TEST_F(DiskExpertStoreTest, GoesWhileReadsAreInFlight) {
  for (int round = 0; round < 50; ++round) {
    const DiskExpertStore disk(
        Device::cpu(), path,
        {.host_bytes = 6 * block(), .queue = {.engine = FileEngine::threads, .in_flight = 1}});
    for (int e = 0; e < 3; ++e) (void)disk.try_block(round % 2, e, ReadPriority::background);
  }
}

// Random weights in memory, and the same in a file.
struct Model {
  Model(const ExpertShape& shape, std::mt19937& random) : store(Device::cpu(), shape) {
    randomise(store, random);
    pack(store, path);
  }

  ExpertStore store;
  TemporaryDirectory directory;
  std::filesystem::path path = directory.path() / "experts";
};

// On the CPU device, from the slots of the cache.
TEST(DiskExperts, GiveTheBitsOfMoe) {
  for (std::uint32_t seed = 1; seed <= 25; ++seed) {
    const Watchdog watchdog("seed " + std::to_string(seed));
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937 random(seed);
    const ExpertShape shape = random_shape(seed, random);
    const Model model(shape, random);
    const DiskExpertStore disk(Device::cpu(), model.path,
                               {.host_bytes = (2 + random() % 8) * model.store.block_bytes()});
    StreamedExperts experts(
        {.disk = &disk,
         .device = Device::cpu(),
         .prefetch = seed % 2 == 0 ? ExpertPrefetch::previous : ExpertPrefetch::none,
         .calls_in_flight = 1 + random() % 3,
         .records = 100});
    const Stream stream(Device::cpu());
    for (int call = 0; call < 8; ++call) {
      const std::int64_t layer = call % shape.layers;
      Arrays arrays = random_arrays(model.store, call, random);
      const auto wanted = arrays.wanted(stream);
      const std::vector<std::int32_t> guess{0};
      if (call % 3 == 0) experts.prefetch((layer + 1) % shape.layers, guess);
      if (call % 3 == 1) experts.prefetch(layer, arrays.call().ids, stream);
      experts.forward(layer, arrays.call(), stream);
      stream.synchronize();
      experts.synchronize();
      EXPECT_EQ(arrays.take_out(), wanted) << "call " << call;
    }
    const ExpertStatistics counts = experts.statistics();
    EXPECT_EQ(counts.failed_calls, 0U);
    EXPECT_EQ(counts.needed, counts.hits + counts.late + counts.misses);
    EXPECT_EQ(counts.bytes, (counts.misses + counts.prefetched) * model.store.block_bytes());
    for (const ExpertCallRecord& record : experts.records()) {
      EXPECT_LE(record.enqueued_ns, record.routed_ns);
      EXPECT_LE(record.routed_ns, record.answered_ns);
      EXPECT_EQ(record.needed, record.hits + record.late + record.misses);
    }
    EXPECT_EQ(experts.slots(), 0U);
    EXPECT_EQ(experts.device_bytes(), 0U);
  }
}

TEST(DiskExperts, AreSharedByThreadsAndObjects) {
  const Watchdog watchdog("AreSharedByThreadsAndObjects");
  constexpr ExpertShape shape{.layers = 3, .experts = 8, .hidden = 16, .width = 8};
  std::mt19937 numbers(1);
  const Model model(shape, numbers);
  const DiskExpertStore disk(Device::cpu(), model.path,
                             {.host_bytes = 3 * model.store.block_bytes()});
  StreamedExperts in_place({.disk = &disk, .device = Device::cpu()});
  StreamedExperts copied(
      {.disk = &disk, .device = Device::cpu(), .device_bytes = bytes_for(shape, 5)},
      {.copy_on_cpu = true});
  std::vector<std::thread> threads;
  for (unsigned number = 0; number < 4; ++number) {
    StreamedExperts& mine = number % 2 == 0 ? in_place : copied;
    threads.emplace_back([&, number] { expect_the_bits_of_moe(mine, model.store, 25, number); });
  }
  for (std::thread& thread : threads) thread.join();
  in_place.synchronize();
  copied.synchronize();
  EXPECT_EQ(in_place.statistics().calls + copied.statistics().calls, 100U);
}

TEST(DiskExperts, ClosingEndsCallsThatAreInFlight) {
  const Watchdog watchdog("ClosingEndsCallsThatAreInFlight");
  constexpr ExpertShape shape{.layers = 2, .experts = 8, .hidden = 16, .width = 8};
  std::mt19937 random(1);
  const Model model(shape, random);
  for (int round = 0; round < 10; ++round) {
    const DiskExpertStore disk(Device::cpu(), model.path,
                               {.host_bytes = 2 * model.store.block_bytes()});
    const Stream stream(Device::cpu());
    Arrays arrays(model.store, 0, 30, 2, 0, random);
    StreamedExperts experts({.disk = &disk, .device = Device::cpu()});
    for (int call = 0; call < 5; ++call) experts.forward(0, arrays.call(), stream);
    if (round % 2 == 0) experts.close();
    EXPECT_EQ(round % 2 == 0, named([&] {
                                try {
                                  experts.forward(0, arrays.call(), stream);
                                } catch (const ExpertsClosed&) {
                                  throw InvalidArgument("closed", "", "");
                                }
                              }) == "closed");
    stream.synchronize();
    const std::vector<std::int32_t> likely{1};
    if (round % 2 == 0) {
      EXPECT_THROW(experts.prefetch(0, likely), ExpertsClosed);
    }
  }
}

// Counts plans, and can refuse to add up results.
class CountedSteps final : public detail::ExpertSteps {
 public:
  void plan(const MoeOptions& options, const Stream& stream) override {
    ++plans;
    ExpertSteps::plan(options, stream);
  }
  void combine(const MoeOptions& options, const Stream& stream) override {
    if (refuses) throw OutOfMemory("host memory", 1, "refused");
    ExpertSteps::combine(options, stream);
  }

  std::atomic<int> plans{0};
  bool refuses = false;
};

// Its caller frees the arrays when it learns that the experts are closed.
TEST(DiskExperts, ACallThatWaitsForOthersHasEnqueuedNothing) {
  const Watchdog watchdog("ACallThatWaitsForOthersHasEnqueuedNothing");
  constexpr ExpertShape shape{.layers = 1, .experts = 4, .hidden = 16, .width = 8};
  std::mt19937 random(1);
  const Model model(shape, random);
  const DiskExpertStore disk(Device::cpu(), model.path,
                             {.host_bytes = 2 * model.store.block_bytes()});
  const auto steps = std::make_shared<CountedSteps>();
  StreamedExperts experts({.disk = &disk, .device = Device::cpu(), .calls_in_flight = 1},
                          {.steps = steps});
  const Stream stream(Device::cpu());
  Arrays first(model.store, 0, 5, 2, 0, random);
  auto second = std::make_optional<Arrays>(model.store, 0, 5, 2, 0, random);
  std::promise<void> goes_on;
  stream.call([held = goes_on.get_future().share()] { held.wait(); });
  experts.forward(0, first.call(), stream);
  bool closed = false;
  std::thread waiting([&] {
    try {
      experts.forward(0, second->call(), stream);
    } catch (const ExpertsClosed&) {
      closed = true;
      second.reset();
    }
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  std::thread closing([&] { experts.close(); });
  waiting.join();
  EXPECT_TRUE(closed);
  EXPECT_EQ(steps->plans, 1);
  goes_on.set_value();
  closing.join();
  stream.synchronize();
}

TEST(DiskExperts, ACallThatFailsLeavesNothingInFlight) {
  const Watchdog watchdog("ACallThatFailsLeavesNothingInFlight");
  constexpr ExpertShape shape{.layers = 1, .experts = 4, .hidden = 16, .width = 8};
  std::mt19937 random(1);
  const Model model(shape, random);
  const DiskExpertStore disk(Device::cpu(), model.path,
                             {.host_bytes = 2 * model.store.block_bytes()});
  const auto steps = std::make_shared<CountedSteps>();
  StreamedExperts experts({.disk = &disk, .device = Device::cpu()}, {.steps = steps});
  const Stream stream(Device::cpu());
  auto arrays = std::make_optional<Arrays>(model.store, 0, 5, 2, 0, random);
  stream.call([] { std::this_thread::sleep_for(std::chrono::milliseconds(50)); });
  steps->refuses = true;
  EXPECT_THROW(experts.forward(0, arrays->call(), stream), OutOfMemory);
  EXPECT_EQ(experts.statistics().calls, 1U)
      << "its experts are computed while its arrays are there";
  arrays.reset();
  steps->refuses = false;
  expect_the_bits_of_moe(experts, model.store, 3, 1);
}

// A call whose expert cannot be read lacks it, and reports why; the next one is right.
TEST(DiskExperts, ABadBlockEndsTheCallThatNeedsIt) {
  const Watchdog watchdog("ABadBlockEndsTheCallThatNeedsIt");
  constexpr ExpertShape shape{.layers = 2, .experts = 4, .hidden = 16, .width = 8};
  std::mt19937 random(1);
  const Model model(shape, random);
  for (const bool copies : {false, true}) {
    const DiskExpertStore disk(Device::cpu(), model.path,
                               {.host_bytes = 2 * model.store.block_bytes()});
    StreamedExperts experts(
        {.disk = &disk, .device = Device::cpu(), .device_bytes = bytes_for(shape, 2)},
        {.copy_on_cpu = copies});
    const Stream stream(Device::cpu());
    Arrays arrays(model.store, 0, 20, 2, 0, random);
    const auto wanted = arrays.wanted(stream);
    {
      const std::uint64_t at = 4096 + 2 * model.store.block_bytes();
      const FailingReads failing(model.path.string(), at);
      for (int round = 0; round < 3; ++round) {
        experts.forward(0, arrays.call(), stream);
        stream.synchronize();
        const auto failure = failure_of([&] { experts.synchronize(); });
        EXPECT_TRUE(is<SystemError>(failure)) << text(failure);
        EXPECT_NE(text(failure).find("experts at byte " + std::to_string(at)), std::string::npos)
            << text(failure);
        EXPECT_NE(arrays.take_out(), wanted);
      }
    }
    experts.forward(0, arrays.call(), stream);
    experts.synchronize();
    EXPECT_EQ(arrays.take_out(), wanted);
    EXPECT_EQ(experts.statistics().failed_calls, 3U);
    EXPECT_EQ(experts.statistics().calls, 4U);
  }
}

// Holds up the first read of a file, which then fails.
class FirstReadFails {
 public:
  explicit FirstReadFails(const std::filesystem::path& path) {
    path_ = path.string();
    held_ = 0;
    go_on_ = false;
    detail::set_transfer_hook(answer);
  }
  ~FirstReadFails() {
    go_on_ = true;
    detail::set_transfer_hook(nullptr);
  }
  FirstReadFails(const FirstReadFails&) = delete;
  FirstReadFails& operator=(const FirstReadFails&) = delete;
  static void fail() { go_on_ = true; }

 private:
  static std::int64_t answer(const detail::Piece& piece, std::int64_t moved) {
    if (piece.write || piece.file->path != path_ || held_.fetch_add(1) > 0) return moved;
    while (!go_on_) std::this_thread::yield();
    return -EIO;
  }

  static inline std::string path_;
  static inline std::atomic<int> held_{0};
  static inline std::atomic<bool> go_on_{false};
};

// A call that needs an expert while it is being prefetched does not share the failure of this read.
TEST(DiskExperts, APrefetchThatFailsDuringACallIsReadAgain) {
  const Watchdog watchdog("APrefetchThatFailsDuringACallIsReadAgain");
  constexpr ExpertShape shape{.layers = 2, .experts = 4, .hidden = 16, .width = 8};
  std::mt19937 random(1);
  const Model model(shape, random);
  for (const bool copies : {false, true}) {
    const DiskExpertStore disk(Device::cpu(), model.path,
                               {.host_bytes = 4 * model.store.block_bytes()});
    StreamedExperts experts(
        {.disk = &disk, .device = Device::cpu(), .device_bytes = bytes_for(shape, 2)},
        {.copy_on_cpu = copies});
    const Stream stream(Device::cpu());
    Arrays arrays(model.store, 0, 20, 2, 0, random);
    const auto wanted = arrays.wanted(stream);
    const FirstReadFails failing(model.path);
    static_cast<void>(disk.try_block(0, 2, ReadPriority::background));
    std::thread other([&] {
      while (disk.statistics().hits == 0) std::this_thread::yield();
      FirstReadFails::fail();
    });
    experts.forward(0, arrays.call(), stream);
    stream.synchronize();
    other.join();
    experts.synchronize();
    EXPECT_EQ(arrays.take_out(), wanted);
    EXPECT_EQ(disk.statistics().failed_fills, 1U);
    const std::uint64_t needed = experts.statistics().needed;
    experts.forward(0, arrays.call(), stream);
    experts.synchronize();
    EXPECT_EQ(experts.statistics().needed, 2 * needed) << "none was counted twice";
    EXPECT_EQ(experts.statistics().failed_calls, 0U);
  }
}

// A prefetch that fails is no error of the calls that need other experts.
TEST(DiskExperts, APrefetchThatCannotBeReadIsSilent) {
  const Watchdog watchdog("APrefetchThatCannotBeReadIsSilent");
  constexpr ExpertShape shape{.layers = 2, .experts = 4, .hidden = 16, .width = 8};
  std::mt19937 random(1);
  const Model model(shape, random);
  for (const bool copies : {false, true}) {
    const DiskExpertStore disk(Device::cpu(), model.path,
                               {.host_bytes = 8 * model.store.block_bytes()});
    StreamedExperts experts(
        {.disk = &disk, .device = Device::cpu(), .device_bytes = bytes_for(shape, 8)},
        {.copy_on_cpu = copies});
    const Stream stream(Device::cpu());
    Arrays first(model.store, 0, 20, 2, 0, random), second(model.store, 1, 20, 2, 0, random);
    const auto wanted = first.wanted(stream), wanted_of_second = second.wanted(stream);
    const auto expect_right = [&](std::int64_t layer, const Arrays& arrays, const auto& right) {
      experts.forward(layer, arrays.call(), stream);
      stream.synchronize();
      experts.synchronize();
      EXPECT_EQ(arrays.take_out(), right) << (copies ? "copied" : "in place");
    };
    {
      const FailingReads failing(model.path.string(), 4096 + 5 * model.store.block_bytes());
      const std::vector<std::int32_t> likely{1, 2};
      experts.prefetch(1, likely);
      // Expert 2 is behind expert 1: once it is there, the failure has been met.
      while (experts.statistics().prefetched < (copies ? 1 : 2) || failing.failures() == 0 ||
             disk.statistics().failed_fills == 0) {
        std::this_thread::yield();
      }
      expect_right(0, first, wanted);
      EXPECT_EQ(failing.failures(), 1);
    }
    expect_right(1, second, wanted_of_second);
    EXPECT_EQ(experts.statistics().failed_calls, 0U);
    EXPECT_EQ(disk.statistics().failed_fills, 1U);
  }
}

// Thousands of calls take no more memory than hundreds.
TEST(DiskExperts, DecodeStepsTakeNoMemory) {
  const Watchdog watchdog("DecodeStepsTakeNoMemory", std::chrono::seconds(100));
  constexpr ExpertShape shape{.layers = 3, .experts = 12, .hidden = 8, .width = 8};
  std::mt19937 random(1);
  const Model model(shape, random);
  const DiskExpertStore disk(Device::cpu(), model.path,
                             {.host_bytes = 7 * model.store.block_bytes(),
                              .policy = frequency_policy({.remembered = 36})});
  StreamedExperts experts({.disk = &disk, .device = Device::cpu(), .calls_in_flight = 4});
  std::deque<Arrays> arrays;
  for (int i = 0; i < 12; ++i) arrays.emplace_back(model.store, i % 3, 1, 2, 0, random);
  const Stream stream(Device::cpu());
  const auto some = [&](int count) {
    for (int i = 0; i < count; ++i) {
      const auto which = static_cast<std::size_t>(random() % 12);
      experts.forward(static_cast<std::int64_t>(which % 3), arrays[which].call(), stream);
    }
    stream.synchronize();
    experts.synchronize();
  };
  some(300);
  const std::size_t heap = mallinfo2().uordblks;
  some(3000);
  EXPECT_LE(mallinfo2().uordblks, heap + 256 * 1024);
  EXPECT_EQ(experts.statistics().calls, 3300U);
}

TEST(DiskExperts, OptionsAreChecked) {
  const ExpertStore store(Device::cpu(), tiny);
  const TemporaryDirectory directory;
  pack(store, directory.path() / "experts");
  const DiskExpertStore disk(Device::cpu(), directory.path() / "experts", {.host_bytes = GiB});
  EXPECT_EQ(
      named([&] { StreamedExperts({.store = &store, .disk = &disk, .device = Device::cpu()}); }),
      "disk");
  EXPECT_EQ(named([&] { StreamedExperts({.device = Device::cpu()}); }), "store");
}

}  // namespace
}  // namespace ps::test
