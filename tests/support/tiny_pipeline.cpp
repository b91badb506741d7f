#include "support/tiny_pipeline.h"

#include <gtest/gtest.h>

#include <utility>

#include "support/fake_machine.h"

namespace ps::test {

const std::vector<std::string> TinyPipeline::stages = {"read", "upload", "compute", "download",
                                                       "write"};

TinyPipeline::TinyPipeline(const Device& device, TinyOptions options)
    : options_(std::move(options)), pipeline_({.device = device, .depth = options_.depth}) {
  build();
}

StageOptions TinyPipeline::on_stream(std::size_t index, StageOptions stage_options) const {
  if (!options_.streams.empty()) stage_options.stream = options_.streams.at(index);
  return stage_options;
}

void TinyPipeline::host_access(MemoryView view, bool write) {
  if (options_.driver == nullptr) return;
  if (write) {
    options_.driver->host_write(view.data, view.bytes);
  } else {
    options_.driver->host_read(view.data, view.bytes);
  }
}

void TinyPipeline::build() {
  in_ = pipeline_.ring("in", {.memory = Memory::pinned, .bytes = bytes});
  work_ = pipeline_.ring("work", {.memory = Memory::device, .bytes = bytes});
  out_ = pipeline_.ring("out", {.memory = Memory::pinned, .bytes = bytes});
  const auto stage_function = [this](std::size_t stage, auto function) {
    return [this, stage, function](Item& item) {
      if (hook) hook(stages[stage], item);
      function(item);
    };
  };
  read_ = pipeline_.host_stage("read", {.uses = {in_}}, stage_function(0, [this](Item& item) {
                                 host_access(item.slot(in_), true);
                                 *item.slot(in_).as<std::uint64_t>() = item.index();
                               }));
  upload_ = pipeline_.stage(
      "upload", on_stream(0, {.after = {read_}, .uses = {in_, work_}, .engine = Engine::upload}),
      stage_function(
          1, [this](Item& item) { copy(item.slot(work_), item.slot(in_), item.stream()); }));
  compute_ = pipeline_.stage("compute", on_stream(1, {.after = {upload_}, .uses = {work_}}),
                             stage_function(2, [this](Item& item) { compute(item); }));
  download_ = pipeline_.stage(
      "download",
      on_stream(2, {.after = {compute_}, .uses = {work_, out_}, .engine = Engine::download}),
      stage_function(3, [this](Item& item) {
        copy(item.slot(out_), item.slot(work_), item.stream());
        if (!options_.host_calls) return;
        item.stream().call([this, out = item.slot(out_)] {
          host_access(out, true);
          *out.as<std::uint64_t>() += 5;
        });
      }));
  write_ = pipeline_.host_stage("write", {.after = {download_}, .uses = {out_}},
                                stage_function(4, [this](Item& item) {
                                  host_access(item.slot(out_), false);
                                  written_.push_back(*item.slot(out_).as<std::uint64_t>());
                                }));
}

void TinyPipeline::compute(Item& item) {
  const MemoryView data = item.slot(work_);
  MemoryView middle = data;
  if (options_.scratch) {
    item.scratch(bytes);  // freed right after this stage
    middle = item.scratch(bytes + item.index() % 3, download_);
  }
  const auto run = [value = data.as<std::uint64_t>(), copy = middle.as<std::uint64_t>()] {
    *copy = *value * 3;
    *value = *copy + 1;
  };
  if (options_.driver == nullptr) {
    item.stream().call(run);
  } else {
    launch(*options_.driver, item.stream(), {{data.data, bytes}},
           {{middle.data, bytes}, {data.data, bytes}}, run);
  }
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
