#include "fake/simulation.h"

#include <atomic>
#include <cstdlib>
#include <unordered_map>
#include <utility>

namespace ps::test {
namespace {

std::uint64_t next_serial() {
  static std::atomic<std::uint64_t> serial{0};
  return ++serial;
}

// The simulation whose host function this thread is running.
thread_local const Simulation* running_host_function_of = nullptr;

}  // namespace

Simulation::Simulation(FakeOptions fake_options)
    : options(std::move(fake_options)),
      addresses(options.granularity),
      pinned{.total = options.pinned_bytes},
      devices(static_cast<std::size_t>(options.devices),
              FakeDevice{.memory = {.total = options.device_bytes}}),
      serial_(next_serial()) {}

Simulation::~Simulation() {
  for (void* memory : heap) std::free(memory);
}

void Simulation::close() {
  Lock lock(mutex);
  closing = true;
  for (const auto& stream : streams) stream->arrived.notify_all();
  changed.notify_all();
  const int own = inside_host_function() ? 1 : 0;
  // A host function that never returns keeps its thread and this simulation, but not the caller.
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (threads > own && std::chrono::steady_clock::now() < deadline) {
    changed.wait_until(lock, deadline);
  }
}

CallerState& Simulation::caller() {
  thread_local std::unordered_map<std::uint64_t, std::shared_ptr<CallerState>> states;
  std::shared_ptr<CallerState>& state = states[serial_];
  if (!state) {
    state = std::make_shared<CallerState>();
    callers.push_back(state);
  }
  return *state;
}

bool Simulation::inside_host_function() const { return running_host_function_of == this; }

std::shared_ptr<FakeStream> Simulation::start_stream(int device, bool owned) {
  auto stream = std::make_shared<FakeStream>();
  stream->number = static_cast<StreamNumber>(streams.size());
  stream->device = device;
  stream->owned = owned;
  stream->random.seed(static_cast<unsigned>(options.seed * 7919 + stream->number + 1));
  streams.push_back(stream);
  ++threads;
  // Detached and owning what it uses, so that nobody has to join it from an awkward place.
  std::thread([self = shared_from_this(), stream] { self->loop(*stream); }).detach();
  return stream;
}

Operation Simulation::next_operation(const FakeStream& stream, const char* call) const {
  Operation operation{.what = std::string(call) + " on " + stream.name(),
                      .stream = stream.number,
                      .tick = stream.enqueued + 1,
                      .clock = stream.clock,
                      .device = stream.device};
  host.strip(operation.clock);
  operation.clock.raise(operation.stream, operation.tick);
  return operation;
}

Tick Simulation::enqueue(FakeStream& stream, Work work, Tick ticks) {
  stream.enqueued += ticks;
  host.strip(stream.clock);
  stream.clock.raise(stream.number, stream.enqueued);
  work.tick = stream.enqueued;
  stream.queue.push_back(std::move(work));
  stream.arrived.notify_one();
  return stream.enqueued;
}

bool Simulation::reached(const FakeStream& stream, Tick tick) const {
  return stream.completed >= tick;
}

void Simulation::wait_for(Lock& lock, const FakeStream& stream, Tick tick) {
  changed.wait(lock, [&] { return reached(stream, tick) || stopped(stream); });
}

void Simulation::lose(int device, cuda::Status status) {
  FakeDevice& lost = devices[static_cast<std::size_t>(device)];
  if (lost.lost != cuda::success) return;
  lost.lost = status;
  for (const auto& stream : streams) {
    if (stream->device != device) continue;
    host.learn(stream->number, stream->enqueued);  // nothing of it will happen any more
    ledger.remove_gates(stream->number, stream->enqueued);
    stream->arrived.notify_all();
  }
  changed.notify_all();
}

void Simulation::settle(Lock& lock) {
  changed.wait(lock, [&] {
    for (const auto& stream : streams) {
      if (stream->touching_memory && stopped(*stream)) return false;
    }
    return true;
  });
}

void Simulation::loop(FakeStream& stream) {
  Lock lock(mutex);
  for (;;) {
    stream.arrived.wait(lock, [&] { return !stream.queue.empty() || stream.destroyed || closing; });
    if (stream.queue.empty() || closing) break;
    Work work = std::move(stream.queue.front());
    stream.queue.pop_front();
    if (!stopped(stream)) run(lock, stream, work);
    if (work.finished) work.finished();
    for (std::string& complaint : ledger.remove_gates(stream.number, work.tick)) {
      if (!stopped(stream)) violation(std::move(complaint));
    }
    stream.completed = work.tick;
    changed.notify_all();
  }
  stream.queue.clear();
  stream.completed = stream.enqueued;
  --threads;
  changed.notify_all();
}

void Simulation::run(Lock& lock, FakeStream& stream, Work& work) {
  if (auto* memory = std::get_if<MemoryWork>(&work.body)) {
    run_memory(lock, stream, *memory);
  } else if (auto* function = std::get_if<HostFunctionWork>(&work.body)) {
    run_host_function(lock, stream, work.tick, *function);
  } else if (auto* wait = std::get_if<EventWork>(&work.body)) {
    const Point& point = wait->point;
    changed.wait(lock, [&] {
      return reached(*point.stream, point.tick) || stopped(*point.stream) || stopped(stream);
    });
  } else if (auto* flag = std::get_if<FlagWork>(&work.body)) {
    wait_for_flag(lock, stream, flag->gate);
  } else if (auto* write = std::get_if<WriteFlagWork>(&work.body)) {
    delay(lock, stream);
    if (stopped(stream)) return;
    std::atomic_ref<std::uint32_t>(*write->flag).store(write->value, std::memory_order_release);
  }
}

void Simulation::run_memory(Lock& lock, FakeStream& stream, MemoryWork& work) {
  delay(lock, stream);
  if (stopped(stream)) return;
  if (work.failure != cuda::success) {
    lose(stream.device, work.failure);
    return;
  }
  if (!work.run) return;
  stream.touching_memory = true;
  lock.unlock();
  work.run();
  lock.lock();
  stream.touching_memory = false;
}

void Simulation::run_host_function(Lock& lock, FakeStream& stream, Tick tick,
                                   HostFunctionWork& work) {
  delay(lock, stream);
  if (stopped(stream)) return;
  host.learn(work.clock);
  host.learn(stream.number, tick - 1);
  lock.unlock();
  running_host_function_of = this;
  work.function(work.data);
  running_host_function_of = nullptr;
  lock.lock();
  host.learn(stream.number, tick);
}

void Simulation::wait_for_flag(Lock& lock, FakeStream& stream, const HostGate& gate) {
  // In this order: the flag of a lost device may be gone.
  while (!stopped(stream) && !gate.open()) {
    lock.unlock();
    std::this_thread::sleep_for(std::chrono::microseconds(20));
    lock.lock();
  }
}

void Simulation::delay(Lock& lock, FakeStream& stream) {
  const unsigned draw = static_cast<unsigned>(stream.random());
  if (options.max_delay_us == 0 || draw % 3 != 0) return;
  lock.unlock();
  std::this_thread::sleep_for(std::chrono::microseconds(draw / 3 % options.max_delay_us));
  lock.lock();
}

}  // namespace ps::test
