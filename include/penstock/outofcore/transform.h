// Elementwise functions on data in host memory or files that may be larger than device memory. The
// data passes through the device in pieces; uploads, computation and downloads overlap.
//
//   ps::StreamedTransform halve({
//       .in = {{.dtype = ps::DType::f32, .file = "in.f32"}},
//       .out = {.dtype = ps::DType::bf16, .file = "out.bf16"},
//       .elements = count,
//       .function = [](const ps::Piece& piece, const ps::Stream& stream) {
//         ps::cast({.in = piece.in[0], .out = piece.out}, stream);
//       }});
//   halve.run({});
//
// Page-locked memory is copied directly. Pageable memory and files go through page-locked slots:
// CPU threads copy pageable memory, and files are read and written with many transfers in flight.
// On the CPU device the function works on host memory in place, and on the slots of files.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <vector>

#include "penstock/base/recorder.h"
#include "penstock/base/units.h"
#include "penstock/base/view.h"
#include "penstock/host/pipeline.h"
#include "penstock/host/stream.h"

namespace ps {

// Contiguous elements in host memory or in a file. Set either `memory` or `file`.
struct StreamedOperand {
  DType dtype = DType::f32;
  MemoryView memory{};  // pageable or page-locked, exactly the size of the elements
  std::filesystem::path file{};
  std::uint64_t offset = 0;  // of the first element in the file, in bytes
};

// Consecutive elements of every operand, on the device.
struct Piece {
  std::span<const TensorView> in;
  TensorView out;
  std::uint64_t first = 0;  // index of the first element
};

struct StreamedTransformOptions {
  std::vector<StreamedOperand> in{};  // one to four
  StreamedOperand out{};              // a file is created or truncated
  std::uint64_t elements = 0;         // of every operand
  // Enqueues the work on one piece and returns, for instance a function of ops/transform.h. Called
  // by the thread that calls run(), in the order of the pieces.
  std::function<void(const Piece& piece, const Stream& stream)> function{};
  Device device = Device::best();
  std::size_t device_bytes = 2 * GiB;    // most device memory to use
  std::size_t pinned_bytes = 512 * MiB;  // most page-locked memory to use
  std::size_t piece = 0;                 // elements per piece; 0: chosen
  std::size_t depth = 4;                 // pieces in flight on the device, in each direction
  std::size_t host_depth = 16;           // pieces in page-locked slots, in each direction
};

struct StreamedRun {
  std::stop_token stop{};
  std::function<void(const Progress&)> progress{};  // in pieces; see RunOptions
  Recorder* recorder = nullptr;
  std::optional<Stream> after{};  // the run waits for the work enqueued on this stream
  bool flush = false;             // run() returns when the output file is on the disk (fdatasync)
};

// Can run any number of times; the first run allocates the memory. Move-only.
class StreamedTransform {
 public:
  // Opens the input files, and creates or truncates the output file. Throws InvalidArgument naming
  // the option ("in[1].file"), and SystemError naming the path.
  explicit StreamedTransform(StreamedTransformOptions options);
  ~StreamedTransform();
  StreamedTransform(StreamedTransform&&) noexcept;
  StreamedTransform& operator=(StreamedTransform&&) noexcept;

  // Blocks until the run has completed, is cancelled or fails. Throws as Pipeline::run() does.
  // Items in the report are pieces. If the run does not complete, the output is unspecified.
  RunReport run(const StreamedRun& run);

  std::size_t piece() const;  // elements per piece
  std::uint64_t pieces() const;
  std::size_t device_bytes() const;  // that a run uses
  std::size_t pinned_bytes() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace ps
