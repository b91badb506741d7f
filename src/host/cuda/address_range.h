// A reserved range of addresses on a GPU, with physical pages mapped behind parts of it.
#pragma once

#include <map>

#include "host/cuda/backend.h"

namespace ps::cuda {

class AddressRange final : public detail::AddressRangeImpl {
 public:
  AddressRange(std::shared_ptr<Backend> backend, std::size_t capacity);
  ~AddressRange() override;

  void map(std::size_t offset, std::size_t bytes) override;
  void unmap(std::size_t offset, std::size_t bytes) noexcept override;
  std::byte* data() const override { return data_; }
  std::size_t capacity() const override { return capacity_; }
  std::size_t page() const override { return page_; }
  detail::Backend& backend() override { return *backend_; }

 private:
  struct Piece {
    MemoryHandle memory;
    std::size_t bytes;
  };

  std::shared_ptr<Backend> backend_;
  std::size_t page_ = 0, capacity_ = 0;
  std::byte* data_ = nullptr;
  std::map<std::size_t, Piece> pieces_;  // by offset
};

}  // namespace ps::cuda
