// The main job in small on a GPU: read, upload, compute through scratch, download, write. Items
// have odd and different sizes. Every run is checked, byte for byte, against what the CPU computes.
#pragma once

#include <cuda_runtime_api.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "penstock/host/buffer.h"
#include "penstock/host/pipeline.h"

namespace ps::test {

struct GpuPipelineOptions {
  std::size_t depth = 3;
  bool host_stages = true;        // read and write are host stages; else the copies do it
  std::vector<Stream> streams{};  // for the device stages in turn; none: their own
  std::optional<Pool> pool{};     // for scratch
  Waiting waiting = Waiting::poll;
};

class GpuPipeline {
 public:
  // Called at the begin of each stage of each item.
  using Hook = std::function<void(const std::string& stage, Item& item)>;

  explicit GpuPipeline(const Device& device, GpuPipelineOptions options = {});

  // Runs and checks what came out: right, whole, in order, and nothing written beside it.
  RunReport run(RunOptions run_options);
  // As run(), to the end; any failure is the test's.
  void run_well(std::uint64_t items);

  // The streams of the device stages of the last run.
  const std::vector<cudaStream_t>& streams() const { return seen_; }

  Hook hook;
  std::chrono::milliseconds delivery{};  // what the host function of an item takes
  static const std::vector<std::string> stages;
  static constexpr std::uint64_t most_items = 64;

 private:
  static constexpr std::size_t most_floats = 4099;
  static constexpr std::size_t slot_bytes = most_floats * sizeof(float);

  static std::size_t floats_of(std::uint64_t item) { return 1 + item * 2654435761U % most_floats; }
  static std::size_t bytes_of(std::uint64_t item) { return floats_of(item) * sizeof(float); }
  static int rounds_of(std::uint64_t item) { return 5 + static_cast<int>(item % 4); }
  // The item's part of the caller's memory.
  static MemoryView part(const PinnedBuffer& all, std::uint64_t item) {
    return all.view().sub(item * slot_bytes, bytes_of(item));
  }

  void build();
  StageId device_stage(const std::string& name, StageOptions stage_options, StageFunction function);
  StageId host_stage(const std::string& name, HostStageOptions stage_options,
                     StageFunction function);
  void compute(Item& item);
  void download(Item& item);
  void check(std::uint64_t items) const;

  GpuPipelineOptions options_;
  PinnedBuffer input_, output_;      // every item's, most_floats apart
  std::vector<std::byte> expected_;  // of output_
  Pipeline pipeline_;
  RingId in_, work_, out_;
  StageId download_;
  std::vector<MemoryView> computed_;      // scratch on its way from compute to download
  std::vector<std::uint64_t> delivered_;  // items, as they came out
  std::vector<cudaStream_t> seen_;
};

}  // namespace ps::test
