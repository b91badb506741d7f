#include "support/tiny_pipeline.h"

#include <gtest/gtest.h>

#include <utility>

#include "support/fake_machine.h"

namespace ps::test {

const std::vector<std::string> TinyPipeline::stages = {"read", "upload", "compute", "download",
                                                       "write"};

TinyPipeline::TinyPipeline(const Device& device, TinyOptions options)
    : options_(std::move(options)),
      pipeline_({.device = device, .depth = options_.depth, .waiting = options_.waiting}) {
  build();
}

void TinyPipeline::build() {
  in_ = pipeline_.ring("in", {.memory = Memory::pinned, .bytes = bytes});
  work_ = pipeline_.ring("work", {.memory = Memory::device, .bytes = bytes});
  out_ = pipeline_.ring("out", {.memory = Memory::pinned, .bytes = bytes});
  read_ =
      edge_stage(0, {}, in_, true, [](std::uint64_t* slot, std::uint64_t item) { *slot = item; });
  upload_ =
      device_stage(1, {.after = {read_}, .uses = {in_, work_}, .engine = Engine::upload},
                   [this](Item& item) { copy(item.slot(work_), item.slot(in_), item.stream()); });
  compute_ =
      device_stage(2, {.after = {upload_}, .uses = {work_}}, [this](Item& item) { compute(item); });
  download_ =
      device_stage(3, {.after = {compute_}, .uses = {work_, out_}, .engine = Engine::download},
                   [this](Item& item) { download(item); });
  write_ = edge_stage(4, {download_}, out_, false,
                      [this](std::uint64_t* slot, std::uint64_t) { written_.push_back(*slot); });
}

StageFunction TinyPipeline::with_hook(std::size_t stage, StageFunction function) {
  return [this, stage, function = std::move(function)](Item& item) {
    if (hook) hook(stages[stage], item);
    function(item);
  };
}

StageId TinyPipeline::device_stage(std::size_t stage, StageOptions stage_options,
                                   StageFunction function) {
  if (!options_.streams.empty()) {
    stage_options.stream = options_.streams[stage % options_.streams.size()];
  }
  return pipeline_.stage(stages[stage], std::move(stage_options),
                         with_hook(stage, std::move(function)));
}

StageId TinyPipeline::edge_stage(
    std::size_t stage, std::vector<StageId> after, RingId ring, bool writes,
    std::function<void(std::uint64_t* slot, std::uint64_t item)> function) {
  if (options_.host_stages) {
    return pipeline_.host_stage(stages[stage], {.after = std::move(after), .uses = {ring}},
                                with_hook(stage, [this, ring, writes, function](Item& item) {
                                  host_access(item.slot(ring), writes);
                                  function(item.slot(ring).as<std::uint64_t>(), item.index());
                                }));
  }
  return device_stage(stage, {.after = std::move(after), .uses = {ring}},
                      [this, ring, writes, function](Item& item) {
                        auto* slot = item.slot(ring).as<std::uint64_t>();
                        const Bytes touched{slot, bytes};
                        kernel(item, {touched},
                               writes ? std::vector{touched} : std::vector<Bytes>{},
                               [function, slot, index = item.index()] { function(slot, index); });
                      });
}

void TinyPipeline::kernel(Item& item, std::vector<Bytes> reads, std::vector<Bytes> writes,
                          std::function<void()> function) {
  if (options_.driver == nullptr) {
    item.stream().call(std::move(function));
  } else {
    launch(*options_.driver, item.stream(), std::move(reads), std::move(writes),
           std::move(function));
  }
}

void TinyPipeline::host_access(MemoryView view, bool write) {
  if (options_.driver == nullptr) return;
  if (write) {
    options_.driver->host_write(view.data, view.bytes);
  } else {
    options_.driver->host_read(view.data, view.bytes);
  }
}

void TinyPipeline::compute(Item& item) {
  const MemoryView data = item.slot(work_);
  MemoryView middle = data;
  if (options_.scratch) {
    item.scratch(bytes);  // freed right after this stage
    middle = item.scratch(bytes + item.index() % 3, download_);
  }
  kernel(item, {{data.data, bytes}}, {{middle.data, bytes}, {data.data, bytes}},
         [value = data.as<std::uint64_t>(), copy = middle.as<std::uint64_t>()] {
           *copy = *value * 3;
           *value = *copy + 1;
         });
}

void TinyPipeline::download(Item& item) {
  copy(item.slot(out_), item.slot(work_), item.stream());
  if (!options_.host_calls) return;
  item.stream().call([this, out = item.slot(out_)] {
    host_access(out, true);
    *out.as<std::uint64_t>() += 5;
  });
}

std::uint64_t TinyPipeline::expected(std::uint64_t item) const {
  return item * 3 + 1 + (options_.host_calls ? 5 : 0);
}

RunReport TinyPipeline::run(RunOptions run_options) {
  written_.clear();
  const std::uint64_t items = run_options.items;
  RunReport report = pipeline_.run(std::move(run_options));
  EXPECT_EQ(report.items, written_.size());
  EXPECT_EQ(report.items < items, report.cancelled);
  for (std::uint64_t i = 0; i < written_.size(); ++i) EXPECT_EQ(written_[i], expected(i)) << i;
  return report;
}

void TinyPipeline::run_well(std::uint64_t items) {
  try {
    EXPECT_EQ(run({.items = items}).items, items);
  } catch (const std::exception& error) {
    ADD_FAILURE() << "the pipeline does not run: " << error.what();
  }
}

}  // namespace ps::test
