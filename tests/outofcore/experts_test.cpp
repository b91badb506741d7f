// StreamedExperts on the CPU, with the steps of moe(): results, policies, errors. Experts are used
// in place, or copied to slots as on a GPU.
#include "penstock/outofcore/experts.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <initializer_list>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "outofcore/expert_groups.h"
#include "outofcore/expert_steps.h"
#include "penstock/base/error.h"
#include "penstock/host/buffer.h"
#include "support/watchdog.h"

namespace ps::test {
namespace {

// Normal numbers of a type.
void randomise(const TensorView& view, std::mt19937& random) {
  std::normal_distribution<float> normal(0, 0.25F);
  const MemoryView memory = {static_cast<std::byte*>(view.data()), view.bytes(), view.place()};
  for (std::int64_t i = 0; i < view.elements(); ++i) {
    const float value = normal(random);
    std::uint32_t bits = 0;
    std::memcpy(&bits, &value, 4);
    if (view.dtype() == DType::f32) {
      memory.as<std::uint32_t>()[i] = bits;
    } else if (view.dtype() == DType::bf16) {
      memory.as<std::uint16_t>()[i] = static_cast<std::uint16_t>(bits >> 16);
    } else {  // f16 of the same order of magnitude
      memory.as<std::uint16_t>()[i] =
          static_cast<std::uint16_t>((bits >> 16 & 0x8000) | 0x2C00 | (bits >> 13 & 0x3FF));
    }
  }
}

void randomise(const ExpertStore& store, std::mt19937& random) {
  for (std::int64_t layer = 0; layer < store.shape().layers; ++layer) {
    for (std::int64_t e = 0; e < store.shape().experts; ++e) {
      randomise(store.gate_up(layer, e), random);
      randomise(store.down(layer, e), random);
      randomise(store.gate_up_bias(layer, e), random);
      randomise(store.down_bias(layer, e), random);
    }
  }
}

// The arrays of a call but for the weights, and a copy of the weights as moe() takes them.
class Arrays {
 public:
  Arrays(const ExpertStore& store, std::int64_t layer, std::int64_t tokens, std::int64_t choices,
         std::int64_t shared_width, std::mt19937& random)
      : shape_(store.shape()) {
    const std::int64_t d = shape_.hidden, experts = shape_.experts;
    call_.x = made({tokens, d}, random);
    call_.out = made({tokens, d}, random);
    const TensorView ids = memory(DType::i64, {tokens, choices});
    for (std::int64_t t = 0; t < tokens; ++t) {
      std::vector<std::int64_t> order(static_cast<std::size_t>(experts));
      std::iota(order.begin(), order.end(), 0);
      for (std::int64_t k = 0; k < choices; ++k) {
        // Low numbers are more likely.
        const auto left = static_cast<std::uint64_t>(order.size());
        const auto at = static_cast<std::ptrdiff_t>(std::min(random() % left, random() % left));
        static_cast<std::int64_t*>(ids.data())[t * choices + k] =
            order[static_cast<std::size_t>(at)];
        order.erase(order.begin() + at);
      }
    }
    call_.ids = ids;
    call_.weights = memory(DType::f32, {tokens, choices});
    for (std::int64_t i = 0; i < tokens * choices; ++i) {
      static_cast<float*>(call_.weights.data())[i] = static_cast<float>(random() % 100) / 100;
    }
    if (shared_width > 0) {
      call_.shared_gate_up = made({2 * shared_width, d}, random);
      call_.shared_down = made({d, shared_width}, random);
    }
    call_.pool = &pool_;
    copy_weights(store, layer);
  }

  const MoeOptions& call() const { return call_; }

  // What moe() gives with all weights, contiguous.
  std::vector<std::uint8_t> wanted(const Stream& stream) {
    MoeOptions options = call_;
    options.gate_up = gate_up_;
    options.down = down_;
    options.gate_up_bias = gate_up_bias_;
    options.down_bias = down_bias_;
    options.layout = shape_.layout;
    moe(options, stream);
    stream.synchronize();
    return take_out();
  }
  // The bytes of out, which are poisoned.
  std::vector<std::uint8_t> take_out() const {
    auto* out = static_cast<std::uint8_t*>(call_.out.data());
    std::vector<std::uint8_t> bytes(out, out + call_.out.bytes());
    std::fill_n(out, bytes.size(), std::uint8_t{0xFF});
    return bytes;
  }

