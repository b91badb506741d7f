// Packed experts: a file with the experts of all layers of a model, in the order and the form in
// which they are streamed. It is written once, from a checkpoint or by a function.
//
//   const ps::Weights weights("/models/qwen3");
//   ps::pack_experts("/fast_disk/qwen3.experts", shape, weights, names);
//   const ps::DiskExpertStore store(gpu, "/fast_disk/qwen3.experts", {.host_bytes = 16 * ps::GiB});
//
// The file is as large as the blocks of an ExpertStore of the same shape, and 4 KiB.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <stop_token>
#include <string>

#include "penstock/base/view.h"
#include "penstock/outofcore/expert_store.h"
#include "penstock/weights/weights.h"

namespace ps {

struct ExpertFileInfo {
  std::string path;  // as given
  ExpertShape shape;
  std::uint64_t bytes = 0;      // of the file
  std::int64_t created_ns = 0;  // when packing ended, since 1970
  double pack_seconds = 0;      // how long packing took
};

struct PackExpertsOptions {
  std::stop_token stop{};
  // Called after every expert, with bytes. If it throws, packing ends and rethrows the exception.
  std::function<void(std::uint64_t done, std::uint64_t total)> progress{};
};

// Writes the weights of one expert to `block`, which is zeroed; ExpertStore::views() gives its
// parts.
using FillExpert =
    std::function<void(std::int64_t layer, std::int64_t expert, const MemoryView& block)>;

// Calls `fill` for every expert, layer by layer, and writes the blocks to a file, which appears
// under its name when it is complete and on the disk. A file that has the name is replaced. Blocks
// until done. Throws InvalidArgument naming the field of `shape`, SystemError naming the file,
// Cancelled, and what `fill` throws; the file then does not appear.
ExpertFileInfo pack_experts(const std::filesystem::path& path, const ExpertShape& shape,
                            const FillExpert& fill, PackExpertsOptions options = {});

// Names of tensors in a checkpoint. "{layer}" and "{expert}" stand for numbers. A tensor whose name
// has no "{expert}" holds all experts of its layer in its first dimension.
struct ExpertNames {
  std::string gate_up{};         // (2n, d) of an expert; or `gate` and `up`, (n, d) each
  std::string gate{}, up{};      // only with GateUpLayout::concatenated, not transposed
  std::string down{};            // (d, n)
  std::string gate_up_bias{};    // (2n), if the shape has it
  std::string down_bias{};       // (d), if the shape has it
  std::int64_t first_layer = 0;  // of the checkpoint, which is layer 0 of the file
};

// From a checkpoint whose tensors have the shapes and the type that `shape` says; with `transposed`
// they are (d, 2n) and (n, d). Throws as above, InvalidArgument naming the tensor, and SystemError
// for checkpoints that cannot be read.
ExpertFileInfo pack_experts(const std::filesystem::path& path, const ExpertShape& shape,
                            const Weights& weights, const ExpertNames& names,
                            PackExpertsOptions options = {});

// What the file says about itself. Throws SystemError if it cannot be read, and InvalidArgument
// naming the path if it is not a file of packed experts or is not complete.
ExpertFileInfo expert_file_info(const std::filesystem::path& path);

}  // namespace ps
