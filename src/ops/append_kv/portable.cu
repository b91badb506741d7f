// The GPU's append_kv(), for compute capability 8.0 and later. One block per new row; its threads
// share out the row's pieces of all heads of K, V and q.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <initializer_list>
#include <type_traits>

#include "ops/append_kv/work.h"
#include "ops/launch.h"
#include "penstock/base/checked.h"
#include "penstock/host/cuda.h"
#include "penstock/kit/launch.cuh"

namespace ps::appending {
namespace {

using detail::AppendPlace;
using detail::AppendRows;
using detail::AppendWork;

constexpr unsigned threads = 128;
constexpr unsigned wide_bytes = 16;

__device__ float widen(float x) { return x; }
__device__ float widen(__half x) { return __half2float(x); }
__device__ float widen(__nv_bfloat16 x) { return __bfloat162float(x); }
__device__ void narrow(float x, float& to) { to = x; }
__device__ void narrow(float x, __half& to) { to = __float2half_rn(x); }
__device__ void narrow(float x, __nv_bfloat16& to) { to = __float2bfloat16_rn(x); }

// `count` elements that are loaded and stored at once, 16 bytes at a time if there are as many.
template <class Element, int count>
struct alignas(sizeof(Element) * count < wide_bytes ? sizeof(Element) * count : wide_bytes) Piece {
  Element element[count];
};

template <class Element, int count>
__device__ Piece<Element, count> load(const Element* from) {
  return *reinterpret_cast<const Piece<Element, count>*>(from);
}
template <class Element, int count>
__device__ void store(Element* to, const Piece<Element, count>& piece) {
  *reinterpret_cast<Piece<Element, count>*>(to) = piece;
}

// The pieces of a head's row: those to be rotated, in twos that go together, then the others.
template <class Element, class Table, int width>
struct HeadRow {
  // Pairs of elements at once. Without vectors, a pair of neighbours is like one of halves.
  static constexpr int vector_pairs = width > 1 ? width / 2 : 1;

  const AppendWork& work;
  const Table *cos, *sin;  // at the row's position

  __device__ bool halves() const { return work.pairs == RotaryPairs::halves; }
  __device__ unsigned rotations() const {
    const unsigned pairs = static_cast<unsigned>(work.rotated) / 2;
    return halves() ? pairs / width : pairs / vector_pairs;
  }
  __device__ unsigned pieces() const {
    return rotations() + static_cast<unsigned>(work.dim - work.rotated) / width;
  }

  __device__ void move(const Element* from, Element* to, unsigned piece) const {
    const unsigned rotated = rotations();
    if (piece >= rotated) {
      const unsigned at = static_cast<unsigned>(work.rotated) + (piece - rotated) * width;
      store<Element, width>(to + at, load<Element, width>(from + at));
    } else if (halves()) {
      rotate_halves(from, to, piece * width);
    } else {
      rotate_neighbours(from, to, piece * vector_pairs);
    }
  }

 private:
  __device__ void rotate_halves(const Element* from, Element* to, unsigned at) const {
    const unsigned other = at + static_cast<unsigned>(work.rotated) / 2;
    Piece<Element, width> x = load<Element, width>(from + at);
    Piece<Element, width> y = load<Element, width>(from + other);
    const Piece<Table, width> c = load<Table, width>(cos + at), s = load<Table, width>(sin + at);
#pragma unroll
    for (int i = 0; i < width; ++i) {
      const auto pair = detail::rotate_pair(widen(x.element[i]), widen(y.element[i]),
                                            widen(c.element[i]), widen(s.element[i]));
      narrow(pair.x, x.element[i]);
      narrow(pair.y, y.element[i]);
    }
    store<Element, width>(to + at, x);
    store<Element, width>(to + other, y);
  }

