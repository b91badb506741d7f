// Elementwise work on more data than the device has memory for: it lies in host memory or in files,
// and flows through the device in pieces, up and down at the same time.
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
// Page-locked memory is copied from and to directly. Ordinary memory and files go through
// page-locked slots, which the cores copy into and out of, a piece each, or the disk fills and
// empties with many transfers on their way. On the CPU device nothing is copied that need not be:
// the function works on host memory itself, and on the slots of files.
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

// A row of elements in host memory or in a file: one of the two.
struct StreamedOperand {
  DType dtype = DType::f32;
  MemoryView memory{};  // pageable or page-locked, as large as the elements are
  std::filesystem::path file{};
  std::uint64_t offset = 0;  // bytes before the first element; an output's file is written anew
};

// Neighbouring elements of every operand, where the function works.
struct Piece {
  std::span<const TensorView> in;
  TensorView out;
  std::uint64_t first = 0;  // which elements they are
};

struct StreamedTransformOptions {
  std::vector<StreamedOperand> in{};  // one to four
  StreamedOperand out{};
  std::uint64_t elements = 0;  // of every operand
  // Enqueues the work on a piece and returns; any function of ops/transform.h, or one's own. Called
  // by the thread that runs, a piece after the other.
  std::function<void(const Piece& piece, const Stream& stream)> function{};
  Device device = Device::best();
  std::size_t device_bytes = 2 * GiB;    // of the device's memory, at most
  std::size_t pinned_bytes = 512 * MiB;  // of page-locked slots, at most
  std::size_t piece = 0;                 // elements of one; 0: chosen
  std::size_t depth = 4;                 // pieces in each direction that are under way
  // The same in slots on the host: the disk works in bursts, and a core copies a piece.
  std::size_t host_depth = 16;
};

struct StreamedRun {
  std::stop_token stop{};
  std::function<void(const Progress&)> progress{};  // in pieces; see RunOptions
  Recorder* recorder = nullptr;
  std::optional<Stream> after{};  // starts behind the work enqueued there
  bool flush = false;             // ends when the output's file is on the disk itself
};

// Built once, run as often as wanted: memory is taken by the first run and kept. Move-only.
class StreamedTransform {
 public:
  // Opens the files, and empties the output's. Throws InvalidArgument naming the option
  // ("in[1].file"), SystemError naming the path.
  explicit StreamedTransform(StreamedTransformOptions options);
  ~StreamedTransform();
  StreamedTransform(StreamedTransform&&) noexcept;
  StreamedTransform& operator=(StreamedTransform&&) noexcept;

  // Blocks until all is done, cancelled or failed; throws as Pipeline::run does. The report's items
  // are pieces. Without success the output is unspecified.
  RunReport run(const StreamedRun& run);

  std::size_t piece() const;  // elements of one
  std::uint64_t pieces() const;
  std::size_t device_bytes() const;  // that a run takes
  std::size_t pinned_bytes() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace ps
