// What a FileQueue refers to: an engine, and how transfers are cut into pieces for it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "host/storage/open_file.h"
#include "host/storage/transfer.h"
#include "penstock/host/storage.h"

namespace ps::detail {

// A range of a file and its memory, checked.
struct Span {
  std::shared_ptr<const OpenFile> file;
  std::uint64_t offset = 0;
  MemoryView memory{};
};

class FileQueueImpl {
 public:
  explicit FileQueueImpl(const FileQueueOptions& options);
  ~FileQueueImpl() { engine_->close(); }
  FileQueueImpl(const FileQueueImpl&) = delete;
  FileQueueImpl& operator=(const FileQueueImpl&) = delete;

  FileEngine kind() const { return engine_->kind(); }

  // One transfer of several spans, with one completion.
  void start(bool write, std::span<const Span> spans, TransferDone done, ReadOptions options);

 private:
  void cut(const std::shared_ptr<Transfer>& transfer, bool write, const Span& span);

  const std::size_t piece_;
  std::shared_ptr<TransferEngine> engine_;
};

}  // namespace ps::detail
