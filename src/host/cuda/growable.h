// Growth without moving on a GPU: physical pages mapped one after the other behind a reserved
// range.
#pragma once

#include <vector>

#include "host/cuda/backend.h"

namespace ps::cuda {

class Growable final : public detail::GrowableImpl {
 public:
  Growable(std::shared_ptr<Backend> backend, std::size_t capacity);
  ~Growable() override;

  void map(std::size_t bytes) override;
  std::byte* data() const override { return data_; }
  std::size_t mapped() const override { return mapped_; }
  std::size_t capacity() const override { return capacity_; }
  std::size_t page() const override { return page_; }
  detail::Backend& backend() override { return *backend_; }

 private:
  struct Piece {
    MemoryHandle memory;
    std::size_t offset, bytes;
  };

  std::shared_ptr<Backend> backend_;
  std::size_t page_ = 0, capacity_ = 0, mapped_ = 0;
  std::byte* data_ = nullptr;
  std::vector<Piece> pieces_;
};

}  // namespace ps::cuda
