#include "penstock/ops/append_kv.h"

#include <vector>

#include "host/backend.h"
#include "ops/append_kv/arguments.h"
#include "ops/append_kv/work.h"
#include "ops/arguments.h"
#include "penstock/host/buffer.h"

namespace ps {
namespace appending {
namespace {

using detail::on_cpu;

// A copy of an array on the host, if it has elements.
template <class T>
void fetch(const TensorView& view, const T*& pointer, std::vector<PinnedBuffer>& copies,
           const Stream& stream) {
  if (pointer == nullptr || view.elements() == 0) return;
  copies.emplace_back(stream.device(), view.bytes());
  copy(copies.back().view(), {static_cast<std::byte*>(view.data()), view.bytes(), view.place()},
       stream);
  pointer = copies.back().view().as<const T>();
}

}  // namespace

void check_places_on(const AppendKVOptions& options, detail::AppendWork work,
                     const Stream& stream) {
  stream.impl().refuse_capture("append_kv with `check`, which waits for the lengths,");
  if (on_cpu(stream)) {
    stream.synchronize();
    return check_places(work);
  }
  std::vector<PinnedBuffer> copies;
  fetch(options.cu_new, work.cu_new, copies, stream);
  const std::int32_t* lengths = work.lengths;
  fetch(options.lengths, lengths, copies, stream);
  // Rows of the table of pages may be strided: they are copied one by one.
  if (work.pages != nullptr && options.pages.elements() > 0) {
    const auto count = static_cast<std::size_t>(options.pages.extent(1));
    const std::size_t bytes = count * sizeof(std::int32_t);
    copies.emplace_back(stream.device(), bytes * static_cast<std::size_t>(work.sequences));
    const MemoryView to = copies.back().view();
    for (std::int32_t b = 0; b < work.sequences; ++b) {
      auto* row = static_cast<std::int32_t*>(options.pages.data()) + b * work.pages_row;
      copy(to.sub(static_cast<std::size_t>(b) * bytes, bytes),
           {reinterpret_cast<std::byte*>(row), bytes, options.pages.place()}, stream);
    }
    work.pages = to.as<const std::int32_t>();
    work.pages_row = options.pages.extent(1);
  }
  const auto* positions = static_cast<const std::byte*>(work.positions);
  fetch(options.positions, positions, copies, stream);
  stream.synchronize();
  // Only read from here on.
  work.lengths = const_cast<std::int32_t*>(lengths);
  work.positions = positions;
  check_places(work);
}

}  // namespace appending

void append_kv(const AppendKVOptions& options, const Stream& stream) {
  const detail::AppendWork work = appending::checked(options, stream.device());
  detail::require_compute(stream.device(), "append_kv");
  if (work.rows == 0) return;
  if (options.check) appending::check_places_on(options, work, stream);
  if (detail::on_cpu(stream)) return detail::append_kv_cpu(work, stream);
  detail::append_kv_portable(work, stream);
}

}  // namespace ps
