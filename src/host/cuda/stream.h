// A stream of a GPU, owned or borrowed.
#pragma once

#include <mutex>

#include "host/cuda/backend.h"
#include "host/cuda/host_calls.h"

namespace ps::cuda {

class Stream final : public detail::StreamImpl {
 public:
  Stream(std::shared_ptr<Backend> backend, StreamHandle handle, bool owned)
      : backend_(std::move(backend)), handle_(handle), owned_(owned) {}
  ~Stream() override;

  void call(detail::StreamFunction function) override;
  void notify(detail::StreamFunction function) override;
  void wait(detail::EventImpl& event) override;
  void record(detail::EventImpl& event) override;
  void synchronize() override;
  void drain() noexcept override;
  bool done() override;
  void refuse_capture(const char* operation) override;
  void rethrow() override;
  void copy(MemoryView dst, MemoryView src) override;
  void fill(MemoryView dst, std::uint8_t value) override;
  void wait_value(std::uint32_t* flag, std::uint32_t value) override;
  void write_value(std::uint32_t* flag, std::uint32_t value) override;
  bool owned() const override { return owned_; }
  void* native() const override { return handle_; }
  detail::Backend& backend() override { return *backend_; }

  StreamHandle handle() const { return handle_; }
  Backend& device_backend() { return *backend_; }

 private:
  bool is_capturing();  // with the device current
  HostCalls& calls();
  HostCalls* existing_calls();

  std::shared_ptr<Backend> backend_;
  StreamHandle handle_;
  bool owned_;
  std::mutex calls_mutex_;
  std::unique_ptr<HostCalls> calls_;  // made by the first host function
};

}  // namespace ps::cuda
