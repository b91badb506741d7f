#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <limits>
#include <utility>

#include "host/fork.h"
#include "host/storage/transfer.h"
#include "penstock/base/checked.h"
#include "penstock/base/error.h"
#include "penstock/host/storage.h"

namespace ps {
namespace detail {
namespace {

int open_or_throw(const std::string& path, int flags) {
  const int fd = open(path.c_str(), flags | O_CLOEXEC, 0666);
  if (fd < 0) throw SystemError(errno, "open", path);
  return fd;
}

void check(const FileOptions& options) {
  const auto refuse = [](const char* argument, const char* expected, std::size_t given) {
    throw_invalid(argument, expected, std::to_string(given));
  };
  if (options.in_flight < 1 || options.in_flight > 1024) {
    refuse("in_flight", "1 to 1024", options.in_flight);
  }
  constexpr std::size_t page = 4096;
  if (options.piece == 0 || options.piece % page != 0 || options.piece > GiB) {
    refuse("piece", "a multiple of 4 KiB above 0, at most 1 GiB", options.piece);
  }
}

}  // namespace

OpenFile::OpenFile(const std::filesystem::path& where, FileMode how, bool past_the_cache)
    : path(where.string()), mode(how) {
  const int flags = mode == FileMode::read ? O_RDONLY : O_RDWR | O_CREAT | O_TRUNC;
  cached = open_or_throw(path, flags);
  struct stat status{};
  if (fstat(cached, &status) != 0 || S_ISDIR(status.st_mode)) {
    const int error = S_ISDIR(status.st_mode) ? EISDIR : errno;
    close(cached);
    throw SystemError(error, "open", path);
  }
  // Only a file on a disk has something to go past; a refusal means that its file system has none.
  if (past_the_cache && S_ISREG(status.st_mode)) {
    direct =
        open(path.c_str(), (mode == FileMode::read ? O_RDONLY : O_RDWR) | O_DIRECT | O_CLOEXEC);
  }
}

OpenFile::~OpenFile() {
  if (direct >= 0) close(direct);
  close(cached);
}

class FileImpl {
 public:
  FileImpl(const std::filesystem::path& path, const FileOptions& options)
      : file_(std::make_shared<const OpenFile>(path, options.mode, options.direct)),
        piece_(options.piece) {
    std::string why;
    if (options.engine != FileEngine::threads) engine_ = make_uring_engine(options.in_flight, why);
    if (!engine_ && options.engine == FileEngine::uring) {
      throw Unsupported("io_uring cannot be used: " + why + "; use FileEngine::threads");
    }
    if (!engine_) engine_ = make_thread_engine(options.in_flight);
  }

  const OpenFile& file() const { return *file_; }
  FileEngine kind() const { return engine_->kind(); }

  void start(bool write, std::uint64_t offset, MemoryView memory, TransferDone done) {
    refuse_after_fork();
    const auto transfer = std::make_shared<Transfer>(file_, std::move(done));
    std::exception_ptr failure;
    try {
      cut(transfer, write, offset, memory);
    } catch (...) {
      failure = std::current_exception();
    }
    transfer->piece_over(std::move(failure));
  }

 private:
  // The whole blocks in the middle go past the page cache, what is before and after through it.
  void cut(const std::shared_ptr<Transfer>& transfer, bool write, std::uint64_t offset,
           MemoryView memory) {
    const std::uint64_t end = offset + memory.bytes;
    const std::uint64_t first = std::min(align_up(offset, file_->block, "offset"), end);
    const std::uint64_t last = std::max(end / file_->block * file_->block, first);
    const auto at = reinterpret_cast<std::uintptr_t>(memory.data) + (first - offset);
    const bool direct = file_->direct >= 0 && at % file_->block == 0;
    const auto send = [&](int fd, std::uint64_t begin, std::uint64_t until) {
      for (std::uint64_t here = begin; here < until;) {
        const std::uint64_t bytes = std::min<std::uint64_t>(piece_, until - here);
        transfer->add_piece();
        try {
          engine_->submit({.transfer = transfer,
                           .fd = fd,
                           .write = write,
                           .offset = here,
                           .data = memory.data + (here - offset),
                           .bytes = static_cast<std::size_t>(bytes)});
        } catch (...) {
          transfer->piece_over(std::current_exception());
          throw;
        }
        here += bytes;
      }
    };
    if (!direct) return send(file_->cached, offset, end);
    send(file_->cached, offset, first);
    send(file_->direct, first, last);
    send(file_->cached, last, end);
  }

