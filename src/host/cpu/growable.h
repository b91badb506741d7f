// Growth without moving on the CPU: a reserved range whose pages are made usable as it grows.
#pragma once

#include "host/backend.h"

namespace ps::cpu {

class Growable final : public detail::GrowableImpl {
 public:
  Growable(std::shared_ptr<detail::Backend> backend, std::size_t capacity);
  ~Growable() override;

  void map(std::size_t bytes) override;
  std::byte* data() const override { return data_; }
  std::size_t mapped() const override { return mapped_; }
  std::size_t capacity() const override { return capacity_; }
  std::size_t page() const override { return page_; }
  detail::Backend& backend() override { return *backend_; }

 private:
  std::shared_ptr<detail::Backend> backend_;
  std::size_t page_, capacity_;
  std::size_t mapped_ = 0;
  std::byte* data_ = nullptr;
};

}  // namespace ps::cpu
