// The exception of a cancelled measurement.
#pragma once

#include <stdexcept>

namespace ps {

// Thrown when a measurement's stop token is triggered. No files are left behind.
class Cancelled : public std::runtime_error {
 public:
  Cancelled() : std::runtime_error("cancelled") {}
};

}  // namespace ps
