// A measurement that was asked to stop.
#pragma once

#include <stdexcept>

namespace ps {

// Thrown by an experiment whose stop token was triggered; nothing it made is left behind.
class Cancelled : public std::runtime_error {
 public:
  Cancelled() : std::runtime_error("cancelled") {}
};

}  // namespace ps
