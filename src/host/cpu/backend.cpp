#include "host/cpu/backend.h"

#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <string>
#include <thread>

#include "host/cpu/address_range.h"
#include "host/cpu/event.h"
#include "host/cpu/pool.h"
#include "host/cpu/stream.h"
#include "host/huge_pages.h"
#include "penstock/base/checked.h"
#include "penstock/base/error.h"

namespace ps::cpu {
namespace {

std::string model_name() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);) {
    if (line.starts_with("model name")) {
      const auto colon = line.find(": ");
      if (colon != std::string::npos) return line.substr(colon + 2);
    }
  }
  return "CPU";
}

}  // namespace

Capabilities Backend::capabilities() {
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  Capabilities result;
  result.name = model_name();
  result.multiprocessors = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  result.memory_bytes = page * static_cast<std::size_t>(sysconf(_SC_PHYS_PAGES));
  result.free_bytes = page * static_cast<std::size_t>(sysconf(_SC_AVPHYS_PAGES));
  const long cache = sysconf(_SC_LEVEL2_CACHE_SIZE);
  result.l2_bytes = cache > 0 ? static_cast<std::size_t>(cache) : 0;
  result.memory_pools = result.virtual_memory = true;
  return result;
}

std::vector<Backend::Made> Backend::made_streams() {
  const std::lock_guard lock(mutex_);
  return streams_;
}

void Backend::synchronize() {
  for (const Made& made : made_streams()) {
    if (const auto stream = made.stream.lock()) {
      stream->synchronize();
    } else {
      made.remainder.drain();
    }
  }
}

void Backend::drain() noexcept {
  for (const Made& made : made_streams()) made.remainder.drain();
}

std::shared_ptr<detail::EventImpl> Backend::make_event(const EventOptions& options) {
  ++allocations_;
  return std::make_shared<Event>(shared_from_this(), options.timing);
}

std::shared_ptr<detail::StreamImpl> Backend::make_stream(const StreamOptions& /*options*/) {
  ++allocations_;
  auto stream = std::make_shared<Stream>(shared_from_this());
  const std::lock_guard lock(mutex_);
  std::erase_if(streams_, [](const Made& made) { return made.remainder.over(); });
  streams_.push_back({stream, stream->remainder()});
  return stream;
}

std::shared_ptr<detail::StreamImpl> Backend::borrow_stream(void* /*native*/) {
  throw Unsupported("the CPU has no native streams to borrow; make a ps::Stream on it instead");
}

std::shared_ptr<detail::PoolImpl> Backend::make_pool(const PoolOptions& options) {
  ++allocations_;
  return std::make_shared<Pool>(shared_from_this(), heap_, options);
}

std::unique_ptr<detail::AddressRangeImpl> Backend::make_address_range(std::size_t capacity) {
  ++allocations_;
  return std::make_unique<AddressRange>(shared_from_this(), capacity);
}

// Whole pages: direct disk reads need the alignment.
void* Backend::allocate_pinned(std::size_t bytes) {
  const bool huge = bytes >= detail::huge_pages_from;
  const std::size_t page = huge ? detail::huge_page : 4096;
  void* data = heap_->allocate(align_up(bytes, page, "bytes"), page);
  if (data == nullptr) throw OutOfMemory("host memory", bytes);
  if (huge) detail::advise_huge_pages(data, bytes);
  ++allocations_;
  return data;
}

void Backend::free_pinned(void* data, std::size_t /*bytes*/) noexcept { heap_->free(data); }

}  // namespace ps::cpu
