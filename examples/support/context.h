// What every rung is given: the device, the bytes, what the engines need alone, and the way rows
// are measured. Everything costly is made at first use and then shared by all rungs of the program.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <stop_token>
#include <string>
#include <vector>

#include "penstock/host/device.h"
#include "support/data.h"
#include "support/engines.h"
#include "support/rung.h"
#include "support/trace.h"

namespace ladder {

struct Settings {
  ps::Device device = ps::Device::best();
  std::size_t bytes = 0;  // of input; 0: what suits the device
  std::size_t chunk = 0;  // 0: chosen from the engines' measured costs
  bool quick = false;     // a second or so in all, for a look and for tests
  std::stop_token stop = {};
};

// The work of a row: rows of the same work are compared, and its engines give the floor. It ends in
// page-locked output where a download is part of it, else in the device's result.
struct Work {
  std::string name;
  std::vector<ps::Engine> engines;
};

inline const Work two_way{"upload + compute", {ps::Engine::upload, ps::Engine::compute}};
inline const Work three_way{"upload + compute + download",
                            {ps::Engine::upload, ps::Engine::compute, ps::Engine::download}};
inline const Work four_way{
    "upload + compute + device copy + download",
    {ps::Engine::upload, ps::Engine::compute, ps::Engine::device_copy, ps::Engine::download}};

class Context {
 public:
  explicit Context(const Settings& settings);

  const ps::Device& device() const { return settings_.device; }
  bool on_gpu() const { return device().kind() == ps::DeviceKind::cuda; }
  bool quick() const { return settings_.quick; }

  std::size_t bytes() const { return settings_.bytes; }
  std::size_t chunk() { return engines().chunk; }
  std::size_t chunks() { return engines().chunks; }
  int rounds() { return engines().rounds; }
  const Engines& engines();
  Data& data();

  // Chunk i of each buffer; the last one may be shorter.
  ps::MemoryView input(std::size_t i) { return piece(data().input(), i); }
  ps::MemoryView output(std::size_t i) { return piece(data().output(), i); }
  ps::MemoryView result(std::size_t i) { return piece(data().result(), i); }

  // Seconds of a run: the median of a few, after one to warm up. `run` completes its work before it
  // returns. Throws ps::Cancelled when asked to stop.
  double median_seconds(const std::function<void()>& run);

  // Runs `run` to warm up and checks what it computed, times it, and runs it once more with the
  // trace on, on poisoned memory, and checks again.
  Row measure(std::string label, const Work& work, const std::function<void(Trace&)>& run);

 private:
  ps::MemoryView piece(ps::MemoryView whole, std::size_t i);
  void poison(const Work& work);
  void check(const Work& work);

  Settings settings_;
  std::unique_ptr<Data> data_;
  std::unique_ptr<Engines> engines_;
};

// Sets hidden and efficiency, and appends to the note what makes them doubtful.
void set_overlap(Row& row, double sequential, double floor, double ideal);

}  // namespace ladder
