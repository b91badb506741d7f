// A reserved range of addresses on the CPU, with memory behind parts of it.
#pragma once

#include "host/backend.h"

namespace ps::cpu {

class AddressRange final : public detail::AddressRangeImpl {
 public:
  AddressRange(std::shared_ptr<detail::Backend> backend, std::size_t capacity);
  ~AddressRange() override;

  void map(std::size_t offset, std::size_t bytes) override;
  void unmap(std::size_t offset, std::size_t bytes) noexcept override;
  std::byte* data() const override { return data_; }
  std::size_t capacity() const override { return capacity_; }
  std::size_t page() const override { return page_; }
  detail::Backend& backend() override { return *backend_; }

 private:
  std::shared_ptr<detail::Backend> backend_;
  std::size_t page_, capacity_;
  std::byte* data_ = nullptr;
};

}  // namespace ps::cpu
