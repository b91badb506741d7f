#include <cuda_runtime_api.h>

#include <algorithm>
#include <stdexcept>
#include <string>
#include <vector>

#include "penstock/host/cuda.h"
#include "penstock/ops/iterate.h"
#include "support/plain_loop.h"

namespace bench {
namespace {

void check(cudaError_t status) {
  if (status != cudaSuccess) {
    throw std::runtime_error(std::string("plain loop: ") + cudaGetErrorString(status));
  }
}

enum { up, work, move, down, engines };

}  // namespace

struct PlainLoop::Parts {
  const ps::Yardstick& yardstick;
  PlainLoopOptions options;
  cudaStream_t streams[engines] = {};
  std::vector<cudaEvent_t> done[engines] = {};  // per slot
  void* slots = nullptr;
  void* moved = nullptr;
};

PlainLoop::PlainLoop(const ps::Yardstick& yardstick, const PlainLoopOptions& options)
    : parts_(std::make_unique<Parts>(Parts{.yardstick = yardstick, .options = options})) {
  Parts& p = *parts_;
  for (int e = 0; e < engines; ++e) {
    check(cudaStreamCreateWithFlags(&p.streams[e], cudaStreamNonBlocking));
    p.done[e].resize(options.depth);
    for (auto& event : p.done[e]) {
      check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    }
  }
  check(cudaMalloc(&p.slots, options.depth * options.chunk));
  check(cudaMalloc(&p.moved, options.depth * options.chunk));
}

PlainLoop::~PlainLoop() {
  cudaDeviceSynchronize();
  for (int e = 0; e < engines; ++e) {
    for (auto& event : parts_->done[e]) cudaEventDestroy(event);
    cudaStreamDestroy(parts_->streams[e]);
  }
  cudaFree(parts_->slots);
  cudaFree(parts_->moved);
}

void PlainLoop::run() {
  Parts& p = *parts_;
  const auto [ways, chunk, depth, rounds] = p.options;
  const std::size_t total = p.yardstick.bytes();
  const ps::Device& device = p.yardstick.device();
  const ps::Stream compute = ps::borrow(device, p.streams[work]);
  const int last = ways == ps::Ways::two ? work : ways == ps::Ways::three ? down : move;
  for (std::size_t at = 0, i = 0; at < total; at += chunk, ++i) {
    const std::size_t bytes = std::min(chunk, total - at), slot = i % depth;
    std::byte* const data = static_cast<std::byte*>(p.slots) + slot * chunk;
    // An event that was never recorded does not hold the first round.
    check(cudaStreamWaitEvent(p.streams[up], p.done[last][slot], 0));
    check(cudaMemcpyAsync(data, p.yardstick.input().data + at, bytes, cudaMemcpyHostToDevice,
                          p.streams[up]));
    check(cudaEventRecord(p.done[up][slot], p.streams[up]));

    check(cudaStreamWaitEvent(p.streams[work], p.done[up][slot], 0));
    const ps::TensorView in = ps::floats({data, bytes, device.place()});
    const ps::TensorView out =
        ways == ps::Ways::two ? ps::floats(p.yardstick.result().sub(at, bytes)) : in;
    ps::iterate({.in = in, .out = out, .rounds = rounds}, compute);
    check(cudaEventRecord(p.done[work][slot], p.streams[work]));
    if (ways == ps::Ways::two) continue;

    const std::byte* source = data;
    cudaEvent_t ready = p.done[work][slot];
    if (ways == ps::Ways::four) {
      std::byte* const moved = static_cast<std::byte*>(p.moved) + slot * chunk;
      check(cudaStreamWaitEvent(p.streams[move], ready, 0));
      check(cudaStreamWaitEvent(p.streams[move], p.done[down][slot], 0));
      check(cudaMemcpyAsync(moved, data, bytes, cudaMemcpyDeviceToDevice, p.streams[move]));
      check(cudaEventRecord(p.done[move][slot], p.streams[move]));
      ready = p.done[move][slot];
      source = moved;
    }
    check(cudaStreamWaitEvent(p.streams[down], ready, 0));
    check(cudaMemcpyAsync(p.yardstick.output().data + at, source, bytes, cudaMemcpyDeviceToHost,
                          p.streams[down]));
    check(cudaEventRecord(p.done[down][slot], p.streams[down]));
  }
  for (cudaStream_t stream : p.streams) check(cudaStreamSynchronize(stream));
}

}  // namespace bench
