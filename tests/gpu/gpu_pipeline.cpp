#include "gpu/gpu_pipeline.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <thread>
#include <utility>

#include "gpu/gpu_test.h"
#include "penstock/host/cuda.h"
#include "penstock/ops/iterate.h"

namespace ps::test {

const std::vector<std::string> GpuPipeline::stages = {"read", "upload", "compute", "download",
                                                      "write"};

GpuPipeline::GpuPipeline(const Device& device, GpuPipelineOptions options)
    : options_(std::move(options)),
      input_(device, most_items * slot_bytes),
      output_(device, most_items * slot_bytes),
      expected_(most_items * slot_bytes, std::byte{poison}),
      pipeline_({.device = device,
                 .depth = options_.depth,
                 .pool = options_.pool,
                 .waiting = options_.waiting}),
      computed_(most_items) {
  std::mt19937 random(7);
  std::uniform_real_distribution<float> uniform(-4.0F, 4.0F);
  auto* const expected = reinterpret_cast<float*>(expected_.data());
  for (std::uint64_t item = 0; item < most_items; ++item) {
    for (std::size_t i = item * most_floats; i < item * most_floats + floats_of(item); ++i) {
      input_.view().as<float>()[i] = uniform(random);
      expected[i] = iterated(input_.view().as<float>()[i], rounds_of(item));
    }
  }
  build();
}

void GpuPipeline::build() {
  work_ = pipeline_.ring("work", {.memory = Memory::device, .bytes = slot_bytes});
  std::vector<StageId> read;
  std::vector<RingId> upload_uses{work_}, download_uses{work_};
  if (options_.host_stages) {
    in_ = pipeline_.ring("in", {.memory = Memory::pinned, .bytes = slot_bytes});
    out_ = pipeline_.ring("out", {.memory = Memory::pinned, .bytes = slot_bytes});
    upload_uses.push_back(in_);
    download_uses.push_back(out_);
    read = {host_stage("read", {.uses = {in_}}, [this](Item& item) {
      const MemoryView from = part(input_, item.index());
      std::memcpy(item.slot(in_).data, from.data, from.bytes);
    })};
  }
  const auto upload = device_stage(
      "upload", {.after = read, .uses = upload_uses, .engine = Engine::upload}, [this](Item& item) {
        const std::size_t bytes = bytes_of(item.index());
        copy(item.slot(work_).sub(0, bytes),
             options_.host_stages ? item.slot(in_).sub(0, bytes) : part(input_, item.index()),
             item.stream());
      });
  const auto compute_stage = device_stage("compute", {.after = {upload}, .uses = {work_}},
                                          [this](Item& item) { compute(item); });
  download_ = device_stage(
      "download", {.after = {compute_stage}, .uses = download_uses, .engine = Engine::download},
      [this](Item& item) { download(item); });
  if (!options_.host_stages) return;
  host_stage("write", {.after = {download_}, .uses = {out_}}, [this](Item& item) {
    const MemoryView to = part(output_, item.index());
    std::memcpy(to.data, item.slot(out_).data, to.bytes);
    delivered_.push_back(item.index());
  });
}

StageId GpuPipeline::device_stage(const std::string& name, StageOptions stage_options,
                                  StageFunction function) {
  if (!options_.streams.empty()) {
    const auto place = std::find(stages.begin(), stages.end(), name) - stages.begin();
    stage_options.stream =
        options_.streams[static_cast<std::size_t>(place) % options_.streams.size()];
  }
  return pipeline_.stage(name, std::move(stage_options),
                         [this, name, function = std::move(function)](Item& item) {
                           seen_.push_back(cuda_stream(item.stream()));
                           if (hook) hook(name, item);
                           function(item);
                         });
}

StageId GpuPipeline::host_stage(const std::string& name, HostStageOptions stage_options,
                                StageFunction function) {
  return pipeline_.host_stage(name, std::move(stage_options),
                              [this, name, function = std::move(function)](Item& item) {
                                if (hook) hook(name, item);
                                function(item);
                              });
}

// Half of the rounds into scratch of this stage, the rest into scratch that download frees.
void GpuPipeline::compute(Item& item) {
  const std::size_t count = floats_of(item.index());
  const MemoryView middle = item.scratch(count * sizeof(float));
  const MemoryView result = item.scratch(count * sizeof(float) + item.index() % 3, download_);
  iterate({.in = floats(item.slot(work_), 0, count), .out = floats(middle, 0, count), .rounds = 3},
          item.stream());
  iterate({.in = floats(middle, 0, count),
           .out = floats(result, 0, count),
           .rounds = rounds_of(item.index()) - 3},
          item.stream());
  fill(middle, poison, item.stream());
  fill(item.slot(work_), poison, item.stream());
  computed_[item.index()] = result;
}

void GpuPipeline::download(Item& item) {
  const MemoryView result = computed_[item.index()].sub(0, bytes_of(item.index()));
  if (options_.host_stages) {
    copy(item.slot(out_).sub(0, result.bytes), result, item.stream());
    return;
  }
  copy(part(output_, item.index()), result, item.stream());
  item.stream().call([this, index = item.index()] {
    std::this_thread::sleep_for(delivery);
    delivered_.push_back(index);
  });
}

RunReport GpuPipeline::run(RunOptions run_options) {
  EXPECT_LE(run_options.items, most_items);
  delivered_.clear();
  seen_.clear();
  std::memset(output_.view().data, poison, output_.bytes());
  const std::uint64_t items = run_options.items;
  RunReport report = pipeline_.run(std::move(run_options));
  EXPECT_EQ(report.items < items, report.cancelled);
  check(report.items);
  return report;
}

void GpuPipeline::run_well(std::uint64_t items) {
  try {
    EXPECT_EQ(run({.items = items}).items, items);
  } catch (const std::exception& error) {
    ADD_FAILURE() << "the pipeline does not run: " << error.what();
  }
}

void GpuPipeline::check(std::uint64_t items) const {
  ASSERT_EQ(delivered_.size(), items);
  for (std::uint64_t item = 0; item < items; ++item) {
    ASSERT_EQ(delivered_[item], item);
    const std::byte* const got = output_.view().data + item * slot_bytes;
    const std::byte* const wanted = expected_.data() + item * slot_bytes;
    const auto differs = std::mismatch(wanted, wanted + slot_bytes, got).first - wanted;
    ASSERT_EQ(static_cast<std::size_t>(differs), slot_bytes)
        << "item " << item << " of " << bytes_of(item) << " bytes differs at byte " << differs;
  }
}

}  // namespace ps::test
