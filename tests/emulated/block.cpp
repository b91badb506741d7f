#include "emulated/block.h"

#include <atomic>
#include <bit>
#include <cstdio>
#include <cstdlib>

#include "emulated/cuda.h"

#if defined(__SANITIZE_ADDRESS__)
#define PENSTOCK_EMULATED_ASAN
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define PENSTOCK_EMULATED_ASAN
#endif
#endif
#if defined(PENSTOCK_EMULATED_ASAN) && !__has_include(<sanitizer/asan_interface.h>)
#undef PENSTOCK_EMULATED_ASAN  // a linter, which has no such header
#endif
#ifdef PENSTOCK_EMULATED_ASAN
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

// Saves the registers that a call preserves on this stack and continues on another one.
extern "C" void penstock_emulated_switch(void** save, void* load);
asm(R"(
.text
.globl penstock_emulated_switch
.type penstock_emulated_switch, @function
penstock_emulated_switch:
  push %rbp
  push %rbx
  push %r12
  push %r13
  push %r14
  push %r15
  mov %rsp, (%rdi)
  mov %rsi, %rsp
  pop %r15
  pop %r14
  pop %r13
  pop %r12
  pop %rbx
  pop %rbp
  ret
.size penstock_emulated_switch, .-penstock_emulated_switch
)");