 private:
  TensorView memory(DType type, std::initializer_list<std::int64_t> shape) {
    std::size_t bytes = size_of(type);
    for (const std::int64_t extent : shape) bytes *= static_cast<std::size_t>(extent);
    memory_.emplace_back(bytes + 64);
    return TensorView(memory_.back().data(), type, shape);
  }
  TensorView made(std::initializer_list<std::int64_t> shape, std::mt19937& random) {
    const TensorView view = memory(shape_.dtype, shape);
    randomise(view, random);
    return view;
  }

  void copy_weights(const ExpertStore& store, std::int64_t layer) {
    const std::int64_t E = shape_.experts, d = shape_.hidden, n = shape_.width;
    gate_up_ = memory(shape_.dtype, {E, 2 * n, d});
    down_ = memory(shape_.dtype, {E, d, n});
    if (shape_.gate_up_bias) gate_up_bias_ = memory(shape_.dtype, {E, 2 * n});
    if (shape_.down_bias) down_bias_ = memory(shape_.dtype, {E, d});
    const std::size_t element = size_of(shape_.dtype);
    const auto copy = [&](const TensorView& from, const TensorView& to, std::int64_t expert) {
      const std::int64_t rows = from.rank() == 2 ? from.extent(0) : 1;
      const std::int64_t columns = from.extent(from.rank() - 1);
      auto* target = static_cast<std::byte*>(to.data()) +
                     static_cast<std::size_t>(expert * rows * columns) * element;
      for (std::int64_t r = 0; r < rows; ++r) {
        for (std::int64_t c = 0; c < columns; ++c) {
          const std::int64_t at =
              (from.rank() == 2 ? r * from.strides()[0] : 0) + c * from.strides()[from.rank() - 1];
          std::memcpy(target + static_cast<std::size_t>(r * columns + c) * element,
                      static_cast<std::byte*>(from.data()) + static_cast<std::size_t>(at) * element,
                      element);
        }
      }
    };
    for (std::int64_t e = 0; e < E; ++e) {
      copy(store.gate_up(layer, e), gate_up_, e);
      copy(store.down(layer, e), down_, e);
      if (shape_.gate_up_bias) copy(store.gate_up_bias(layer, e), gate_up_bias_, e);
      if (shape_.down_bias) copy(store.down_bias(layer, e), down_bias_, e);
    }
  }

