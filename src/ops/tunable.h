// What an operator says of itself, so that `penstock tune` can measure its kernels and its calls
// find the one to run. An operator joins by an object of this kind and a line in all_tunables().
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "penstock/host/stream.h"
#include "penstock/ops/choices.h"

namespace ps::detail {

// One problem on one device, ready to be timed. Owns its memory, by what the functions hold.
struct Trial {
  std::size_t bytes = 0;  // that a call reads and writes
  // Enqueues one call. `number` counts up from call to call and chooses the memory: see Rotation.
  std::function<void(unsigned kernel, std::size_t number, const Stream& stream)> enqueue;
  // Where that call's results are.
  std::function<MemoryView(std::size_t number)> output;
};

// Problems and kernels go by their number, their place in these lists.
struct Tunable {
  std::string_view name;                  // "transform"
  std::vector<std::string_view> kernels;  // as in options: "portable", "sm90"
  std::vector<std::string> problems;      // classes that may want different ones: "axpby bf16"
  // The kernels that run a problem on a device and all give the same bits in its trial, the
  // built-in choice first. None on the CPU, where there is one way, and on GPUs that the operator
  // does not run on.
  std::function<std::vector<unsigned>(std::size_t problem, const Device& device)> candidates;
  // A problem of about so many bytes. Not wanted of an operator that has one kernel everywhere.
  std::function<Trial(std::size_t problem, const Device& device, std::size_t bytes)> trial;
};

// Every operator that has kernels, by name.
std::span<const Tunable* const> all_tunables();
const Tunable& gemm_tunable();
const Tunable& iterate_tunable();
const Tunable& resample_tunable();
const Tunable& transform_tunable();

// Which kernel runs a problem and why.
struct Use {
  unsigned kernel = 0;
  std::string measured;  // when; empty: built in
};

// One that `choices` name but that is no candidate does not count.
Use use_of(const Tunable& op, std::size_t problem, const Device& device,
           const std::optional<Choices>& choices);

// The kernel that a call of the operator runs on a GPU. Some nanoseconds and no lock but at the
// first call on a device, which reads the file. Never fails for the file's sake.
unsigned chosen_kernel(const Tunable& op, std::size_t problem, const Device& device);

}  // namespace ps::detail
