// The pipeline that loading and computing experts is measured with: one item per expert.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <stop_token>
#include <vector>

#include "measure/experts/work.h"
#include "penstock/host/pipeline.h"

namespace ps::detail {

struct ExpertFlowOptions {
  std::size_t depth = 4, streams = 2, cache = 0;
  // Each expert is computed before the next one is loaded.
  bool sequential = false;
  // The engines that take part. Without loading, resident experts are computed.
  bool read = true, upload = true, compute = true;
};

class ExpertFlow {
 public:
  ExpertFlow(const ExpertWork& work, const ExpertFlowOptions& options);
  ExpertFlow(const ExpertFlow&) = delete;
  ExpertFlow& operator=(const ExpertFlow&) = delete;

  // Blocks until all is done; throws Cancelled, and the error of a stage.
  void run(Recorder* recorder, const std::stop_token& stop);

 private:
  bool is_cached(const Item& item) const;
  void add_read();
  void add_uploads();
  void add_compute();
  MemoryView weights_of(const Item& item, const std::optional<RingId>& in) const;

  const ExpertWork& work_;
  const ExpertFlowOptions options_;
  std::optional<Stream> common_;
  Pipeline pipeline_;
  std::optional<RingId> host_, slots_;
  std::vector<StageId> last_;
};

}  // namespace ps::detail