  const ExpertShape shape_;
  Pool pool_{Device::cpu()};
  std::vector<std::vector<std::byte>> memory_;
  MoeOptions call_;
  TensorView gate_up_, down_, gate_up_bias_, down_bias_;
};

std::size_t bytes_for(const ExpertShape& shape, std::size_t slots) {
  const std::size_t least = detail::least_expert_slots(static_cast<std::size_t>(shape.experts));
  return StreamedExperts::least_bytes(shape) + (slots - least) * ExpertStore::block_bytes(shape);
}

TEST(StreamedExpertsTest, GiveTheBitsOfMoe) {
  for (std::uint32_t seed = 1; seed <= 40; ++seed) {
    const Watchdog watchdog("seed " + std::to_string(seed));
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937 random(seed);
    const ExpertShape shape{
        .layers = 1 + static_cast<std::int64_t>(random() % 3),
        .experts = 1 + static_cast<std::int64_t>(random() % 12),
        .hidden = 8 + 8 * static_cast<std::int64_t>(random() % 5),
        .width = 8 + 8 * static_cast<std::int64_t>(random() % 3),
        .dtype = seed % 5 == 0   ? DType::f32
                 : seed % 5 == 1 ? DType::f16
                                 : DType::bf16,
        .layout = seed % 2 == 0 ? GateUpLayout::interleaved : GateUpLayout::concatenated,
        .transposed = seed % 3 == 0,
        .gate_up_bias = seed % 4 < 2,
        .down_bias = seed % 4 == 1};
    const ExpertStore store(Device::cpu(), shape);
    randomise(store, random);
    const std::size_t least = detail::least_expert_slots(static_cast<std::size_t>(shape.experts));
    const std::size_t slots = least + random() % static_cast<std::size_t>(3 * shape.experts);
    StreamedExperts in_place({.store = &store, .device = Device::cpu()});
    StreamedExperts copied({.store = &store,
                            .device = Device::cpu(),
                            .device_bytes = bytes_for(shape, slots),
                            .prefetch = ExpertPrefetch::previous},
                           {.copy_on_cpu = true});
    EXPECT_EQ(in_place.slots(), 0U);
    const Stream stream(Device::cpu());
    for (int call = 0; call < 8; ++call) {
      const std::int64_t layer = call % shape.layers;
      const std::int64_t tokens = random() % 3 == 0 ? static_cast<std::int64_t>(random() % 300)
                                                    : static_cast<std::int64_t>(random() % 3);
      const std::int64_t choices =
          1 + static_cast<std::int64_t>(random() % std::min<std::uint64_t>(4, shape.experts));
      Arrays arrays(store, layer, tokens, choices, call % 2 == 0 ? 16 : 0, random);
      const auto wanted = arrays.wanted(stream);
      in_place.forward(layer, arrays.call(), stream);
      stream.synchronize();
      EXPECT_EQ(arrays.take_out(), wanted) << "in place, call " << call;
      copied.forward(layer, arrays.call(), stream);
      copied.synchronize();
      EXPECT_EQ(arrays.take_out(), wanted) << "copied, call " << call;
    }
    EXPECT_EQ(copied.statistics().failed_calls, 0U);
  }
}

// Several threads with streams of their own share the object.
TEST(StreamedExpertsTest, ServeSeveralThreads) {
  const Watchdog watchdog("ServeSeveralThreads");
  constexpr ExpertShape shape{.layers = 3, .experts = 8, .hidden = 16, .width = 8};
  const ExpertStore store(Device::cpu(), shape);
  std::mt19937 numbers(1);
  randomise(store, numbers);
  StreamedExperts experts({.store = &store,
                           .device = Device::cpu(),
                           .device_bytes = bytes_for(shape, 5),
                           .calls_in_flight = 64},
                          {.copy_on_cpu = true});
  std::vector<std::thread> threads;
  for (unsigned number = 1; number <= 3; ++number) {
    threads.emplace_back([&experts, &store, number] {
      std::mt19937 random(number);
      const Stream stream(Device::cpu());
      for (int call = 0; call < 40; ++call) {
        Arrays arrays(store, call % 3, 1 + call % 40, 2, 0, random);
        const auto wanted = arrays.wanted(stream);
        experts.forward(call % 3, arrays.call(), stream);
        stream.synchronize();
        EXPECT_EQ(arrays.take_out(), wanted);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(experts.statistics().calls, 120U);
}

// The name of the argument that a function complains about.
std::string named(const std::function<void()>& function) {
  try {
    function();
  } catch (const InvalidArgument& error) {
    return error.argument();
  }
  return "";
}

// Its thread is the parent's.
TEST(StreamedExpertsTest, AForkedChildDoesNotWaitForTheThread) {
  const ExpertShape shape{.layers = 1, .experts = 4, .hidden = 16, .width = 8};
  const ExpertStore store(Device::cpu(), shape);
  std::mt19937 random(1);
  randomise(store, random);
  Arrays arrays(store, 0, 5, 2, 0, random);
  auto experts = std::make_unique<StreamedExperts>(
      StreamedExpertsOptions{
          .store = &store, .device = Device::cpu(), .device_bytes = bytes_for(shape, 4)},
      detail::ExpertHooks{.copy_on_cpu = true});
  const Stream stream(Device::cpu());
  const std::vector<std::uint8_t> wanted = arrays.wanted(stream);
  experts->forward(0, arrays.call(), stream);
  stream.synchronize();
  experts->synchronize();
  EXPECT_EQ(arrays.take_out(), wanted);
  const pid_t child = fork();
  if (child == 0) {
    alarm(10);  // ends a child that waits
    int refused = 0;
    for (const auto& use : std::initializer_list<std::function<void()>>{
             [&] { experts->forward(0, arrays.call(), stream); }, [&] { experts->clear(); },
             [&] { experts->synchronize(); }}) {
      try {
        use();
      } catch (const Unsupported&) {
        ++refused;
      }
    }
    experts->close();
    experts.reset();
    _exit(refused == 3 ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  experts->forward(0, arrays.call(), stream);
  stream.synchronize();
  EXPECT_EQ(arrays.take_out(), wanted);
}

TEST(ExpertStoreTest, ChecksItsShape) {
  const ExpertShape good{.layers = 2, .experts = 4, .hidden = 16, .width = 8};
  const auto with = [&](const auto& change) {
    ExpertShape shape = good;
    change(shape);
    return named([&] { ExpertStore::bytes_needed(shape); });
  };
  EXPECT_EQ(with([](auto&) {}), "");
  EXPECT_EQ(with([](auto& s) { s.layers = 0; }), "layers");
  EXPECT_EQ(with([](auto& s) { s.experts = 1025; }), "experts");
  EXPECT_EQ(with([](auto& s) { s.experts = -1; }), "experts");
  EXPECT_EQ(with([](auto& s) { s.hidden = 12; }), "hidden");
  EXPECT_EQ(with([](auto& s) { s.width = 0; }), "width");
  EXPECT_EQ(with([](auto& s) { s.dtype = DType::i32; }), "dtype");
  EXPECT_EQ(with([](auto& s) { s.layout = static_cast<GateUpLayout>(7); }), "layout");
  EXPECT_EQ(with([](auto& s) {
              s = {.layers = 1 << 16, .experts = 1024, .hidden = 1 << 20, .width = 1 << 19};
            }),
            "shape");
}

TEST(ExpertStoreTest, HasOneBlockPerExpert) {
  const ExpertShape shape{.layers = 2, .experts = 3, .hidden = 16, .width = 8, .down_bias = true};
  EXPECT_EQ(ExpertStore::block_bytes(shape), 512U + 256U + 256U);
  const ExpertStore store(Device::cpu(), shape);
  EXPECT_EQ(store.bytes(), 6 * 1024U);
  EXPECT_EQ(store.block(1, 2).data, store.block(0, 0).data + 5 * 1024);
  EXPECT_EQ(store.gate_up(1, 2).describe(), "bf16[16, 16] on pinned");
  EXPECT_EQ(store.down(0, 0).extent(1), 8);
  EXPECT_EQ(store.gate_up_bias(0, 0).elements(), 0);
  EXPECT_EQ(store.down_bias(0, 1).elements(), 16);
  EXPECT_EQ(named([&] { store.block(2, 0); }), "layer");
  EXPECT_EQ(named([&] { store.gate_up(0, -1); }), "expert");
  // Qwen3-30B: nothing is added.
  const ExpertShape qwen{.layers = 48, .experts = 128, .hidden = 2048, .width = 768};
  EXPECT_EQ(ExpertStore::block_bytes(qwen), std::size_t{3} * 2048 * 768 * 2);
}

TEST(ExpertStoreTest, ChecksTheCallersMemory) {
  const ExpertShape shape{.layers = 1, .experts = 2, .hidden = 16, .width = 8};
  const PinnedBuffer memory(Device::cpu(), ExpertStore::bytes_needed(shape) + 256);
  const MemoryView all = memory.view();
  const auto with = [&](MemoryView view) { return named([&] { ExpertStore(view, shape); }); };
  EXPECT_EQ(with(all.sub(0, all.bytes - 256)), "");
  EXPECT_EQ(with(all), "memory");
  EXPECT_EQ(with(all.sub(16, all.bytes - 256)), "memory");
  EXPECT_EQ(with({}), "memory");
  EXPECT_EQ(with({all.data, all.bytes - 256, {Memory::device, 0}}), "memory");
}

class StreamedExpertsErrors : public testing::Test {
 protected:
  std::string made(const std::function<void(StreamedExpertsOptions&)>& change) const {
    StreamedExpertsOptions options{
        .store = &store, .device = Device::cpu(), .device_bytes = bytes_for(shape, 4)};
    change(options);
    return named([&] { StreamedExperts(std::move(options), {.copy_on_cpu = true}); });
  }
  // What is wrong with a call, on objects that copy and that do not.
  std::string called(std::int64_t layer, const std::function<void(MoeOptions&)>& change) {
    std::mt19937 random(1);
    const Arrays arrays(store, 0, 5, 2, 0, random);
    MoeOptions call = arrays.call();
    change(call);
    StreamedExperts in_place({.store = &store, .device = Device::cpu()});
    StreamedExperts copied(
        {.store = &store, .device = Device::cpu(), .device_bytes = bytes_for(shape, 4)},
        {.copy_on_cpu = true});
    const Stream stream(Device::cpu());
    const std::string first = named([&] { in_place.forward(layer, call, stream); });
    const std::string second = named([&] { copied.forward(layer, call, stream); });
    stream.synchronize();
    copied.synchronize();
    EXPECT_EQ(first, second);
    return second;
  }

  ExpertShape shape{.layers = 2, .experts = 4, .hidden = 16, .width = 8};
  ExpertStore store{Device::cpu(), shape};
};

TEST_F(StreamedExpertsErrors, OfOptions) {
  EXPECT_EQ(made([](auto&) {}), "");
  EXPECT_EQ(made([](auto& o) { o.store = nullptr; }), "store");
  EXPECT_EQ(made([](auto& o) { o.calls_in_flight = 0; }), "calls_in_flight");
  EXPECT_EQ(made([&](auto& o) { o.device_bytes = bytes_for(shape, 2); }), "");
  EXPECT_EQ(made([&](auto& o) { o.device_bytes = bytes_for(shape, 2) - 1; }), "device_bytes");
  EXPECT_EQ(made([](auto& o) { o.device_bytes = 0; }), "device_bytes");
  EXPECT_EQ(made([](auto& o) { o.pinned = {{0, 1}, {1, 2}}; }), "");
  EXPECT_EQ(made([](auto& o) { o.pinned = {{0, 1}, {1, 2}, {1, 3}}; }), "device_bytes");
  EXPECT_EQ(made([](auto& o) { o.pinned = {{0, 4}}; }), "pinned");
  EXPECT_EQ(made([](auto& o) { o.pinned = {{-1, 0}}; }), "pinned");
}

TEST_F(StreamedExpertsErrors, OfTooLittleMemorySayHowMuchIsNeeded) {
  try {
    StreamedExperts experts({.store = &store, .device = Device::cpu(), .device_bytes = 4096},
                            {.copy_on_cpu = true});
    FAIL() << "4096 bytes are not enough";
  } catch (const InvalidArgument& error) {
    EXPECT_NE(error.expected().find(std::to_string(StreamedExperts::least_bytes(shape))),
              std::string::npos)
        << error.what();
    EXPECT_NE(error.expected().find("2 slots"), std::string::npos) << error.what();
  }
}

TEST_F(StreamedExpertsErrors, OfCalls) {
  EXPECT_EQ(called(0, [](auto&) {}), "");
  EXPECT_EQ(called(2, [](auto&) {}), "layer");
  EXPECT_EQ(called(-1, [](auto&) {}), "layer");
  EXPECT_EQ(called(0, [](auto& o) { o.gate_up = o.x; }), "gate_up");
  EXPECT_EQ(called(0, [](auto& o) { o.down = o.x; }), "down");
  EXPECT_EQ(called(0, [](auto& o) { o.slots = o.ids; }), "slots");
  EXPECT_EQ(called(0, [](auto& o) { o.gate_up_bias = o.x; }), "gate_up_bias");
  EXPECT_EQ(called(0, [](auto& o) { o.down_bias = o.x; }), "down_bias");
  EXPECT_EQ(called(0, [](auto& o) { o.pool = nullptr; }), "workspace");
  EXPECT_EQ(called(0, [](auto& o) { o.x = TensorView(o.x.data(), DType::bf16, {10, 8}); }),
            "gate_up");
  EXPECT_EQ(called(0, [](auto& o) { o.out = o.x; }), "out");
  EXPECT_EQ(called(0, [](auto& o) { o.ids = TensorView(o.ids.data(), DType::i64, {2, 5}); }),
            "ids");
}

TEST_F(StreamedExpertsErrors, OfHints) {
  StreamedExperts experts(
      {.store = &store, .device = Device::cpu(), .device_bytes = bytes_for(shape, 4)},
      {.copy_on_cpu = true});
  const Stream stream(Device::cpu());
  std::vector<std::int32_t> likely{4};
  EXPECT_EQ(named([&] { experts.prefetch(0, likely); }), "experts");
  likely = {0, 3};
  EXPECT_EQ(named([&] { experts.prefetch(2, likely); }), "layer");
  EXPECT_EQ(named([&] { experts.prefetch(1, likely); }), "");
  std::vector<float> floats(4);
  EXPECT_EQ(
      named([&] { experts.prefetch(0, TensorView(floats.data(), DType::f32, {2, 2}), stream); }),
      "ids");
  std::vector<std::int32_t> ids{0, 9, -1, 2};
  experts.prefetch(0, TensorView(ids.data(), DType::i32, {2, 2}), stream);
  experts.synchronize();
}

TEST_F(StreamedExpertsErrors, AClosedObjectRefusesCalls) {
  std::mt19937 random(1);
  const Arrays arrays(store, 0, 5, 2, 0, random);
  const Stream stream(Device::cpu());
  for (const bool copies : {false, true}) {
    StreamedExperts experts(
        {.store = &store, .device = Device::cpu(), .device_bytes = bytes_for(shape, 4)},
        {.copy_on_cpu = copies});
    experts.close();
    EXPECT_THROW(experts.forward(0, arrays.call(), stream), ExpertsClosed);
    experts.synchronize();
  }
}

}  // namespace
}  // namespace ps::test
