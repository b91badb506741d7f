// A pipeline whose stages are Python functions.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "array.h"
#include "penstock/host/pipeline.h"
#include "penstock/trace/timeline.h"
#include "storage.h"

namespace ps::python {

// What ring() and stage() return: the id, and the pipeline that it belongs to.
struct Ring {
  std::string name;
  DType dtype = DType::u8;
  std::vector<std::int64_t> shape;
  std::size_t bytes = 0;  // of a slot
  RingId id;
  std::uint64_t pipeline = 0;
};

struct Stage {
  std::string name;
  StageId id;
  std::uint64_t pipeline = 0;
};

class PipelineOfPython;

// The argument of a stage function; invalid after the call.
class ItemOfPython {
 public:
  ItemOfPython(ps::Item& item, PipelineOfPython& pipeline, const Stream* stream, Lease lease)
      : item_(&item),
        pipeline_(&pipeline),
        stream_(stream),
        lease_(std::move(lease)),
        index_(item.index()) {}

  std::uint64_t index() const { return index_; }  // also later
  Array slot(nb::handle ring) const;
  Stream stream() const;
  bool stopping() const;
  bool over() const { return !*lease_; }

 private:
  ps::Item& item() const;

  ps::Item* item_;
  PipelineOfPython* pipeline_;
  const Stream* stream_;
  Lease lease_;
  std::uint64_t index_;
};

struct PythonRunOptions {
  std::uint64_t items = 0;
  nb::object progress;
  Timeline* recorder = nullptr;
  std::optional<Stream> after{};
};

class PipelineOfPython {
 public:
  PipelineOfPython(const Device& device, std::size_t depth);
  PipelineOfPython(const PipelineOfPython&) = delete;
  PipelineOfPython& operator=(const PipelineOfPython&) = delete;

  Ring ring(std::string name, const RingOptions& options, DType dtype,
            std::vector<std::int64_t> shape);

  // On the CPU a device stage is a host stage too: the work of a Python function there is done when
  // it returns, so it must not run before its inputs are ready.
  Stage device_stage(const std::string& name, nb::object function, const StageOptions& options);
  Stage host_stage(const std::string& name, nb::object function, const HostStageOptions& options);

  // Item i moves slot i of the ring to or from byte offset + i * slot; the last item may be
  // shorter. Nothing of this runs in Python.
  Stage read_stage(const std::string& name, const OpenedFile& file, const Ring& into,
                   std::uint64_t offset, HostStageOptions options);
  Stage write_stage(const std::string& name, const OpenedFile& file, const Ring& from,
                    std::uint64_t offset, std::optional<std::uint64_t> size,
                    HostStageOptions options);

  RunReport run(const PythonRunOptions& options);

  std::vector<StageId> stages_from(nb::handle list) const;  // for `after`
  std::vector<RingId> rings_from(nb::handle list) const;    // for `uses`
  const Ring& ring_from(const char* argument, nb::handle ring) const;

  const Device& device() const { return device_; }
  std::shared_ptr<const void> memory() const { return pipeline_; }  // the slots'
  std::vector<nb::object>& functions() { return functions_; }

 private:
  Stage add(const std::string& name, StageId id);
  void refuse_while_running() const;
  void call(std::size_t function, ps::Item& item, const Stream* stream);

  const std::uint64_t number_;
  Device device_;
  bool running_ = false;
  std::vector<nb::object> functions_;  // here, so that the garbage collector sees them
  std::vector<Ring> rings_;
  std::vector<Stage> stages_;
  std::vector<std::unique_ptr<Stream>> cpu_streams_;  // returned by Item.stream on the CPU
  std::shared_ptr<Pipeline> pipeline_;                // views of its slots share it
};

}  // namespace ps::python