  const std::shared_ptr<const OpenFile> file_;
  const std::size_t piece_;
  std::unique_ptr<TransferEngine> engine_;
};

namespace {

void check_transfer(const OpenFile& file, bool write, std::uint64_t offset, MemoryView memory,
                    const TransferDone& done) {
  const char* const argument = write ? "from" : "to";
  if (write && file.mode != FileMode::write) {
    throw_invalid("mode", "FileMode::write, to write", "a file opened to read: " + file.path);
  }
  if (memory.place.memory == Memory::device && memory.place.device != cpu_index) {
    throw_invalid(argument, "host memory", name(memory.place));
  }
  if (memory.data == nullptr && memory.bytes > 0) {
    throw_invalid(argument, "a pointer", fmt::format("null with {} bytes", memory.bytes));
  }
  constexpr auto most = static_cast<std::uint64_t>(std::numeric_limits<off_t>::max());
  if (offset > most || memory.bytes > most - offset) {
    throw_invalid("offset", "a range that ends below 2^63",
                  fmt::format("{} bytes at {}", memory.bytes, offset));
  }
  if (!done) throw_invalid("done", "something to call", "an empty function");
}

// Waits for one transfer.
template <class Start>
void blocking(const Start& start) {
  struct Answer {
    std::mutex mutex;
    std::condition_variable given;
    bool over = false;
    std::exception_ptr failure;
  };
  // Shared: the other thread may still be leaving the mutex when this one has its answer.
  const auto answer = std::make_shared<Answer>();
  start([answer](std::exception_ptr failure) {
    const std::lock_guard lock(answer->mutex);
    answer->failure = std::move(failure);
    answer->over = true;
    answer->given.notify_one();
  });
  std::unique_lock lock(answer->mutex);
  answer->given.wait(lock, [&] { return answer->over; });
  if (answer->failure) std::rethrow_exception(std::exchange(answer->failure, nullptr));
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

File::File(const std::filesystem::path& path, FileOptions options) {
  detail::check(options);
  impl_ = std::make_shared<detail::FileImpl>(path, options);
}

std::uint64_t File::size() const {
  struct stat status{};
  if (fstat(impl_->file().cached, &status) != 0) {
    throw SystemError(errno, "query the size of", impl_->file().path);
  }
  return static_cast<std::uint64_t>(status.st_size);
}

bool File::direct() const { return impl_->file().direct >= 0; }
FileEngine File::engine() const { return impl_->kind(); }

void File::read(std::uint64_t offset, MemoryView to, TransferDone done) const {
  detail::check_transfer(impl_->file(), false, offset, to, done);
  impl_->start(false, offset, to, std::move(done));
}

void File::write(std::uint64_t offset, MemoryView from, TransferDone done) const {
  detail::check_transfer(impl_->file(), true, offset, from, done);
  impl_->start(true, offset, from, std::move(done));
}

void File::read(std::uint64_t offset, MemoryView to) const {
  detail::blocking([&](TransferDone done) { read(offset, to, std::move(done)); });
}

void File::write(std::uint64_t offset, MemoryView from) const {
  detail::blocking([&](TransferDone done) { write(offset, from, std::move(done)); });
}

void File::flush() const {
  if (fdatasync(impl_->file().cached) != 0) {
    throw SystemError(errno, "flush", impl_->file().path);
  }
}

}  // namespace ps
