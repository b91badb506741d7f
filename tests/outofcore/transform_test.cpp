#include "penstock/outofcore/transform.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "penstock/base/error.h"
#include "penstock/host/buffer.h"
#include "penstock/ops/transform.h"
#include "penstock/trace/timeline.h"
#include "support/expect_clean.h"
#include "support/failure_of.h"
#include "support/fake_machine.h"
#include "support/full_disk.h"
#include "support/temporary_directory.h"
#include "support/watchdog.h"

namespace ps::test {
namespace {

enum class Where { pinned, pageable, file };

std::string name(Where where) {
  return where == Where::pinned ? "Pinned" : where == Where::pageable ? "Pageable" : "File";
}

// Elements of T somewhere, between margins that nobody may touch.
template <class T>
class Data {
 public:
  Data(const Device& device, Where where, std::size_t count, const TemporaryDirectory& folder,
       const std::string& file)
      : where_(where), count_(count), path_(folder.path() / file) {
    const std::size_t bytes = (count + 2 * margin) * sizeof(T);
    if (where == Where::pinned) {
      pinned_ = PinnedBuffer(device, bytes);
      memory_ = pinned_.view();
    } else {
      pageable_.resize(bytes);
      memory_ = {pageable_.data(), bytes, {}};
    }
    std::memset(memory_.data, poison, bytes);
  }

  T* values() const { return memory_.as<T>() + margin; }

  // With all values set.
  StreamedOperand input(DType type) {
    if (where_ != Where::file) return output(type);
    std::ofstream(path_, std::ios::binary)
        .write(reinterpret_cast<const char*>(memory_.data),
               static_cast<std::streamsize>(memory_.bytes));
    return {.dtype = type, .file = path_, .offset = margin * sizeof(T)};
  }
  StreamedOperand output(DType type) {
    if (where_ == Where::file) return {.dtype = type, .file = path_};
    return {.dtype = type, .memory = memory_.sub(margin * sizeof(T), count_ * sizeof(T))};
  }

  // Of an output: what is in the file too. False when something beside it was written.
  bool fetch() {
    if (where_ == Where::file) {
      const std::string text = read_text(path_);
      if (text.size() != count_ * sizeof(T)) return false;
      std::memcpy(values(), text.data(), text.size());
      return true;
    }
    const auto untouched = [](std::byte b) { return b == std::byte{poison}; };
    const std::byte* end = memory_.data + memory_.bytes;
    return std::all_of(memory_.data, memory_.data + margin * sizeof(T), untouched) &&
           std::all_of(end - margin * sizeof(T), end, untouched);
  }

 private:
  static constexpr std::size_t margin = 5;
  static constexpr std::uint8_t poison = 0xA5;
  Where where_;
  std::size_t count_;
  std::filesystem::path path_;
  PinnedBuffer pinned_;
  std::vector<std::byte> pageable_;
  MemoryView memory_;
};

// out (f64) = 2 x (f32) + y (i64), on the CPU or as a kernel of the fake driver.
class Streamed {
 public:
  Streamed(const Device& device, FakeDriver* driver, Where x, Where y, Where out, std::size_t count)
      : driver_(driver),
        count_(count),
        x_(device, x, count, folder_, "x"),
        y_(device, y, count, folder_, "y"),
        out_(device, out, count, folder_, "out") {
    options.device = device;
    options.elements = count;
    std::mt19937 random(static_cast<unsigned>(count));
    for (std::size_t i = 0; i < count; ++i) {
      x_.values()[i] = static_cast<float>(random() % 1000);
      y_.values()[i] = static_cast<std::int64_t>(random() % 1000);
    }
    options.in = {x_.input(DType::f32), y_.input(DType::i64)};
    options.out = out_.output(DType::f64);
    options.function = [this](const Piece& piece, const Stream& stream) { work(piece, stream); };
  }

  RunReport run(const StreamedRun& how = {}) {
    StreamedTransform transform(options);
    pieces = transform.pieces();
    return transform.run(how);
  }

  void expect_right() {
    EXPECT_TRUE(out_.fetch()) << "something beside the output was written";
    for (std::size_t i = 0; i < count_; ++i) {
      ASSERT_EQ(out_.values()[i], 2 * x_.values()[i] + static_cast<double>(y_.values()[i])) << i;
    }
  }

  StreamedTransformOptions options;
  std::uint64_t pieces = 0;
  std::function<void(const Piece&)> hook;