  // From pair number `first` on.
  __device__ void rotate_neighbours(const Element* from, Element* to, unsigned first) const {
    using Pairs = Piece<Table, vector_pairs>;
    constexpr int step = width > 1 ? width : 1;
    Element element[2 * vector_pairs];
#pragma unroll
    for (int i = 0; i < 2 * vector_pairs; i += step) {
      const Piece<Element, step> loaded = load<Element, step>(from + 2 * first + i);
#pragma unroll
      for (int j = 0; j < step; ++j) element[i + j] = loaded.element[j];
    }
    const Pairs c = load<Table, vector_pairs>(cos + first);
    const Pairs s = load<Table, vector_pairs>(sin + first);
#pragma unroll
    for (int i = 0; i < vector_pairs; ++i) {
      const auto pair = detail::rotate_pair(widen(element[2 * i]), widen(element[2 * i + 1]),
                                            widen(c.element[i]), widen(s.element[i]));
      narrow(pair.x, element[2 * i]);
      narrow(pair.y, element[2 * i + 1]);
    }
#pragma unroll
    for (int i = 0; i < 2 * vector_pairs; i += step) {
      Piece<Element, step> changed;
#pragma unroll
      for (int j = 0; j < step; ++j) changed.element[j] = element[i + j];
      store<Element, step>(to + 2 * first + i, changed);
    }
  }
};

template <class Element>
__device__ Element* head_row(const AppendRows& rows, std::int64_t batch, std::int64_t row,
                             unsigned head) {
  return static_cast<Element*>(rows.data) + rows.at(batch, row) + head * rows.head;
}

// `width` elements are 16 bytes, and all rows and tables begin at multiples of 16 bytes; or it
// is 1.
template <class Element, class Table, int width>
__global__ void __launch_bounds__(threads) append(const AppendWork work) {
  const AppendPlace place = work.place(blockIdx.x);
  if (!place.any) return;
  const auto table = [&](const void* all, std::int64_t stride) {
    return static_cast<const Table*>(all) + place.position * stride;
  };
  const HeadRow<Element, Table, width> row{work, table(work.cos, work.cos_row),
                                           table(work.sin, work.sin_row)};
  const unsigned k_pieces = row.pieces(), v_pieces = static_cast<unsigned>(work.dim_v) / width;
  const unsigned k_end = place.kept ? static_cast<unsigned>(work.heads_k) * k_pieces : 0;
  const unsigned v_end = k_end + (place.kept ? static_cast<unsigned>(work.heads_k) * v_pieces : 0);
  const unsigned q_end = v_end + static_cast<unsigned>(work.heads_q) * k_pieces;
  for (unsigned i = threadIdx.x; i < q_end; i += threads) {
    if (i < k_end) {
      const unsigned head = i / k_pieces;
      row.move(head_row<Element>(work.k, place.batch, place.row, head),
               head_row<Element>(work.k_cache, place.page, place.slot, head), i - head * k_pieces);
    } else if (i < v_end) {
      const unsigned head = (i - k_end) / v_pieces;
      const unsigned at = (i - k_end - head * v_pieces) * width;
      const Element* from = head_row<Element>(work.v, place.batch, place.row, head) + at;
      store<Element, width>(head_row<Element>(work.v_cache, place.page, place.slot, head) + at,
                            load<Element, width>(from));
    } else {
      const unsigned head = (i - v_end) / k_pieces;
      row.move(head_row<Element>(work.q, place.batch, place.row, head),
               head_row<Element>(work.q_out, place.batch, place.row, head),
               i - v_end - head * k_pieces);
    }
  }
}

__global__ void __launch_bounds__(threads) advance(const AppendWork work) {
  const unsigned sequence = blockIdx.x * threads + threadIdx.x;
  if (sequence >= static_cast<unsigned>(work.sequences)) return;
  const auto b = static_cast<std::int32_t>(sequence);
  work.lengths[b] = static_cast<std::int32_t>(work.advanced(b));
}

// Whether all pieces of `width` elements begin at multiples of 16 bytes.
bool fits_vectors(const AppendWork& work, std::int64_t width) {
  const auto whole = [](const void* data, std::int64_t each,
                        std::initializer_list<std::int64_t> strides) {
    if (reinterpret_cast<std::uintptr_t>(data) % wide_bytes != 0) return false;
    for (const std::int64_t stride : strides) {
      if (stride % each != 0) return false;
    }
    return true;
  };
  for (const AppendRows* each :
       {&work.k, &work.v, &work.q, &work.q_out, &work.k_cache, &work.v_cache}) {
    if (!whole(each->data, width, {each->batch, each->row, each->head})) return false;
  }
  const std::int64_t multiple = work.pairs == RotaryPairs::halves ? 2 * width : width;
  if (work.rotated % multiple != 0 || work.dim % width != 0 || work.dim_v % width != 0) {
    return false;
  }
  const auto columns = static_cast<std::int64_t>(wide_bytes / size_of(work.table_type));
  return work.rotated == 0 ||
         (whole(work.cos, columns, {work.cos_row}) && whole(work.sin, columns, {work.sin_row}));
}

template <class Element, class Table>
void launch(const AppendWork& work, cudaStream_t stream) {
  constexpr int width = wide_bytes / sizeof(Element);
  const kit::LaunchOptions grid{.grid = static_cast<unsigned>(work.rows), .block = threads};
  if (fits_vectors(work, width)) {
    kit::launch(append<Element, Table, width>, grid, stream, work);
  } else {
    kit::launch(append<Element, Table, 1>, grid, stream, work);
  }
}

template <class Element>
void launch(const AppendWork& work, cudaStream_t stream) {
  if constexpr (!std::is_same_v<Element, float>) {
    if (work.table_type != DType::f32) return launch<Element, Element>(work, stream);
  }
  launch<Element, float>(work, stream);
}

}  // namespace
}  // namespace ps::appending

namespace ps::detail {

void append_kv_portable(const AppendWork& work, const Stream& stream) {
  using namespace appending;
  const CurrentGpu current(stream.device());
  const cudaStream_t on = cuda_stream(stream);
  const auto run = work.type == DType::f32   ? launch<float>
                   : work.type == DType::f16 ? launch<__half>
                                             : launch<__nv_bfloat16>;
  run(work, on);
  if (work.advance) advance_lengths_portable(work, stream);
}

void advance_lengths_portable(const AppendWork& work, const Stream& stream) {
  using namespace appending;
  const CurrentGpu current(stream.device());
  const auto blocks =
      static_cast<unsigned>(ceil_div(static_cast<std::size_t>(work.sequences), threads));
  kit::launch(advance, {.grid = blocks, .block = threads}, cuda_stream(stream), work);
}

}  // namespace ps::detail