namespace ps::emulated {

struct Stack {
  alignas(16) std::byte bytes[256 * 1024];
};

namespace {

constexpr int saved_registers = 6;

thread_local Block* running_block = nullptr;
// Stacks of threads that have returned, for those of the next block.
thread_local std::vector<std::unique_ptr<Stack>> spare_stacks;
std::atomic<std::uint64_t> block_count{0};

void about_to_switch([[maybe_unused]] void** own, [[maybe_unused]] const void* stack,
                     [[maybe_unused]] std::size_t bytes) {
#ifdef PENSTOCK_EMULATED_ASAN
  __sanitizer_start_switch_fiber(own, stack, bytes);
#endif
}

// NOLINTNEXTLINE(readability-non-const-parameter): without AddressSanitizer it does nothing
void has_switched([[maybe_unused]] void* own, [[maybe_unused]] const void** from,
                  [[maybe_unused]] std::size_t* bytes) {
#ifdef PENSTOCK_EMULATED_ASAN
  __sanitizer_finish_switch_fiber(own, from, bytes);
#endif
}

}  // namespace

Fiber::Fiber(unsigned number, const uint3& index) : number_(number), index_(index) {
  if (spare_stacks.empty()) {
    stack_.reset(new Stack);  // not cleared
  } else {
    stack_ = std::move(spare_stacks.back());
    spare_stacks.pop_back();
  }
  auto* words = reinterpret_cast<void**>(stack_->bytes + sizeof(Stack));
  *--words = nullptr;  // where a caller's return address would be: enter() never returns
  *--words = reinterpret_cast<void*>(&Fiber::enter);
  for (int i = 0; i < saved_registers; ++i) *--words = nullptr;
  stack_pointer_ = static_cast<void*>(words);
}

Fiber::Fiber(Fiber&&) noexcept = default;

Fiber::~Fiber() {
  if (!stack_) return;
#ifdef PENSTOCK_EMULATED_ASAN
  __asan_unpoison_memory_region(stack_->bytes, sizeof(Stack));  // frames that never ended
#endif
  spare_stacks.push_back(std::move(stack_));
}

void Fiber::enter() {
  Block& block = Block::current();
  has_switched(nullptr, &block.scheduler_stack_, &block.scheduler_stack_bytes_);
  block.kernel_();
  block.fiber().ended_ = true;
  block.suspend();
}

Block::Block(const dim3& threads, const std::function<void()>& kernel, unsigned seed)
    : kernel_(kernel), random_(seed), left_(threads.x * threads.y * threads.z) {
  fibers_.reserve(left_);
  for (unsigned i = 0; i < left_; ++i) {
    fibers_.emplace_back(
        i, uint3{i % threads.x, i / threads.x % threads.y, i / threads.x / threads.y});
  }
  warps_.resize((left_ + warp_threads - 1) / warp_threads);
}

Block& Block::current() { return *running_block; }

void Block::run() {
  running_block = this;
  std::vector<Fiber*> ready;
  while (left_ > 0) {
    ready.clear();
    for (Fiber& fiber : fibers_) {
      if (fiber.can_run()) ready.push_back(&fiber);
    }
    if (ready.empty()) report_deadlock();
    // Beginning anywhere, so that warps are not always in the same order.
    const std::size_t first = random_() % ready.size();
    for (std::size_t i = 0; i < ready.size(); ++i) resume(*ready[(first + i) % ready.size()]);
  }
  running_block = nullptr;
  ++block_count;
}

void Block::resume(Fiber& fiber) {
  fiber.awaited_ = nullptr;
  running_ = &fiber;
  threadIdx = fiber.index_;
  about_to_switch(&scheduler_sanitizers_, fiber.stack_->bytes, sizeof(Stack));
  penstock_emulated_switch(&scheduler_, fiber.stack_pointer_);
  has_switched(scheduler_sanitizers_, nullptr, nullptr);
  if (!fiber.ended_) return;
  --left_;
  // Those who wait for all do not wait for threads that have returned.
  if (all_.arrived > 0 && all_.arrived == left_) arrive(all_, all_.arrived);
}

void Block::suspend() {
  Fiber& own = fiber();
  about_to_switch(own.ended_ ? nullptr : &own.sanitizers_, scheduler_stack_,
                  scheduler_stack_bytes_);
  penstock_emulated_switch(&own.stack_pointer_, scheduler_);
  has_switched(own.sanitizers_, &scheduler_stack_, &scheduler_stack_bytes_);
}

void Block::meet(Meeting& meeting, unsigned count, const char* where) {
  if (++meeting.arrived == count) {
    meeting.arrived = 0;
    ++meeting.passed;
    return;
  }
  Fiber& own = fiber();
  own.awaited_ = &meeting.passed;
  own.seen_ = meeting.passed;
  own.where_ = where;
  suspend();
}

void Block::meet_all() { meet(all_, left_, "__syncthreads"); }

void Block::meet_in_warp(unsigned mask, const char* where) {
  if ((mask >> fiber().lane() & 1) == 0) {
    std::fprintf(stderr, "%s: lane %u is not in the mask %x\n", where, fiber().lane(), mask);
    std::abort();
  }
  meet(warp().meetings[mask], static_cast<unsigned>(std::popcount(mask)), where);
}

void Block::arrive(Meeting& meeting, unsigned count) {
  if (meeting.arrived < count) ++meeting.arrived;
  if (meeting.arrived != count) return;
  meeting.arrived = 0;
  ++meeting.passed;
}

void Block::report_deadlock() const {
  std::fprintf(stderr, "block (%u, %u, %u): all threads that are left wait\n", blockIdx.x,
               blockIdx.y, blockIdx.z);
  for (const Fiber& each : fibers_) {
    if (!each.ended_)
      std::fprintf(stderr, "  thread %u at %s\n", each.number_, each.where_.c_str());
  }
  std::abort();
}

void run_grid(const dim3& grid, const dim3& threads, const std::function<void()>& kernel) {
  gridDim = grid;
  blockDim = threads;
  unsigned seed = 0;
  for (unsigned z = 0; z < grid.z; ++z) {
    for (unsigned y = 0; y < grid.y; ++y) {
      for (unsigned x = 0; x < grid.x; ++x) {
        blockIdx = {x, y, z};
        Block(threads, kernel, ++seed).run();
      }
    }
  }
}

std::uint64_t blocks_run() { return block_count; }

}  // namespace ps::emulated
