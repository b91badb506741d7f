// A stream-ordered pool of a GPU: the driver's own.
#pragma once

#include <atomic>

#include "host/cuda/backend.h"

namespace ps::cuda {

class Pool final : public detail::PoolImpl {
 public:
  Pool(std::shared_ptr<Backend> backend, const PoolOptions& options);
  ~Pool() override;

  void* allocate(std::size_t bytes, detail::StreamImpl& stream) override;
  void free(void* data, std::size_t bytes, detail::StreamImpl& stream) noexcept override;
  void trim(std::size_t keep) override;
  PoolStatistics statistics() override;
  detail::Backend& backend() override { return *backend_; }

 private:
  std::shared_ptr<Backend> backend_;
  PoolOptions options_;
  PoolHandle handle_ = nullptr;
  std::atomic<std::size_t> allocations_{0}, failures_{0};
};

}  // namespace ps::cuda
