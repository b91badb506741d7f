// Decode steps through StreamedExperts with a cache: which experts the tokens need, and how many of
// them the cache had.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "measure/experts/streamed.h"
#include "measure/experts/work.h"
#include "penstock/host/buffer.h"
#include "penstock/measure/experts.h"

namespace ps::detail {

// Draws the experts of all steps.
class DecodeSteps {
 public:
  DecodeSteps(const ExpertOverlapOptions& options, const ExpertWork& work, std::size_t steps);
  std::size_t count() const { return steps_; }

  // The call of a layer in a step.
  MoeOptions call(std::size_t step, std::int64_t layer) const;
  // The experts that the tokens of a layer choose in a step, each once.
  std::vector<std::int32_t> needed(std::size_t step, std::int64_t layer) const;
  // Keys of the experts that are needed in all steps before `end`, in the order of the calls.
  std::vector<std::int64_t> accesses(std::size_t end) const;

  // Whether the results of the step that was run last have the bits of experts that are loaded and
  // computed one after the other.
  bool is_right(std::size_t step, const Stream& stream) const;

 private:
  std::size_t index(std::size_t step, std::int64_t layer) const {
    return step * static_cast<std::size_t>(work_.shape().layers) + static_cast<std::size_t>(layer);
  }
  std::vector<std::byte> results(const Stream& stream) const;

  const ExpertWork& work_;
  const std::size_t steps_;
  const std::int64_t tokens_, choices_;
  Pool pool_;
  std::vector<std::vector<std::int32_t>> ids_;  // by step and layer
  DeviceBuffer ids_there_, weights_, out_;
};

// Runs, times and counts. Throws as measure_expert_overlap().
void measure_decode(const ExpertOverlapOptions& options, const ExpertWork& work,
                    ExpertDecode& result);

}  // namespace ps::detail
