#include <fmt/format.h>
#include <sys/types.h>
#include <unistd.h>

#include <cerrno>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "host/blocking_transfer.h"
#include "host/storage/open_file.h"
#include "host/storage/queue.h"
#include "penstock/base/error.h"
#include "penstock/host/storage.h"

namespace ps {
namespace detail {

class FileImpl {
 public:
  FileImpl(std::shared_ptr<FileQueueImpl> queue, const std::filesystem::path& path,
           OpenOptions options)
      : queue_(std::move(queue)), file_(std::make_shared<const OpenFile>(path, options)) {}

  const OpenFile& file() const { return *file_; }
  const std::shared_ptr<const OpenFile>& shared_file() const { return file_; }
  const std::shared_ptr<FileQueueImpl>& queue() const { return queue_; }

  void start(bool write, std::uint64_t offset, MemoryView memory, TransferDone done,
             ReadOptions options) const {
    const Span span{file_, offset, memory};
    queue_->start(write, {&span, 1}, std::move(done), std::move(options));
  }

 private:
  const std::shared_ptr<FileQueueImpl> queue_;
  const std::shared_ptr<const OpenFile> file_;
};

namespace {

// `where` comes before the name of the argument: "reads[2]." in a batch.
void check_range(std::string_view where, const char* argument, std::uint64_t offset,
                 MemoryView memory) {
  const auto refuse = [&](const char* what, const char* expected, const std::string& given) {
    throw_invalid(fmt::format("{}{}", where, what), expected, given);
  };
  if (memory.place.memory == Memory::device && memory.place.device != cpu_index) {
    refuse(argument, "host memory", name(memory.place));
  }
  if (memory.data == nullptr && memory.bytes > 0) {
    refuse(argument, "a pointer", fmt::format("null with {} bytes", memory.bytes));
  }
  constexpr auto most = static_cast<std::uint64_t>(std::numeric_limits<off_t>::max());
  if (offset > most || memory.bytes > most - offset) {
    refuse("offset", "a range that ends below 2^63",
           fmt::format("{} bytes at {}", memory.bytes, offset));
  }
}

void check_done(const TransferDone& done) {
  if (!done) throw_invalid("done", "something to call", "an empty function");
}

}  // namespace
}  // namespace detail

std::string_view name(FileEngine engine) {
  switch (engine) {
    case FileEngine::best:
      return "best";
    case FileEngine::uring:
      return "io_uring";
    case FileEngine::threads:
      return "threads";
  }
  return "unknown";
}

FileQueue::FileQueue(FileQueueOptions options)
    : impl_(std::make_shared<detail::FileQueueImpl>(options)) {}

FileEngine FileQueue::engine() const { return impl_->kind(); }

void FileQueue::read(std::span<const FileRead> reads, TransferDone done,
                     ReadOptions options) const {
  detail::check_done(done);
  std::vector<detail::Span> spans;
  spans.reserve(reads.size());
  for (std::size_t i = 0; i < reads.size(); ++i) {
    const auto& [file, offset, to] = reads[i];
    if (file.impl_->queue() != impl_) {
      detail::throw_invalid(fmt::format("reads[{}].file", i), "a file that is open on this queue",
                            file.path() + ", which has another queue");
    }
    detail::check_range(fmt::format("reads[{}].", i), "to", offset, to);
    spans.push_back({file.impl_->shared_file(), offset, to});
  }
  impl_->start(false, spans, std::move(done), std::move(options));
}

void FileQueue::read(std::span<const FileRead> reads, ReadOptions options) const {
  detail::blocking_transfer(
      [&](TransferDone done) { read(reads, std::move(done), std::move(options)); });
}

File::File(const std::filesystem::path& path, FileOptions options) {
  const FileQueue queue({options.engine, options.in_flight, options.piece});
  *this = File(queue, path, {options.mode, options.direct});
}

File::File(const FileQueue& queue, const std::filesystem::path& path, OpenOptions options)
    : impl_(std::make_shared<detail::FileImpl>(queue.impl_, path, options)) {}

const std::string& File::path() const { return impl_->file().path; }
std::uint64_t File::size() const { return version().bytes; }
FileVersion File::version() const { return impl_->file().version(); }
bool File::direct() const { return impl_->file().direct >= 0; }
FileEngine File::engine() const { return impl_->queue()->kind(); }
FileQueue File::queue() const { return FileQueue(impl_->queue()); }

void File::read(std::uint64_t offset, MemoryView to, TransferDone done, ReadOptions options) const {
  detail::check_range("", "to", offset, to);
  detail::check_done(done);
  impl_->start(false, offset, to, std::move(done), std::move(options));
}

void File::write(std::uint64_t offset, MemoryView from, TransferDone done) const {
  if (impl_->file().mode != FileMode::write) {
    detail::throw_invalid("mode", "FileMode::write, to write",
                          "a file opened to read: " + impl_->file().path);
  }
  detail::check_range("", "from", offset, from);
  detail::check_done(done);
  impl_->start(true, offset, from, std::move(done), {});
}

void File::read(std::uint64_t offset, MemoryView to) const {
  detail::blocking_transfer([&](TransferDone done) { read(offset, to, std::move(done)); });
}

void File::write(std::uint64_t offset, MemoryView from) const {
  detail::blocking_transfer([&](TransferDone done) { write(offset, from, std::move(done)); });
}

void File::flush() const {
  if (fdatasync(impl_->file().cached) != 0) {
    throw SystemError(errno, "flush", impl_->file().path);
  }
}

}  // namespace ps
