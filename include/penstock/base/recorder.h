// Receives the busy intervals of a run. The host runtime calls it; trace/timeline.h and
// trace/device_trace.h implement it. Without a recorder, a run creates and reads no timing
// events.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

namespace ps {

// The part of the machine that was busy.
enum class Engine : std::uint8_t {
  disk,
  host,         // a host thread
  upload,       // host to device copies
  download,     // device to host copies
  device_copy,  // device to device copies
  compute,      // kernels, or the CPU's worker
};

constexpr std::string_view name(Engine engine) {
  switch (engine) {
    case Engine::disk:
      return "disk";
    case Engine::host:
      return "host";
    case Engine::upload:
      return "upload";
    case Engine::download:
      return "download";
    case Engine::device_copy:
      return "device copy";
    case Engine::compute:
      return "compute";
  }
  return "unknown";
}

inline constexpr std::array all_engines = {Engine::disk,     Engine::host,        Engine::upload,
                                           Engine::download, Engine::device_copy, Engine::compute};

// The inverse of name(); nothing for an unknown name.
constexpr std::optional<Engine> engine_named(std::string_view text) {
  for (const Engine engine : all_engines) {
    if (name(engine) == text) return engine;
  }
  return std::nullopt;
}

// One busy interval, in nanoseconds since the start of the run.
struct Interval {
  Engine engine = Engine::host;
  std::string_view stage;  // valid during the call to record() only
  std::uint64_t item = 0;
  std::int64_t begin_ns = 0;
  std::int64_t end_ns = 0;
};

class Recorder {
 public:
  Recorder() = default;
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;
  virtual ~Recorder() = default;

  // Called from several threads concurrently. Must not call back into the run.
  virtual void record(const Interval& interval) noexcept = 0;

  // A run begins. Its intervals count from this time of std::chrono::steady_clock.
  virtual void begin_run(std::int64_t /*steady_ns*/) noexcept {}

  // True if the recorder observes the device itself, as DeviceTrace does. The run then records no
  // device intervals. Instead it calls begin_enqueue() and end_enqueue() around each stage
  // function, on the thread that enqueues.
  virtual bool watches_device() const noexcept { return false; }
  virtual void begin_enqueue(std::string_view /*stage*/, std::uint64_t /*item*/) noexcept {}
  virtual void end_enqueue() noexcept {}
};

}  // namespace ps
