#include "host/storage/queue.h"

#include <algorithm>
#include <utility>

#include "host/fork.h"
#include "penstock/base/checked.h"
#include "penstock/base/error.h"

namespace ps::detail {
namespace {

void check(const FileQueueOptions& options) {
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

std::shared_ptr<TransferEngine> make_engine(const FileQueueOptions& options) {
  check(options);
  std::string why;
  std::shared_ptr<TransferEngine> engine;
  if (options.engine != FileEngine::threads) engine = make_uring_engine(options.in_flight, why);
  if (!engine && options.engine == FileEngine::uring) {
    throw Unsupported("io_uring cannot be used: " + why + "; use FileEngine::threads");
  }
  return engine ? engine : make_thread_engine(options.in_flight);
}

void drop_cancelled(TransferEngine& engine) noexcept {
  try {
    engine.drop_cancelled();
  } catch (...) {
    // Without memory to take them out, the pieces are dropped when their turn comes.
  }
}

}  // namespace

FileQueueImpl::FileQueueImpl(const FileQueueOptions& options)
    : piece_(options.piece), engine_(make_engine(options)) {}

void FileQueueImpl::start(bool write, std::span<const Span> spans, TransferDone done,
                          ReadOptions options) {
  refuse_after_fork();
  const auto transfer = std::make_shared<Transfer>(std::move(done), std::move(options));
  // The engine outlives this queue while it has pieces.
  transfer->when_cancelled([weak = std::weak_ptr(engine_)] {
    if (const auto engine = weak.lock()) drop_cancelled(*engine);
  });
  std::exception_ptr failure;
  try {
    for (const Span& span : spans) cut(transfer, write, span);
  } catch (...) {
    failure = std::current_exception();
  }
  // Pieces that were handed over after the engine had looked for them.
  if (transfer->cancelled()) drop_cancelled(*engine_);
  transfer->piece_over(std::move(failure));
}

// The whole blocks in the middle go past the page cache, what is before and after through it.
void FileQueueImpl::cut(const std::shared_ptr<Transfer>& transfer, bool write, const Span& span) {
  const auto& [file, offset, memory] = span;
  const std::uint64_t end = offset + memory.bytes;
  const std::uint64_t first = std::min(align_up(offset, file->block, "offset"), end);
  const std::uint64_t last = std::max(end / file->block * file->block, first);
  const auto send = [&](int fd, std::uint64_t begin, std::uint64_t until) {
    for (std::uint64_t here = begin; here < until;) {
      if (transfer->cancelled()) throw Cancelled("read " + span.file->path + ": cancelled");
      const std::uint64_t bytes = std::min<std::uint64_t>(piece_, until - here);
      transfer->add_piece();
      try {
        engine_->submit({.transfer = transfer,
                         .file = span.file,
                         .fd = fd,
                         .write = write,
                         .offset = here,
                         .data = span.memory.data + (here - span.offset),
                         .bytes = static_cast<std::size_t>(bytes)});
      } catch (...) {
        transfer->piece_over(std::current_exception());
        throw;
      }
      here += bytes;
    }
  };
  const auto at = reinterpret_cast<std::uintptr_t>(memory.data) + (first - offset);
  const bool direct = file->direct >= 0 && at % file->block == 0;
  if (!direct) return send(file->cached, offset, end);
  send(file->cached, offset, first);
  send(file->direct, first, last);
  send(file->cached, last, end);
}

}  // namespace ps::detail
