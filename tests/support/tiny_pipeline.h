// The main job in small: read, upload, compute with scratch, download, write. It runs on the CPU
// and on the fake driver, which then sees every access to memory.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "fake/fake_driver.h"
#include "penstock/host/pipeline.h"

namespace ps::test {

struct TinyOptions {
  std::size_t depth = 2;
  FakeDriver* driver = nullptr;   // of the fake GPU; null on the CPU
  bool host_stages = true;        // read and write are host stages; else kernels
  std::vector<Stream> streams{};  // for the device stages in turn; none: their own
  bool host_calls = false;        // download ends with a host function in its stream
  bool scratch = true;            // compute goes through scratch, freed after download
  Waiting waiting = Waiting::poll;
};

class TinyPipeline {
 public:
  // Called at the begin of each stage of each item.
  using Hook = std::function<void(const std::string& stage, Item& item)>;

  TinyPipeline(const Device& device, TinyOptions options);

  // Runs and checks that what came out is what went in, item by item.
  RunReport run(RunOptions run_options);
  // As run(), to the end; any failure is the test's.
  void run_well(std::uint64_t items);

  Hook hook;
  static const std::vector<std::string> stages;

 private:
  static constexpr std::size_t bytes = 64;

  void build();
  // A stage on the device, on the stream whose turn it is.
  StageId device_stage(std::size_t stage, StageOptions stage_options, StageFunction function);
  // A stage on the host, or a kernel that does the same; it touches one slot, and nothing else.
  StageId edge_stage(std::size_t stage, std::vector<StageId> after, RingId ring, bool writes,
                     std::function<void(std::uint64_t* slot, std::uint64_t item)> function);
  StageFunction with_hook(std::size_t stage, StageFunction function);
  // Runs `function` in the item's stream.
  void kernel(Item& item, std::vector<Bytes> reads, std::vector<Bytes> writes,
              std::function<void()> function);
  void compute(Item& item);
  void download(Item& item);
  void host_access(MemoryView view, bool write);
  std::uint64_t expected(std::uint64_t item) const;

  TinyOptions options_;
  Pipeline pipeline_;
  RingId in_, work_, out_;
  StageId read_, upload_, compute_, download_, write_;
  std::vector<std::uint64_t> written_;  // by the last stage
};

}  // namespace ps::test
