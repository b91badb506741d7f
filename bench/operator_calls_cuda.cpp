// What a call of an operator costs the host in C++: the time until it returns when calls follow
// each other, the kernels and other operations that it enqueues, and the time of the first call,
// which loads the kernels that no case before it uses. Writes bench/results/operator_calls.json.
//
//   bench_operator_calls --output bench/results/operator_calls.json
#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "penstock/base/units.h"
#include "penstock/host/buffer.h"
#include "penstock/host/cuda.h"
#include "penstock/measure/limits.h"
#include "penstock/measure/timing.h"
#include "penstock/ops/attention.h"
#include "penstock/ops/moe.h"
#include "penstock/ops/route.h"
#include "support/guarded.h"
#include "support/results.h"

namespace {

using bench::Json;
using ps::DType;

struct Settings {
  std::string output, device = "best";
  int batches = 41;
};

// Calls of a batch are few enough for the stream's queue. The first ones wake the caches up.
constexpr int calls_of_batch = 40, waking_calls = 10;

// Device memory with random bf16 numbers between -1/8 and 1/8.
class Numbers {
 public:
  Numbers(const ps::Device& device, std::int64_t count, std::uint32_t seed)
      : buffer_(device, static_cast<std::size_t>(count) * 2) {
    const std::size_t piece = std::min<std::size_t>(buffer_.bytes(), 4 * ps::MiB);
    const ps::PinnedBuffer drawn(device, piece);
    std::mt19937 random(seed);
    auto* bits = drawn.view().as<std::uint16_t>();
    for (std::size_t i = 0; i < piece / 2; ++i) {
      // A sign, an exponent of 2^-4 or less, and a fraction.
      const auto word = static_cast<std::uint32_t>(random());
      bits[i] = static_cast<std::uint16_t>((word & 0x8000U) | ((120 + (word >> 16U) % 4) << 7U) |
                                           (word & 0x7fU));
    }
    const ps::Stream stream(device);
    for (std::size_t at = 0; at < buffer_.bytes(); at += piece) {
      const std::size_t bytes = std::min(piece, buffer_.bytes() - at);
      ps::copy(buffer_.view().sub(at, bytes), drawn.view().sub(0, bytes), stream);
    }
    stream.synchronize();
  }
  template <class... Extents>
  ps::TensorView as(Extents... extents) const {
    return {buffer_.view().data,
            DType::bf16,
            {static_cast<std::int64_t>(extents)...},
            buffer_.view().place};
  }

