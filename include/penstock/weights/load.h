// Loads tensors of a checkpoint into device memory: from disk to page-locked slots, and from there
// to the device. Reads and copies overlap, so loading takes as long as the slower of the two.
//
//   const ps::Weights weights("model.safetensors");
//   const ps::DeviceBuffer memory(device, weights.tensors()[0].bytes);
//   const std::array targets{ps::LoadTarget{.tensor = 0, .to = memory.view()}};
//   ps::load(weights, targets, {.device = device});
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <stop_token>

#include "penstock/base/units.h"
#include "penstock/base/view.h"
#include "penstock/host/device.h"
#include "penstock/host/stream.h"
#include "penstock/weights/weights.h"

namespace ps {

// As WeightRead, but into memory of the device.
struct LoadTarget {
  std::size_t tensor = 0;  // index in Weights::tensors()
  MemoryView to{};         // exactly the size of the rows
  std::int64_t first_row = 0;
  std::int64_t rows = all_rows;  // from first_row to the end
};

struct LoadOptions {
  Device device = Device::best();
  std::size_t slots = 8;             // page-locked slots
  std::size_t slot_bytes = 8 * MiB;  // of each slot, a multiple of 4 KiB
  std::stop_token stop{};            // cancels the load
  // Called by the calling thread about ten times per second and at the end, with bytes. If it
  // throws, the load ends and load() rethrows the exception.
  std::function<void(std::uint64_t done, std::uint64_t total)> progress{};
  std::optional<Stream> after{};  // the load waits for the work enqueued on this stream
};

// Blocks until all tensors are loaded. Tensors may be given in any order; they are read in the
// order of their bytes, tensors that lie next to each other in one go. Throws InvalidArgument
// naming the target ("targets[2].to") before anything is read; SystemError for files that cannot be
// read or were changed; OutOfMemory, DeviceError; and Cancelled. If it throws, the targets are
// unspecified.
void load(const Weights& weights, std::span<const LoadTarget> targets, LoadOptions options = {});

}  // namespace ps
