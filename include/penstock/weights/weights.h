// Reads checkpoints in the safetensors format, of one file or of several with an index.
//
//   const ps::Weights weights("model.safetensors.index.json");
//   const std::size_t up = weights.index_of("model.layers.0.mlp.up_proj.weight");
//   const ps::PinnedBuffer memory(device, weights.tensors()[up].bytes);
//   weights.read(up, memory.view());
//
// Opening reads and checks all headers; files that violate the format are refused, so every tensor
// is inside its file, and no two share bytes. docs/weights.md lists the checks.
//
// Bytes are read straight into the caller's memory. They bypass the page cache if the address and
// the tensor's offset are equal modulo 4 KiB, and go through it otherwise (see File).
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "penstock/base/view.h"
#include "penstock/host/storage.h"
#include "penstock/weights/weight_info.h"

namespace ps {

struct WeightsOptions {
  FileQueueOptions queue{};  // one queue serves all files
  bool direct = true;        // bypass the page cache if the file system allows it
};

inline constexpr std::int64_t all_rows = -1;

// Rows of a tensor, which are slices of its first dimension, and where to put them.
struct WeightRead {
  std::size_t tensor = 0;  // index in Weights::tensors()
  MemoryView to{};         // host memory, exactly the size of the rows
  std::int64_t first_row = 0;
  std::int64_t rows = all_rows;  // from first_row to the end
};

// A handle; copies refer to the same open files. Thread-safe.
class Weights {
 public:
  // `path`: a safetensors file, an index file (its name ends with ".json"), or a folder with
  // "model.safetensors" or else "model.safetensors.index.json". Tensors that an index does not name
  // are not part of the checkpoint. Throws SystemError if a file cannot be read, and
  // InvalidArgument naming the file, and the tensor, that violates the format: also if the index
  // names a tensor that its file does not have, and if two files have a tensor of the same name.
  explicit Weights(const std::filesystem::path& path, WeightsOptions options = {});

  // In the order of their bytes, file after file.
  std::span<const WeightInfo> tensors() const;
  std::uint64_t bytes() const;  // of all tensors

  bool contains(std::string_view name) const;
  // Throws InvalidArgument if there is no such tensor.
  std::size_t index_of(std::string_view name) const;

  std::span<const File> files() const;  // in the order of their names, all on one queue
  // What a file says about itself (its "__metadata__").
  const std::map<std::string, std::string>& metadata(std::size_t file = 0) const;

  // Starts reads and returns. `done` is called once, when all have ended, as in FileQueue::read().
  // A file that was truncated or changed after it was opened is a SystemError that names it. Throws
  // InvalidArgument naming the read ("reads[2].to") and starts none of them.
  void read(std::span<const WeightRead> reads, TransferDone done, ReadOptions options = {}) const;

  // The same, but blocks until the reads are complete, and throws their first error.
  void read(std::span<const WeightRead> reads, ReadOptions options = {}) const;
  // One whole tensor.
  void read(std::size_t tensor, MemoryView to) const;

  // Throws SystemError naming the file if it was changed after it was opened, as far as size and
  // time of modification show.
  void check_unchanged(std::size_t file) const;

 private:
  struct State;
  std::shared_ptr<const State> state_;
};

}  // namespace ps
