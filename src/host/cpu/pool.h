// A stream-ordered pool of ordinary memory.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <unordered_map>
#include <utility>
#include <vector>

#include "host/backend.h"
#include "host/cpu/heap.h"

namespace ps::cpu {

class Pool final : public detail::PoolImpl {
 public:
  Pool(std::shared_ptr<detail::Backend> backend, std::shared_ptr<Heap> heap,
       const PoolOptions& options)
      : backend_(std::move(backend)), blocks_(std::make_shared<Blocks>(std::move(heap), options)) {}

  void* allocate(std::size_t bytes, detail::StreamImpl& stream) override;
  void free(void* data, std::size_t bytes, detail::StreamImpl& stream) noexcept override;
  void trim(std::size_t keep) override;
  PoolStatistics statistics() override;
  detail::Backend& backend() override { return *backend_; }

 private:
  struct Block {
    std::size_t bytes = 0;
    const void* freed_on = nullptr;  // stream that will reach the free; null once it did
    std::uint64_t free_number = 0;   // tells a reached free from a block taken again meanwhile
  };

  // Outlives the pool while frees are on their way.
  struct Blocks {
    Blocks(std::shared_ptr<Heap> h, const PoolOptions& o) : heap(std::move(h)), options(o) {}
    ~Blocks();
    // With the mutex held.
    void release_down_to(std::size_t reserved);
    void reach(std::uint64_t free_number, void* data);

    std::shared_ptr<Heap> heap;
    std::mutex mutex;
    PoolOptions options;
    PoolStatistics statistics;
    std::unordered_map<void*, Block> used;    // handed out
    std::multimap<std::size_t, void*> ready;  // free for any stream, by size
    std::unordered_map<void*, Block> freed;   // free for the stream that freed them
    std::uint64_t frees = 0;
    std::set<std::uint64_t> unreached;       // frees that their streams have not reached
    std::map<std::uint64_t, void*> leaving;  // blocks that go back to the heap then, by free
    std::condition_variable reached;
  };
  // Memory that may be touched once these frees have been reached.
  struct Promise {
    void* data = nullptr;
    std::vector<std::uint64_t> frees{};
  };

  void* take(std::size_t bytes, const void* stream);
  void* take_fresh(std::size_t bytes);
  Promise take_unreached(std::size_t bytes);
  void wait_for(std::vector<std::uint64_t> frees, detail::StreamImpl& stream);
  std::optional<std::size_t> room_beside(std::size_t bytes) const;

  std::shared_ptr<detail::Backend> backend_;
  std::shared_ptr<Blocks> blocks_;
};

}  // namespace ps::cpu
