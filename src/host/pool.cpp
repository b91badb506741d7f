#include "penstock/host/pool.h"

#include "host/backend.h"
#include "penstock/base/error.h"

namespace ps {

Pool::Pool(const Device& device, PoolOptions options)
    : impl_(device.backend().make_pool(options)) {}

MemoryView Pool::allocate(std::size_t bytes, const Stream& stream) const {
  if (&stream.impl().backend() != &impl_->backend()) {
    detail::throw_invalid("stream", "a stream of " + impl_->backend().name(),
                          "one of " + stream.impl().backend().name());
  }
  if (bytes == 0) return {nullptr, 0, impl_->backend().place()};
  auto* data = static_cast<std::byte*>(impl_->allocate(bytes, stream.impl()));
  return {data, bytes, impl_->backend().place()};
}

void Pool::free(MemoryView memory, const Stream& stream) const noexcept {
  if (memory.data != nullptr) impl_->free(memory.data, memory.bytes, stream.impl());
}

void Pool::trim(std::size_t keep) const { impl_->trim(keep); }
PoolStatistics Pool::statistics() const { return impl_->statistics(); }
Device Pool::device() const { return impl_->backend().device(); }

}  // namespace ps
