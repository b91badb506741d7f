// What a run did and when, handed to whoever wants to know. The host runtime records into this
// interface; penstock/trace implements it. A null recorder costs nothing.
#pragma once

#include <cstdint>
#include <string_view>

namespace ps {

// The piece of the machine that was busy.
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

// One busy interval, in nanoseconds since the start of the run.
struct Interval {
  Engine engine = Engine::host;
  std::string_view stage;  // valid only during the call
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

  // Called from several threads at once; must not throw and must not call back into the run.
  virtual void record(const Interval& interval) noexcept = 0;
};

}  // namespace ps
