// Asynchronous file I/O that bypasses the page cache (O_DIRECT) and keeps many transfers in flight.
//
//   const ps::File file("weights.bin");
//   pipeline.async_stage("read", {.uses = {in}, .engine = ps::Engine::disk},
//                        [&](ps::Item& item, const ps::Completion& done) {
//                          file.read(item.index() * chunk, item.slot(in), done);
//                        });
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <functional>
#include <memory>
#include <string_view>

#include "penstock/base/units.h"
#include "penstock/base/view.h"

namespace ps {

namespace detail {
class FileImpl;
}

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

struct FileOptions {
  FileMode mode = FileMode::read;
  FileEngine engine = FileEngine::best;
  std::size_t in_flight = 16;  // most pieces in flight, 1 to 1024
  std::size_t piece = MiB;     // bytes; longer transfers are split. A multiple of 4 KiB
  bool direct = true;          // bypass the page cache if the file system allows it
};

// Called once per transfer, on a thread of the library: with null on success, else with the error.
// It must not throw and should be short, because it delays other completions.
using TransferDone = std::function<void(std::exception_ptr failure)>;

// A handle; copies refer to the same open file. Thread-safe. Any offset and size works: whole
// blocks bypass the page cache, and unaligned ends go through it. Memory must be host memory; views
// of device memory throw InvalidArgument. Transfers are fastest if it is aligned to 4 KiB, as
// page-locked buffers and slots are.
class File {
 public:
  // Throws SystemError naming the path, InvalidArgument naming the option, and Unsupported if
  // FileEngine::uring is requested but not available.
  explicit File(const std::filesystem::path& path, FileOptions options = {});

  std::uint64_t size() const;  // current size in bytes
  bool direct() const;         // whether transfers bypass the page cache
  FileEngine engine() const;   // never `best`

  // Start a transfer and return. Keep the memory alive and unchanged until `done` is called. A read
  // beyond the end of the file fails with a SystemError that says where. Transfers complete even if
  // the last handle is destroyed.
  void read(std::uint64_t offset, MemoryView to, TransferDone done) const;
  void write(std::uint64_t offset, MemoryView from, TransferDone done) const;

  // The same, but block until the transfer is complete, and throw its error.
  void read(std::uint64_t offset, MemoryView to) const;
  void write(std::uint64_t offset, MemoryView from) const;

  // Blocks until all completed writes are on the disk (fdatasync).
  void flush() const;

 private:
  std::shared_ptr<detail::FileImpl> impl_;
};

}  // namespace ps
