// Asynchronous file I/O that bypasses the page cache (O_DIRECT) and keeps many transfers in flight.
//
//   const ps::File file("weights.bin");
//   pipeline.async_stage("read", {.uses = {in}, .engine = ps::Engine::disk},
//                        [&](ps::Item& item, const ps::Completion& done) {
//                          file.read(item.index() * chunk, item.slot(in), done);
//                        });
//
// Files that belong together, such as the shards of a checkpoint, share one FileQueue: its engine
// starts urgent reads first, and one completion may cover reads from several files.
//
//   const ps::FileQueue queue;
//   const ps::File first(queue, "model-1.bin"), second(queue, "model-2.bin");
//   const std::array reads{ps::FileRead{first, 0, up}, ps::FileRead{second, 4096, down}};
//   queue.read(reads, done, {.priority = ps::ReadPriority::urgent});
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>

#include "penstock/base/units.h"
#include "penstock/base/view.h"

namespace ps {

namespace detail {
class FileImpl;
class FileQueueImpl;
}  // namespace detail

enum class FileMode : std::uint8_t {
  read,
  write,  // creates the file, or truncates it
};

// How bytes are transferred.
enum class FileEngine : std::uint8_t {
  best,     // io_uring if the build and the system support it, else threads
  uring,    // io_uring, which takes the least CPU time
  threads,  // one blocking thread per transfer in flight
};

std::string_view name(FileEngine engine);

struct FileQueueOptions {
  FileEngine engine = FileEngine::best;
  std::size_t in_flight = 16;  // most pieces in flight, 1 to 1024
  std::size_t piece = MiB;     // bytes; longer transfers are split. A multiple of 4 KiB
};

struct OpenOptions {
  FileMode mode = FileMode::read;
  bool direct = true;  // bypass the page cache if the file system allows it
};

// Options of a file that is opened without a FileQueue.
struct FileOptions {
  FileMode mode = FileMode::read;
  FileEngine engine = FileEngine::best;
  std::size_t in_flight = 16;
  std::size_t piece = MiB;
  bool direct = true;
};

// Which of the waiting pieces start first. Pieces in flight are not interrupted. Pieces of the same
// priority start in the order in which they were requested; writes are `normal`.
enum class ReadPriority : std::uint8_t {
  background,  // only while nothing else waits, for data that may be needed
  normal,
  urgent,  // before everything else that waits
};

struct ReadOptions {
  ReadPriority priority = ReadPriority::normal;
  // Cancels the read. Pieces that wait are dropped, pieces in flight complete, and then `done` is
  // called with Cancelled. If no piece was left to drop, the read succeeds.
  std::stop_token stop{};
};

// Called once per transfer, with null on success, else with the first error. It must not throw and
// should be short, because it delays other completions. It runs on a thread of the library; or
// before the call that starts the transfer returns, if nothing is in flight then: for zero bytes,
// for a read that was cancelled before it began, and if no thread can be started.
using TransferDone = std::function<void(std::exception_ptr failure)>;

struct FileRead;

// Transfers of any number of files, with one limit of pieces in flight. A handle; copies refer to
// the same queue. Thread-safe.
class FileQueue {
 public:
  // Throws InvalidArgument naming the option, and Unsupported if FileEngine::uring is requested but
  // not available.
  explicit FileQueue(FileQueueOptions options = {});

  FileEngine engine() const;  // never `best`

  // Starts several reads and returns. `done` is called when all have ended. Files must be open on
  // this queue, otherwise, and for arguments that File::read() refuses, this throws
  // InvalidArgument naming the read ("reads[2].file") and starts none of them.
  void read(std::span<const FileRead> reads, TransferDone done, ReadOptions options = {}) const;

  // The same, but blocks until the reads are complete, and throws their first error.
  void read(std::span<const FileRead> reads, ReadOptions options = {}) const;

  friend bool operator==(const FileQueue& a, const FileQueue& b) { return a.impl_ == b.impl_; }

 private:
  friend class File;
  explicit FileQueue(std::shared_ptr<detail::FileQueueImpl> impl) : impl_(std::move(impl)) {}
  std::shared_ptr<detail::FileQueueImpl> impl_;
};

// Identifies a version of a file, to detect changes.
struct FileVersion {
  std::uint64_t bytes = 0;
  std::int64_t modified_ns = 0;  // time of the last write, since 1970

  friend bool operator==(const FileVersion&, const FileVersion&) = default;
};

// A handle; copies refer to the same open file. Thread-safe. Any offset and size works: whole
// blocks bypass the page cache, and unaligned ends go through it. Memory must be host memory; views
// of device memory throw InvalidArgument. Transfers bypass the page cache only if address and
// offset are equal modulo 4 KiB, so memory that is aligned to 4 KiB, as page-locked buffers and
// slots are, suits offsets that are.
class File {
 public:
  // Opens a file with a queue of its own. Throws SystemError naming the path, InvalidArgument
  // naming the option, and Unsupported if FileEngine::uring is requested but not available.
  explicit File(const std::filesystem::path& path, FileOptions options = {});

  // Opens a file whose transfers go through `queue`, which stays alive as long as the file does.
  File(const FileQueue& queue, const std::filesystem::path& path, OpenOptions options = {});

  const std::string& path() const;  // as given
  std::uint64_t size() const;       // current size in bytes
  FileVersion version() const;      // current; throws SystemError
  bool direct() const;              // whether transfers bypass the page cache
  FileEngine engine() const;        // never `best`
  FileQueue queue() const;

  // Start a transfer and return. Keep the memory alive and unchanged until `done` is called. A read
  // beyond the end of the file fails with a SystemError that says where. Transfers complete even if
  // the last handle is destroyed.
  void read(std::uint64_t offset, MemoryView to, TransferDone done, ReadOptions options = {}) const;
  void write(std::uint64_t offset, MemoryView from, TransferDone done) const;

  // The same, but block until the transfer is complete, and throw its error.
  void read(std::uint64_t offset, MemoryView to) const;
  void write(std::uint64_t offset, MemoryView from) const;

  // Blocks until all completed writes are on the disk (fdatasync).
  void flush() const;

 private:
  friend class FileQueue;
  std::shared_ptr<detail::FileImpl> impl_;
};

// One part of a batch.
struct FileRead {
  File file;
  std::uint64_t offset = 0;
  MemoryView to{};
};

}  // namespace ps
