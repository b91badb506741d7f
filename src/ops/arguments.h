// Checks of arguments that all operators share, so that a mistake gets the same message everywhere:
// the argument, what was expected and what was given. A check that passes allocates nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>

#include "penstock/base/view.h"
#include "penstock/host/device.h"
#include "penstock/host/pool.h"
#include "penstock/host/stream.h"

namespace ps::detail {

// A view and its argument's name, which is put together only for an error: "at". For a list of
// arguments: "in[2]", with an empty `argument`, or "sensors[2].values".
struct Named {
  std::string_view argument;
  const TensorView& view;
  std::string_view list{};
  int index = 0;

  std::string name() const;
};

// Whether an optional view was given.
bool given(const TensorView& view);

// "f32[4, 128] on cuda:0", or "none".
std::string described(const TensorView& view);

// The stride of a dimension; 0 if the view has no elements.
std::int64_t step(const TensorView& view, std::size_t dimension);

// The same for kernels that rely on the stride of a single index too: it has no meaning there, and
// is `usual`, as in a view without elements.
std::int64_t stride_or(const TensorView& view, std::size_t dimension, std::int64_t usual);

inline bool on_cpu(const Device& device) { return device.kind() == DeviceKind::cpu; }
inline bool on_cpu(const Stream& stream) { return on_cpu(stream.device()); }

// These throw InvalidArgument. `meaning` explains the dimensions.
void check_type(const Named& argument, std::initializer_list<DType> types);
void check_same_type(const Named& argument, const Named& as);
void check_shape(const Named& argument, std::initializer_list<std::int64_t> shape,
                 std::string_view meaning);
void check_same_shape(const Named& argument, const Named& as);
void check_rank(const Named& argument, std::size_t rank, std::string_view meaning);
// Of an extent, whose name is `what`.
void check_range(const Named& argument, std::string_view what, std::int64_t value,
                 std::int64_t least, std::int64_t most);
void check_multiple(const Named& argument, std::string_view what, std::int64_t value,
                    std::int64_t of);
void check_contiguous(const Named& argument);
void check_last_contiguous(const Named& argument);  // the elements of a row; rows may be strided

// That the elements are aligned to their size and in memory that `device` can use: a GPU its own
// memory, the CPU all memory that is not a GPU's.
void check_memory(const Named& argument, const Device& device);

// That the first element is at a multiple of `bytes`.
void check_alignment(const Named& argument, std::size_t bytes);

// That the runs of elements along a contiguous dimension begin at multiples of 16 bytes.
void check_aligned_runs(const Named& argument, std::size_t contiguous);

// That the elements of a row are contiguous and, on a GPU, that rows begin at multiples of 16
// bytes.
void check_aligned_rows(const Named& argument, const Device& device);

// For results. No two elements share memory.
void check_distinct_elements(const Named& result);

// For results. The range of memory that the result spans does not overlap that of the other.
// Views whose elements alternate in memory count as overlapping.
void check_apart(const Named& result, const Named& other);
void check_apart(const Named& result, std::span<const Named> others);

// For results of operators that work in place. The result is the memory of the input, with elements
// of the same size, or does not overlap it. Both are contiguous.
void check_apart_or_in_place(const Named& result, const Named& input);

// That a workspace has `bytes` bytes, is in memory of the device, aligned to 256 bytes, on the CPU
// to 64, and does not overlap the call's arguments.
void check_workspace(const MemoryView& workspace, std::size_t bytes, const Device& device,
                     std::span<const Named> arguments);

// For calls without a workspace: that there is a pool of the device to allocate it from.
void check_pool(const Pool* pool, std::size_t bytes, const Device& device);

// What an operator, or one of its kernels, needs of a GPU.
struct ComputeNeeded {
  int major = 8, minor = 0;   // the compute capability
  bool or_later = true;       // false for sm_90a code, which runs on 9.0 alone
  std::string_view kernel{};  // the kernel that needs it; empty: all of them
  std::string_view instead = "use the CPU device";
};

// Throws Unsupported if the device is a GPU that does not have it. `name` is the operator's.
void require_compute(const Device& device, std::string_view name, const ComputeNeeded& needed = {});

// Throws Unsupported, for builds without CUDA.
[[noreturn]] void throw_no_cuda(const Device& device, std::string_view name);

}  // namespace ps::detail