 private:
  ps::DeviceBuffer buffer_;
};

// A call with everything that it needs.
struct Operation {
  std::string name;
  Json params{};
  std::function<void(const ps::Stream&)> call{};
  ps::MemoryView out{};
  std::vector<std::shared_ptr<void>> kept{};
};

template <class T, class... Arguments>
T& keep(Operation& operation, Arguments&&... arguments) {
  auto made = std::make_shared<T>(std::forward<Arguments>(arguments)...);
  operation.kept.push_back(made);
  return *made;
}

ps::DeviceBuffer& memory_of(Operation& operation, const ps::Device& device, std::size_t bytes) {
  return keep<ps::DeviceBuffer>(operation, device, std::max<std::size_t>(bytes, 256));
}

// The experts of one layer, with the shape of Qwen3-30B-A3B.
struct Layer {
  static constexpr std::int64_t hidden = 2048, width = 768, experts = 128, choices = 8;
  explicit Layer(const ps::Device& device)
      : gate_up(device, experts * 2 * width * hidden, 1),
        down(device, experts * hidden * width, 2) {}
  Numbers gate_up, down;
};

enum class Routing { in_the_call, before };

Operation moe_of(const ps::Device& device, const Layer& layer, std::int64_t tokens,
                 Routing routing) {
  Operation made{.name = fmt::format("{}, {} token{}",
                                     routing == Routing::before ? "moe" : "route and moe", tokens,
                                     tokens > 1 ? "s" : "")};
  made.params = {{"tokens", tokens},
                 {"hidden", Layer::hidden},
                 {"width", Layer::width},
                 {"experts", Layer::experts},
                 {"choices", Layer::choices}};
  const auto pairs = static_cast<std::size_t>(tokens * Layer::choices);
  const ps::TensorView x =
      keep<Numbers>(made, device, tokens * Layer::hidden, 3).as(tokens, Layer::hidden);
  const ps::TensorView logits =
      keep<Numbers>(made, device, tokens * Layer::experts, 4).as(tokens, Layer::experts);
  const ps::MemoryView ids = memory_of(made, device, pairs * 4).view();
  const ps::MemoryView weights = memory_of(made, device, pairs * 4).view();
  const ps::DeviceBuffer& out =
      memory_of(made, device, static_cast<std::size_t>(tokens * Layer::hidden) * 2);
  ps::MoeOptions options{
      .x = x,
      .gate_up = layer.gate_up.as(Layer::experts, 2 * Layer::width, Layer::hidden),
      .down = layer.down.as(Layer::experts, Layer::hidden, Layer::width),
      .ids = {ids.data, DType::i32, {tokens, Layer::choices}, ids.place},
      .weights = {weights.data, DType::f32, {tokens, Layer::choices}, weights.place},
      .out = {out.view().data, DType::bf16, {tokens, Layer::hidden}, out.view().place}};
  options.workspace = memory_of(made, device, ps::moe_workspace_bytes(options)).view();
  made.out = out.view().sub(0, static_cast<std::size_t>(tokens * Layer::hidden) * 2);
  const auto route = [options, logits](const ps::Stream& stream) {
    ps::route(
        {.logits = logits, .ids = options.ids, .weights = options.weights, .renormalise = true},
        stream);
  };
  if (routing == Routing::before) {
    const ps::Stream stream(device);
    route(stream);
    stream.synchronize();
    made.call = [options](const ps::Stream& on) { ps::moe(options, on); };
  } else {
    made.call = [options, route](const ps::Stream& stream) {
      route(stream);
      ps::moe(options, stream);
    };
  }
  return made;
}

Operation attention_of(const ps::Device& device, std::int64_t sequences, std::int64_t queries,
                       std::int64_t keys) {
  constexpr std::int64_t heads = 32, heads_kv = 8, dim = 128;
  Operation made{.name =
                     fmt::format("attention, {} x {} queries, {} keys", sequences, queries, keys)};
  made.params = {{"sequences", sequences}, {"queries", queries},   {"keys", keys},
                 {"heads", heads},         {"heads_kv", heads_kv}, {"dim", dim}};
  const auto drawn = [&](std::int64_t rows, std::int64_t of, std::uint32_t seed) {
    return keep<Numbers>(made, device, sequences * rows * of * dim, seed)
        .as(sequences, rows, of, dim);
  };
  const ps::TensorView q = drawn(queries, heads, 5);
  const ps::DeviceBuffer& out = memory_of(made, device, q.bytes());
  ps::AttentionOptions options{.q = q,
                               .k = drawn(keys, heads_kv, 6),
                               .v = drawn(keys, heads_kv, 7),
                               .out = {out.view().data, DType::bf16, q.shape(), out.view().place},
                               .causal = true};
  options.workspace = memory_of(made, device, ps::attention_workspace_bytes(options)).view();
  made.out = out.view().sub(0, q.bytes());
  made.call = [options](const ps::Stream& stream) { ps::attention(options, stream); };
  return made;
}

void expect(cudaError_t error) {
  if (error != cudaSuccess) throw std::runtime_error(cudaGetErrorString(error));
}

struct Captured {
  std::size_t kernels = 0, others = 0;  // nodes of its graph
};

// Captures a call, replays it, and compares with what the call itself wrote: both outputs were
// filled with a value that neither writes.
Captured checked(const Operation& operation, const ps::Stream& stream) {
  const ps::PinnedBuffer called(stream.device(), operation.out.bytes),
      replayed(stream.device(), operation.out.bytes);
  const auto poison = [&] { ps::fill(operation.out, 0xff, stream); };
  poison();
  operation.call(stream);
  ps::copy(called.view(), operation.out, stream);
  stream.synchronize();
  const auto* bits = called.view().as<std::uint16_t>();
  for (std::size_t i = 0; i < operation.out.bytes / 2; ++i) {
    if ((bits[i] & 0x7f80U) == 0x7f80U) {
      throw std::runtime_error(
          fmt::format("{}: element {} is not finite, or was not written", operation.name, i));
    }
  }
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t runnable = nullptr;
  expect(cudaStreamBeginCapture(ps::cuda_stream(stream), cudaStreamCaptureModeThreadLocal));
  operation.call(stream);
  expect(cudaStreamEndCapture(ps::cuda_stream(stream), &graph));
  std::size_t count = 0;
  expect(cudaGraphGetNodes(graph, nullptr, &count));
  std::vector<cudaGraphNode_t> nodes(count);
  expect(cudaGraphGetNodes(graph, nodes.data(), &count));
  Captured captured;
  for (cudaGraphNode_t node : nodes) {
    cudaGraphNodeType type{};
    expect(cudaGraphNodeGetType(node, &type));
    ++(type == cudaGraphNodeTypeKernel ? captured.kernels : captured.others);
  }
  expect(cudaGraphInstantiate(&runnable, graph, 0));
  poison();
  expect(cudaGraphLaunch(runnable, ps::cuda_stream(stream)));
  ps::copy(replayed.view(), operation.out, stream);
  stream.synchronize();
  expect(cudaGraphExecDestroy(runnable));
  expect(cudaGraphDestroy(graph));
  if (std::memcmp(called.view().data, replayed.view().data, operation.out.bytes) != 0) {
    throw std::runtime_error(operation.name + ": a call and its replay gave different bits");
  }
  return captured;
}

std::vector<Operation> operations(const ps::Device& device, const Layer& layer) {
  std::vector<Operation> all;
  for (const Routing routing : {Routing::in_the_call, Routing::before}) {
    for (const std::int64_t tokens : {1, 8, 64, 256, 1024, 4096, 16384}) {
      all.push_back(moe_of(device, layer, tokens, routing));
    }
  }
  all.push_back(attention_of(device, 4, 4096, 4096));
  all.push_back(attention_of(device, 64, 1, 4096));
  return all;
}

// Seconds per call until it returns.
double enqueued(const Operation& operation, const ps::Stream& stream) {
  for (int call = 0; call < waking_calls; ++call) operation.call(stream);
  const double seconds = ps::seconds_of([&] {
    for (int call = waking_calls; call < calls_of_batch; ++call) operation.call(stream);
  });
  stream.synchronize();
  return seconds / (calls_of_batch - waking_calls);
}

// Seconds until the work of one call is done.
double done(const Operation& operation, const ps::Stream& stream) {
  return ps::seconds_of([&] {
    operation.call(stream);
    stream.synchronize();
  });
}

void run(const Settings& settings) {
  const ps::Device device = ps::Device::parse(settings.device);
  if (device.kind() != ps::DeviceKind::cuda) throw std::runtime_error("needs a GPU");
  ps::LimitsOptions limits = ps::quick_limits();
  limits.disk = false;
  bench::Results results("operator_calls", device, ps::measure_limits(device, limits));
  const Layer layer(device);
  const ps::Stream stream(device);
  const std::vector<Operation> all = operations(device, layer);
  std::vector<double> first_seconds;
  std::vector<Captured> captured;
  for (const Operation& operation : all) {
    first_seconds.push_back(done(operation, stream));
    captured.push_back(checked(operation, stream));
  }
  std::vector<std::vector<double>> seconds(all.size()), calls(all.size());
  for (int batch = 0; batch < settings.batches; ++batch) {
    for (std::size_t i = 0; i < all.size(); ++i) {
      seconds[i].push_back(enqueued(all[i], stream));
      calls[i].push_back(done(all[i], stream));
    }
  }
  for (std::size_t i = 0; i < all.size(); ++i) {
    const double host_us = bench::microseconds(ps::median(seconds[i]));
    const double first_us = bench::microseconds(first_seconds[i]);
    fmt::print(
        "{:<40} {:6.1f} us per call, {} kernels, {} other operations, first call {:.1f} ms\n",
        all[i].name, host_us, captured[i].kernels, captured[i].others, first_us * 1e-3);
    results.add({{"case", all[i].name},
                 {"params", all[i].params},
                 {"correct", true},
                 {"max_error", 0},
                 {"tolerance", 0},
                 {"ours", {{"call_us", bench::microseconds(ps::median(calls[i]))}}},
                 {"peer", Json::object()},
                 {"metrics",
                  {{"enqueue_us", host_us},
                   {"launches", captured[i].kernels},
                   {"other_operations", captured[i].others},
                   {"first_call_us", first_us}}}});
  }
  if (!settings.output.empty()) results.write(settings.output);
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("What a call of an operator costs the host in C++");
  Settings settings;
  app.add_option("--output", settings.output, "Results file to write");
  app.add_option("--device", settings.device, "cuda, cuda:N or best");
  app.add_option("--batches", settings.batches, "Batches of calls; the median counts")
      ->check(CLI::Range(1, 1000));
  CLI11_PARSE(app, argc, argv);
  return bench::guarded("bench_operator_calls", [&] { run(settings); });
}
