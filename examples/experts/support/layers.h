// What the rungs of this ladder stream: the expert layers of a model with random weights, in
// page-locked memory, and tokens with their routes.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "measure/experts/work.h"
#include "penstock/measure/floor.h"
#include "support/context.h"
#include "support/rung.h"

namespace ladder {

using Expert = ps::detail::ExpertItem;

// What distinguishes the layers of some rungs from those of the others.
struct LayersOptions {
  std::int64_t rounding = 0;  // of the tokens of each expert
  ps::DType dtype = ps::DType::bf16;
  ps::MoeKernel kernel = ps::MoeKernel::best;
  std::vector<std::int64_t> shape = {};  // T, d, n, E, K; empty: that of the ladder
};

class Layers {
 public:
  explicit Layers(Context& context, const LayersOptions& options = {});

  const ps::detail::ExpertWork& work() const { return work_; }
  std::size_t block_bytes() const { return work_.block_bytes(); }  // of an expert
  // Those that have tokens, layer by layer, and where their weights are.
  const std::vector<Expert>& experts() const { return work_.items(); }
  ps::MemoryView weights(const Expert& expert) const { return work_.block(expert); }

  // Enqueues the products of one expert, whose weights are in `slot`; with the first one the plan
  // of the layer, and with the last one the sum.
  void compute(const Expert& expert, ps::MemoryView slot, const ps::Stream& stream) const;

  // Checks what `run` computes, bit by bit, times it, and runs it once more with the trace on. The
  // floor is the slower of computing all experts and of `upload`, which loads all that the rung
  // loads; by default, all experts.
  Row measure(std::string label, const std::function<void(Trace&)>& run,
              const std::function<void()>& upload = {});
  // The same without a floor.
  Row time(std::string label, const std::function<void()>& run);
  // Measures a Pipeline in which `cached` experts stay on the device. The CPU device loads nothing.
  Row measure_pipeline(std::string label, std::size_t cached = 0);

  // (token, choice) pairs, and how many there are when those of each expert fill whole tiles.
  std::int64_t rows() const;
  std::int64_t padded_rows(std::int64_t tile) const;

 private:
  void upload_all() const;
  void compute_all() const;
  void check(const std::string& label, const std::function<void()>& run) const;
  std::vector<std::byte> reference() const;

  Context& context_;
  ps::detail::ExpertWork work_;
  ps::Stream stream_;
  ps::DeviceBuffer slots_;  // two, to load into
  ps::Floor compute_floor_;
  std::vector<std::byte> wanted_;
};

}  // namespace ladder
