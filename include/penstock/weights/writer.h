// Writes checkpoints in the safetensors format, tensor after tensor, into one file or several.
//
//   ps::WeightsWriter writer("model.safetensors", {{"up", ps::WeightType::bf16, {2048, 768}},
//                                                  {"down", ps::WeightType::bf16, {768, 2048}}});
//   writer.write("up", up);
//   writer.write("down", down);
//   writer.finish();
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "penstock/base/view.h"
#include "penstock/weights/element_type.h"

namespace ps {

// A tensor to be written.
struct WeightSpec {
  std::string name;
  WeightType type = WeightType::u8;
  std::vector<std::int64_t> shape{};
};

struct WeightsWriterOptions {
  std::map<std::string, std::string> metadata{};  // of every file
  // Most bytes of tensors per file, except for a tensor that is larger; 0: one file. If several
  // files are needed, "model.safetensors" becomes "model-00001-of-00003.safetensors" and so on,
  // with the index "model.safetensors.index.json".
  std::uint64_t shard_bytes = 0;
  // The first tensor of a file begins at a multiple of this, a power of two from 8 to 1 MiB. With
  // 4096, tensors whose sizes are multiples of 4 KiB are read into page-aligned memory without the
  // page cache.
  std::size_t alignment = 8;
};

// Not thread-safe; move-only. Files are written under temporary names. If the writer is destroyed
// before finish() has returned, they are removed and files of an earlier checkpoint are unchanged.
class WeightsWriter {
 public:
  // `tensors` in the order of their bytes. Throws InvalidArgument naming the tensor
  // ("tensors[2].name"), for instance for a name that occurs twice, and SystemError.
  WeightsWriter(const std::filesystem::path& path, std::vector<WeightSpec> tensors,
                WeightsWriterOptions options = {});
  ~WeightsWriter();
  WeightsWriter(WeightsWriter&&) noexcept;
  WeightsWriter& operator=(WeightsWriter&&) noexcept;

  // Writes the next bytes of the tensor `name`, all of them or a part, from host memory; blocks
  // until they are written. Tensors must be written in order; those without bytes may be left out.
  // Throws InvalidArgument for another tensor or more bytes than it has, and SystemError.
  void write(std::string_view name, MemoryView from);

  // Flushes the files to the disk and renames them, the index last. Throws InvalidArgument if bytes
  // are missing, and SystemError; after the latter, some files may already have their names.
  void finish();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace ps
