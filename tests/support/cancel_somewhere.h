// Cancels a run at a point that a generator chooses.
#pragma once

#include <chrono>
#include <cstdint>
#include <random>
#include <stop_token>
#include <string>
#include <thread>

#include "penstock/host/pipeline.h"

namespace ps::test {

// In a stage, from another thread, before the run, or not at all when the run is over sooner.
// Tested has stages, a hook that each stage calls, and a run() that checks what came out.
template <class Tested>
void cancel_somewhere(Tested& tested, std::minstd_rand& random) {
  std::stop_source source;
  // Some runs are longer than the window of items in flight, 48 at depth 4.
  const bool long_run = random() % 4 == 0;
  const std::uint64_t items = 1 + random() % (long_run ? 60 : 12);
  std::jthread canceller;
  switch (random() % 4) {
    case 0:
      source.request_stop();
      break;
    case 1: {
      const auto pause = std::chrono::microseconds(random() % (long_run ? 5000 : 500));
      canceller = std::jthread([&source, pause] {
        std::this_thread::sleep_for(pause);
        source.request_stop();
      });
      break;
    }
    default: {
      const std::string& stage = Tested::stages[random() % Tested::stages.size()];
      const std::uint64_t item = random() % items;
      tested.hook = [&source, &stage, item](const std::string& at, Item& now) {
        if (at == stage && now.index() == item) source.request_stop();
      };
    }
  }
  tested.run({.items = items, .stop = source.get_token()});
  tested.hook = nullptr;
}

}  // namespace ps::test
