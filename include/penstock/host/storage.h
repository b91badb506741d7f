// Files read into memory and written from it at the disk's speed: past the page cache, with many
// transfers on their way at once.
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
  write,  // made if it is not there, emptied if it is
};

// Who moves the bytes.
enum class FileEngine : std::uint8_t {
  best,     // io_uring where the build and the system have it, else threads
  uring,    // the kernel's queues: least CPU time
  threads,  // a thread for each transfer on its way
};

std::string_view name(FileEngine engine);

struct FileOptions {
  FileMode mode = FileMode::read;
  FileEngine engine = FileEngine::best;
  std::size_t in_flight = 16;  // transfers on their way at once, 1 to 1024
  std::size_t piece = MiB;     // a longer transfer goes in pieces of this; a multiple of 4 KiB
  bool direct = true;          // past the page cache, where the file system allows it
};

// Told once, on a thread of the library, when the bytes have arrived or with why they have not. It
// must not throw and should be short: it keeps other transfers from being seen to.
using TransferDone = std::function<void(std::exception_ptr failure)>;

// A handle; copies name the same open file. Thread-safe. Offsets and sizes may be anything: what is
// not aligned to the disk's blocks goes through the page cache, the rest past it. Direct transfers
// need memory aligned to 4 KiB, which page-locked buffers and slots are; other memory works,
// slower. Memory must be the host's (pageable or page-locked), or a GPU's view is refused.
class File {
 public:
  // Throws SystemError naming the path; InvalidArgument naming the option; Unsupported when
  // io_uring is asked for by name and cannot be had.
  explicit File(const std::filesystem::path& path, FileOptions options = {});

  std::uint64_t size() const;  // as it is now
  bool direct() const;         // whether transfers go past the page cache
  FileEngine engine() const;   // never `best`

  // Return at once; the memory must stay as it is until `done` is told. A file that ends before the
  // last byte asked for is a SystemError that says where. What was begun ends even when the last
  // handle is gone.
  void read(std::uint64_t offset, MemoryView to, TransferDone done) const;
  void write(std::uint64_t offset, MemoryView from, TransferDone done) const;

  // The same, blocking until it is over; throw what went wrong.
  void read(std::uint64_t offset, MemoryView to) const;
  void write(std::uint64_t offset, MemoryView from) const;

  // Blocks until what was written is on the disk itself.
  void flush() const;

 private:
  std::shared_ptr<detail::FileImpl> impl_;
};

}  // namespace ps
