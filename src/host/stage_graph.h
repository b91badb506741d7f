// The stages and rings of a pipeline or a session, and what each stage must wait for.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "penstock/host/buffer.h"
#include "penstock/host/pool.h"
#include "penstock/host/stage.h"

namespace ps::detail {

// Stage S does item i only when `stage` has done item i - lag. Lag 0: the data is there. Lag d: the
// slot, which item i - d used before, is free again.
struct Dependency {
  std::size_t stage = 0;
  std::size_t lag = 0;
};

struct Ring {
  std::string name;
  Memory memory = Memory::pinned;
  std::size_t bytes = 0, depth = 0;
  std::vector<std::size_t> users;  // stages, in order; the first acquires
  // One of the two holds every slot, in one piece.
  PinnedBuffer pinned;
  DeviceBuffer device;

  MemoryView slot(std::uint64_t item) const;
};

struct Stage {
  std::string name;
  StageFunction function;  // of a device stage
  AsyncFunction async;     // of a host stage: begins an item, which may end later
  bool on_host = false;
  Engine engine = Engine::compute;
  Priority priority = Priority::normal;
  std::optional<Stream> stream;  // device stages only; made before the first run
  std::vector<std::size_t> rings;
  std::vector<Dependency> dependencies;
  std::vector<std::size_t> ancestors;  // stages that are done with an item when this one is
  bool tracked = false;                // the host must learn of its completions
  std::vector<Event> done;             // per item in flight; device stages only
  std::vector<Event> begin, end;       // with timing; made when first recorded
};

struct GraphOptions {
  Device device;
  std::size_t depth = 4;  // slots per ring, unless the ring sets its own
  std::optional<Pool> pool{};
  Waiting waiting = Waiting::poll;
  std::size_t window = 0;  // 0: chosen by the depth of the rings
};

class StageGraph {
 public:
  explicit StageGraph(GraphOptions options);

  RingId add_ring(std::string_view name, const RingOptions& options);
  StageId add_device_stage(std::string_view name, StageOptions options, StageFunction function);
  StageId add_host_stage(std::string_view name, const HostStageOptions& options,
                         StageFunction function);
  StageId add_async_stage(std::string_view name, const HostStageOptions& options,
                          AsyncFunction function);

  // Makes what is needed to run and is not there yet; throws with nothing half made in use. `call`
  // names the public function, for errors; `after`: the stream that a run follows, or null.
  void prepare(const char* call, const Recorder* recorder, const Stream* after);

  // Whether device work is timed by events: unless the recorder sees a GPU by itself.
  bool times_device(const Recorder* recorder) const;

  bool precedes(std::size_t earlier, std::size_t later) const;
  bool is_last(std::size_t stage) const;  // no stage comes after it
  Pool& pool();

  GraphOptions options;
  std::vector<Ring> rings;
  std::vector<Stage> stages;
  std::size_t window = 0;  // items a stage may be ahead of what the host knows to be complete
  bool running = false;
  std::optional<Event> fork;  // recorded on the caller's stream, when a run is to follow one

 private:
  StageId add_stage(std::string_view name, Stage stage, const std::vector<StageId>& after,
                    const std::vector<RingId>& uses);
  void check_name(std::string_view name) const;
  void link_rings();
  void track();

  std::vector<std::vector<bool>> precedes_;  // [later][earlier], closed over the graph
  bool linked_ = false;
};

}  // namespace ps::detail