 private:
  void work(const Piece& piece, const Stream& stream) const {
    if (hook) hook(piece);
    EXPECT_EQ(piece.in.size(), 2U);
    const auto* x = static_cast<const float*>(piece.in[0].data());
    const auto* y = static_cast<const std::int64_t*>(piece.in[1].data());
    auto* out = static_cast<double*>(piece.out.data());
    const auto count = static_cast<std::size_t>(piece.out.elements());
    const auto compute = [=] {
      for (std::size_t i = 0; i < count; ++i) out[i] = 2 * x[i] + static_cast<double>(y[i]);
    };
    if (driver_ == nullptr) {
      stream.call(compute);
    } else {
      launch(*driver_, stream, {{x, count * 4}, {y, count * 8}}, {{out, count * 8}}, compute);
    }
  }

  FakeDriver* driver_;
  std::size_t count_;
  TemporaryDirectory folder_;
  Data<float> x_;
  Data<std::int64_t> y_;
  Data<double> out_;
};

class StreamedWays : public testing::TestWithParam<std::tuple<bool, Where, Where>> {
 protected:
  void SetUp() override {
    if (std::get<0>(GetParam())) machine_.emplace(FakeOptions{.max_delay_us = 20});
  }
  Device device() const { return machine_ ? machine_->gpu() : Device::cpu(); }
  FakeDriver* driver() { return machine_ ? &machine_->driver() : nullptr; }
  std::optional<FakeMachine> machine_;
  Watchdog watchdog{"StreamedWays"};
};

INSTANTIATE_TEST_SUITE_P(
    All, StreamedWays,
    testing::Combine(testing::Bool(), testing::Values(Where::pinned, Where::pageable, Where::file),
                     testing::Values(Where::pinned, Where::pageable, Where::file)),
    [](const auto& each) {
      return std::string(std::get<0>(each.param) ? "Gpu" : "Cpu") + name(std::get<1>(each.param)) +
             "To" + name(std::get<2>(each.param));
    });

TEST_P(StreamedWays, AnyNumberOfElements) {
  const auto& [gpu, from, to] = GetParam();
  for (const std::size_t count : {0, 1, 4095, 4096, 4097, 100'003}) {
    SCOPED_TRACE(count);
    {
      Streamed streamed(device(), driver(), from, Where::pinned, to, count);
      const RunReport report = streamed.run();
      EXPECT_EQ(report.items, streamed.pieces);
      EXPECT_FALSE(report.cancelled);
      streamed.expect_right();
    }
    if (machine_) {
      EXPECT_TRUE(is_clean(machine_->driver()));
    }
  }
}

TEST_P(StreamedWays, SeveralInputsFromOnePlaceAndRunsAgain) {
  const auto& [gpu, from, to] = GetParam();
  Streamed streamed(device(), driver(), from, from, to, 50'001);
  streamed.options.piece = 4096;
  StreamedTransform transform(streamed.options);
  for (int round = 0; round < 3; ++round) {
    EXPECT_EQ(transform.run({.flush = round == 2}).items, 13U);
    streamed.expect_right();
  }
  EXPECT_EQ(transform.run({}).allocations, 0U) << "memory is taken once";
}

TEST_P(StreamedWays, CancelledAnywhereAndRunsAgain) {
  const auto& [gpu, from, to] = GetParam();
  Streamed streamed(device(), driver(), from, from, to, 60'000);
  streamed.options.piece = 4096;
  StreamedTransform transform(streamed.options);
  for (const std::uint64_t at : {0, 1, 7}) {
    std::stop_source source;
    streamed.hook = [&](const Piece& piece) {
      if (piece.first == at * 4096) source.request_stop();
    };
    const RunReport report = transform.run({.stop = source.get_token()});
    EXPECT_TRUE(report.cancelled);
    EXPECT_LT(report.items, transform.pieces());
  }
  streamed.hook = nullptr;
  EXPECT_FALSE(transform.run({}).cancelled);
  streamed.expect_right();
}

TEST_P(StreamedWays, TellsProgressAndWhatWasBusy) {
  const auto& [gpu, from, to] = GetParam();
  Streamed streamed(device(), driver(), from, from, to, 60'000);
  std::vector<Progress> reported;
  Timeline timeline;
  streamed.run(
      {.progress = [&](const Progress& p) { reported.push_back(p); }, .recorder = &timeline});
  ASSERT_FALSE(reported.empty());
  EXPECT_EQ(reported.back().done, streamed.pieces);
  EXPECT_EQ(reported.back().items, streamed.pieces);
  EXPECT_GT(timeline.busy_seconds(Engine::compute), 0);
  EXPECT_EQ(timeline.busy_seconds(Engine::disk) > 0, from == Where::file || to == Where::file);
  EXPECT_EQ(timeline.busy_seconds(Engine::upload) > 0, gpu);
  EXPECT_EQ(timeline.busy_seconds(Engine::download) > 0, gpu);
  EXPECT_EQ(timeline.busy_seconds(Engine::host) > 0,
            gpu && (from == Where::pageable || to == Where::pageable));
}

TEST_P(StreamedWays, AFailureIsThePipelinesError) {
  const auto& [gpu, from, to] = GetParam();
  Streamed streamed(device(), driver(), from, from, to, 60'000);
  streamed.options.piece = 4096;
  streamed.hook = [](const Piece& piece) {
    if (piece.first == 3 * 4096) throw std::runtime_error("on purpose");
  };
  StreamedTransform transform(streamed.options);
  try {
    transform.run({});
    FAIL();
  } catch (const PipelineError& error) {
    EXPECT_EQ(error.stage(), "compute");
    EXPECT_EQ(error.item(), 3U);
  }
  streamed.hook = nullptr;
  transform.run({});
  streamed.expect_right();
}

// Every call of the driver fails once, whatever it is.
TEST(StreamedFaults, NothingIsLostOrLeaked) {
  Watchdog watchdog("StreamedFaults");
  for (std::uint64_t n = 1;; n += 1 + n / 12) {
    FakeMachine machine({.max_delay_us = 0});
    bool ran = false, struck = false;
    {
      Streamed streamed(machine.gpu(), &machine.driver(), Where::pageable, Where::file, Where::file,
                        20'000);
      watchdog.step("fault at " + std::to_string(n));
      machine.driver().fail_call(n, cuda::memory_allocation);
      const auto failure = failure_of([&] {
        streamed.run();
        ran = true;
      });
      struck = machine.driver().fault_struck();
      machine.driver().disarm();
      if (ran) {
        streamed.expect_right();
      } else {
        EXPECT_FALSE(text(failure).empty());
      }
    }
    EXPECT_TRUE(is_clean(machine.driver())) << n;
    if (!struck) break;  // n is past the last call
  }
}

TEST(StreamedDisk, ThatIsFullIsAnErrorWithThePath) {
  const SmallDisk disk("256k");
  if (!disk.mounted()) GTEST_SKIP() << "no right to mount a small disk";
  Streamed streamed(Device::cpu(), nullptr, Where::pinned, Where::pinned, Where::pageable, 100'000);
  streamed.options.out = {.dtype = DType::f64, .file = disk.path() / "out"};
  try {
    streamed.run();
    FAIL();
  } catch (const PipelineError& error) {
    EXPECT_EQ(error.stage(), "write");
    EXPECT_NE(std::string(error.what()).find("out"), std::string::npos) << error.what();
  }
}

TEST(StreamedMemory, StaysWithinWhatIsAllowed) {
  FakeMachine machine;
  Streamed streamed(machine.gpu(), &machine.driver(), Where::file, Where::pageable, Where::file,
                    300'000);
  streamed.options.device_bytes = 1 * MiB;
  streamed.options.pinned_bytes = 3 * MiB;
  const StreamedTransform transform(streamed.options);
  // 4 * (4 + 8 + 8) bytes an element on the device; 16 * (4 + 8 + 8) in slots.
  EXPECT_EQ(transform.piece(), 8192U);
  EXPECT_EQ(transform.device_bytes(), 8192U * 80);
  EXPECT_EQ(transform.pinned_bytes(), 8192U * 320);
  EXPECT_EQ(transform.pieces(), 37U);
}

TEST(StreamedCapture, ARunBehindACapturedStreamIsRefused) {
  FakeMachine machine;
  Streamed streamed(machine.gpu(), &machine.driver(), Where::pinned, Where::pinned, Where::pinned,
                    10'000);
  const auto native = machine.driver().foreign_stream();
  const Stream stream = borrow_native(machine.gpu(), native);
  machine.driver().set_capturing(native, true);
  EXPECT_THROW(streamed.run({.after = stream}), Unsupported);
  machine.driver().set_capturing(native, false);
  streamed.run({.after = stream});
  streamed.expect_right();
}

class StreamedErrors : public testing::Test {
 protected:
  // The argument that the error names, or "".
  std::string refused(const std::function<void(StreamedTransformOptions&)>& change) {
    StreamedTransformOptions options;
    options.device = Device::cpu();
    options.elements = 10;
    options.in = {{.dtype = DType::f32, .memory = memory(in_)}};
    options.out = {.dtype = DType::f32, .memory = memory(out_)};
    options.function = [](const Piece& piece, const Stream& stream) {
      scale({.in = piece.in[0], .out = piece.out}, stream);
    };
    change(options);
    try {
      StreamedTransform(options).run({});
    } catch (const InvalidArgument& error) {
      EXPECT_FALSE(error.expected().empty());
      EXPECT_FALSE(error.given().empty());
      return error.argument();
    }
    return "";
  }
  static MemoryView memory(std::vector<float>& values) {
    return {reinterpret_cast<std::byte*>(values.data()), values.size() * 4, {}};
  }

  TemporaryDirectory folder_;
  std::vector<float> in_ = std::vector<float>(10), out_ = std::vector<float>(10);
};

TEST_F(StreamedErrors, NameTheOption) {
  using Options = StreamedTransformOptions;
  EXPECT_EQ(refused([](Options&) {}), "");
  EXPECT_EQ(refused([](Options& o) { o.in.clear(); }), "in");
  EXPECT_EQ(refused([](Options& o) { o.in.resize(5, o.in[0]); }), "in");
  EXPECT_EQ(refused([](Options& o) { o.function = nullptr; }), "function");
  EXPECT_EQ(refused([](Options& o) { o.depth = 0; }), "depth");
  EXPECT_EQ(refused([](Options& o) { o.host_depth = 0; }), "host_depth");
  EXPECT_EQ(refused([](Options& o) { o.piece = 100; }), "piece");
  EXPECT_EQ(refused([](Options& o) { o.elements = 11; }), "in[0].memory");
  EXPECT_EQ(refused([](Options& o) { o.elements = ~0ULL; }), "elements");
  EXPECT_EQ(refused([](Options& o) { o.out.memory.bytes = 36; }), "out.memory");
  EXPECT_EQ(refused([](Options& o) { o.out.memory = {}; }), "out");
  EXPECT_EQ(refused([](Options& o) { o.in[0].file = "x"; }), "in[0]");
  EXPECT_EQ(refused([](Options& o) { o.in[0].offset = 4; }), "in[0].offset");
  EXPECT_EQ(refused([](Options& o) { o.in[0].memory.data += 1; }), "in[0].memory");
  EXPECT_EQ(refused([](Options& o) { o.in[0].memory.place = {Memory::device, 0}; }),
            "in[0].memory");
  EXPECT_EQ(refused([](Options& o) { o.out.dtype = static_cast<DType>(99); }), "out.dtype");
}

TEST_F(StreamedErrors, OfOverlap) {
  using Options = StreamedTransformOptions;
  EXPECT_EQ(refused([](Options& o) { o.out = o.in[0]; }), "") << "in place";
  EXPECT_EQ(refused([](Options& o) {
              o.elements = 9;
              o.in[0].memory.bytes = o.out.memory.bytes = 36;
              o.out.memory.data = o.in[0].memory.data + 4;
            }),
            "out.memory");
}

TEST_F(StreamedErrors, OfFiles) {
  using Options = StreamedTransformOptions;
  const auto file = folder_.write("data", std::string(40, 'x'));
  const auto from_file = [&](Options& o) { o.in[0] = {.dtype = DType::f32, .file = file}; };
  EXPECT_EQ(refused(from_file), "");
  EXPECT_EQ(refused([&](Options& o) {
              from_file(o);
              o.in[0].offset = 4;
            }),
            "in[0].file");
  EXPECT_EQ(refused([&](Options& o) {
              from_file(o);
              o.out = o.in[0];
            }),
            "out.file");
  EXPECT_EQ(read_text(file), std::string(40, 'x')) << "refused before it was emptied";
  EXPECT_EQ(refused([&](Options& o) {
              o.out = {.dtype = DType::f32, .file = folder_.path() / "out", .offset = 8};
            }),
            "out.offset");
  EXPECT_EQ(refused([&](Options& o) {
              from_file(o);
              o.pinned_bytes = 1000;
            }),
            "pinned_bytes");
  EXPECT_THROW(refused([&](Options& o) {
                 o.in[0] = {.dtype = DType::f32, .file = folder_.path() / "none"};
               }),
               SystemError);
}

TEST_F(StreamedErrors, OfTooLittleDeviceMemory) {
  FakeMachine machine;
  EXPECT_EQ(refused([&](StreamedTransformOptions& o) {
              o.device = machine.gpu();
              o.device_bytes = 1000;
            }),
            "device_bytes");
}

}  // namespace
}  // namespace ps::test
