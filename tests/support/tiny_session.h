// The job of TinyPipeline, for a Session: read, upload, compute with scratch, download, write.
// Items that are resident need no read and no upload. It runs on the CPU and on the fake driver,
// which then sees every access to memory.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "fake/fake_driver.h"
#include "penstock/host/session.h"

namespace ps::test {

struct TinyLoad : std::enable_shared_from_this<TinyLoad> {
  std::uint64_t value = 0;
  bool resident = false;
  std::uint64_t result = 0;  // by the last stage
};

struct TinySessionOptions {
  std::size_t depth = 2;
  std::size_t in_flight = 8;
  WhenExhausted when_full = WhenExhausted::wait;
  FakeDriver* driver = nullptr;   // of the fake GPU; null on the CPU
  bool host_stages = true;        // read and write are host stages; else kernels
  std::vector<Stream> streams{};  // for the device stages in turn; none: their own
  bool host_calls = false;        // download ends with a host function in its stream
  Waiting waiting = Waiting::poll;
  Recorder* recorder = nullptr;
};

class TinySession {
 public:
  // Called at the begin of each stage of each item.
  using Hook = std::function<void(const std::string& stage, Item& item)>;

  struct Pushed {
    Ticket ticket;
    std::shared_ptr<TinyLoad> load;
  };

  TinySession(const Device& device, TinySessionOptions options);

  Pushed push(std::uint64_t value, bool resident = false);
  // Waits for the item and checks its result; throws what the item failed with.
  void check(const Pushed& item) const;
  // Pushes items, every third one resident, and checks all; any failure is the test's.
  void run_well(std::uint64_t items);

  Hook hook;  // to be changed only while no item is in flight
  Session session;
  static const std::vector<std::string> stages;

 private:
  static constexpr std::size_t bytes = 64;

  void build();
  StageId device_stage(std::size_t stage, StageOptions options, StageFunction function,
                       StageCondition when = {});
  // A stage on the host, or a kernel that does the same; it touches one slot, and nothing else.
  StageId edge_stage(std::size_t stage, std::vector<StageId> after, RingId ring, bool writes,
                     std::function<void(std::uint64_t* slot, TinyLoad& load)> function,
                     StageCondition when = {});
  StageFunction with_hook(std::size_t stage, StageFunction function);
  void kernel(Item& item, std::vector<Bytes> reads, std::vector<Bytes> writes,
              std::function<void()> function);
  void compute(Item& item);
  void download(Item& item);
  void host_access(MemoryView view, bool write);

  TinySessionOptions options_;
  RingId in_, work_, out_;
  StageId read_, upload_, compute_, download_, write_;
};

}  // namespace ps::test
