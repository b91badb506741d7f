// What the machine is like that the fake driver pretends to be.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

#include "host/cuda/driver.h"

namespace ps::test {

// Statuses by CUDA's numbers.
inline constexpr cuda::Status invalid_value = 1;
inline constexpr cuda::Status insufficient_driver = 35;
inline constexpr cuda::Status no_device = 100;
inline constexpr cuda::Status invalid_device = 101;
inline constexpr cuda::Status invalid_handle = 400;
inline constexpr cuda::Status illegal_address = 700;
inline constexpr cuda::Status launch_failure = 719;
inline constexpr cuda::Status already_registered = 712;
inline constexpr cuda::Status not_registered = 713;
inline constexpr cuda::Status not_permitted = 800;
inline constexpr cuda::Status not_supported = 801;
inline constexpr cuda::Status capture_unsupported = 900;
inline constexpr cuda::Status unknown_error = 999;

struct FakeOptions {
  int devices = 1;
  cuda::Status startup = cuda::success;  // what device_count() answers: no_device, for example
  int driver_version = 13000;
  int runtime_version = 13000;
  bool memory_pools = true;
  bool virtual_memory = true;
  bool stream_wait_value = true;
  bool registered_memory = true;
  bool pageable_copies = false;  // of any memory that is not the driver's, as with a real one
  std::function<void(int device, cuda::Properties&)> adjust{};  // other changes to the properties
  std::size_t device_bytes = std::size_t{1} << 30;              // of each device
  std::size_t pinned_bytes = std::size_t{1} << 30;              // that may be page-locked
  std::size_t pool_step = std::size_t{2} << 20;          // pools take memory in multiples of this
  std::size_t granularity = std::size_t{64} << 10;       // of mapped memory
  std::function<void(std::size_t bytes)> registering{};  // called by host_register, which may wait
  std::uint64_t seed = 1;                                // of the delays
  unsigned max_delay_us = 100;                           // before a piece of work; 0: none
};

}  // namespace ps::test
