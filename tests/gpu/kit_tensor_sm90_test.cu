// Tensor copies against a model on the host: random tensors, and boxes that reach over their edges.
#include "penstock/kit/tma.cuh"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <array>
#include <type_traits>

#include "gpu/kit_test.h"
#include "penstock/kit/barrier.cuh"
#include "penstock/kit/cluster.cuh"
#include "penstock/kit/fence.cuh"
#include "penstock/kit/tensor_map.h"

namespace {

using ps::DType;
using ps::kit::Fill;
using ps::kit::Reduction;
using ps::kit::Swizzle;
using ps::kit::TensorMap;
using ps::test::aligned_shared;
using ps::test::DeviceArray;
using ps::test::fill_shared;
using ps::test::hint_of;
using ps::test::hints;
using ps::test::same;

using Barrier = ps::test::Patient<ps::kit::Barrier>;
using Bytes = std::vector<unsigned char>;

constexpr unsigned margin = 256;           // behind the box, which nothing may touch
constexpr unsigned char untouched = 0xA5;  // no NaN in any type

// Where a box begins, outermost dimension first.
struct Corner {
  int at[5];
};

template <unsigned rank, class Copy>
__device__ void at_corner(const Corner& corner, const Copy& copy) {
  const int* const at = corner.at;
  if constexpr (rank == 1) copy(at[0]);
  if constexpr (rank == 2) copy(at[0], at[1]);
  if constexpr (rank == 3) copy(at[0], at[1], at[2]);
  if constexpr (rank == 4) copy(at[0], at[1], at[2], at[3]);
  if constexpr (rank == 5) copy(at[0], at[1], at[2], at[3], at[4]);
}

// Writes out all of the shared memory: `shift` bytes, the box, the margin.
template <unsigned rank>
__global__ void load(const __grid_constant__ TensorMap map, Corner corner, unsigned shift,
                     unsigned bytes, unsigned hint, unsigned char* out) {
  __shared__ Barrier full;
  unsigned char* const shared = aligned_shared();
  const unsigned all = shift + bytes + margin;
  if (threadIdx.x == 0) {
    ps::kit::prefetch(map);
    full.init(1);
    ps::kit::fence_barrier_init();
  }
  fill_shared(shared, all, untouched);
  if (threadIdx.x == 0) {
    at_corner<rank>(corner, [&](auto... at) {
      ps::kit::tensor_prefetch(map, hint_of(hint), at...);
      full.arrive_expect(bytes);
      ps::kit::tensor_load(shared + shift, map, full, hint_of(hint), at...);
    });
  }
  full.wait(0);
  for (unsigned i = threadIdx.x; i < all; i += blockDim.x) out[i] = shared[i];
}

// The last block loads for those whose bit is set. Two dimensions.
__global__ void load_multicast(const __grid_constant__ TensorMap map, Corner corner, unsigned bytes,
                               std::uint16_t blocks, unsigned hint, unsigned char* out) {
  __shared__ Barrier full;
  unsigned char* const shared = aligned_shared();
  const unsigned all = bytes + margin, rank = ps::kit::cluster_rank();
  const bool meant = (blocks >> rank & 1) != 0;
  fill_shared(shared, all, untouched);
  if (threadIdx.x == 0) {
    full.init(1);
    ps::kit::fence_barrier_init();
    if (meant) full.arrive_expect(bytes);
  }
  __syncwarp();
  ps::kit::cluster_sync();
  if (rank == ps::kit::cluster_size() - 1 && threadIdx.x == 0) {
    ps::kit::tensor_load_multicast(shared, map, full, blocks, hint_of(hint), corner.at[0],
                                   corner.at[1]);
  }
  __syncwarp();
  if (meant) full.wait(0);
  ps::kit::cluster_sync();  // all that was sent has arrived
  for (unsigned i = threadIdx.x; i < all; i += blockDim.x) out[rank * all + i] = shared[i];
}

// Fills shared memory with a box as it lies there, and calls `copy` in one thread.
template <class Copy>
__device__ void from_shared(const unsigned char* in, unsigned bytes, const Copy& copy) {
  unsigned char* const shared = aligned_shared();
  for (unsigned i = threadIdx.x; i < bytes; i += blockDim.x) shared[i] = in[i];
  ps::kit::fence_shared_to_async();
  __syncthreads();
  if (threadIdx.x != 0) return;
  copy(shared);
  ps::kit::bulk_commit();
  ps::kit::bulk_wait<0>();
}

template <unsigned rank>
__global__ void store(const __grid_constant__ TensorMap map, Corner corner, unsigned bytes,
                      unsigned hint, const unsigned char* in) {
  from_shared(in, bytes, [&](const unsigned char* shared) {
    at_corner<rank>(corner,
                    [&](auto... at) { ps::kit::tensor_store(map, shared, hint_of(hint), at...); });
  });
}

template <unsigned rank, Reduction reduction>
__global__ void reduce(const __grid_constant__ TensorMap map, Corner corner, unsigned bytes,
                       unsigned hint, const unsigned char* in) {
  from_shared(in, bytes, [&](const unsigned char* shared) {
    at_corner<rank>(corner, [&](auto... at) {
      ps::kit::tensor_reduce<reduction>(map, shared, hint_of(hint), at...);
    });
  });
}

bool is_nan(const unsigned char* bytes, DType type) {
  if (type == DType::f64) {
    double value;
    std::memcpy(&value, bytes, sizeof(value));
    return std::isnan(value);
  }
  if (type == DType::f32) {
    float value;
    std::memcpy(&value, bytes, sizeof(value));
    return std::isnan(value);
  }
  std::uint16_t bits;
  std::memcpy(&bits, bytes, sizeof(bits));
  return (bits & 0x7FFF) > (type == DType::f16 ? 0x7C00 : 0x7F80);
}

std::int64_t rounded_up(std::int64_t value, std::int64_t to) { return (value + to - 1) / to * to; }

// A tensor with gaps between its rows, and a box of it. Outermost dimension first.
struct BoxCopy {
  DType type = DType::f32;
  std::vector<std::int64_t> shape{}, strides{};
  ps::kit::TensorMapOptions options{};  // all but the tensor
  Corner corner{};
  unsigned shift = 0;  // of the box in shared memory
  unsigned hint = 0;

  std::size_t rank() const { return shape.size(); }
  std::size_t size() const { return ps::size_of(type); }
  std::size_t tensor_bytes() const {
    std::int64_t last = 0;
    for (std::size_t d = 0; d < rank(); ++d) last += (shape[d] - 1) * strides[d];
    return static_cast<std::size_t>(rounded_up((last + 1) * std::int64_t(size()), 16)) + 64;
  }

  // Elements of the box along a dimension, in all, and its bytes.
  std::int64_t along(std::size_t d) const {
    return (options.box[d] + options.element_strides[d] - 1) / options.element_strides[d];
  }
  std::int64_t elements() const {
    std::int64_t all = 1;
    for (std::size_t d = 0; d < rank(); ++d) all *= along(d);
    return all;
  }
  unsigned bytes() const { return static_cast<unsigned>(elements() * std::int64_t(size())); }

  // Calls visit(byte in the box as it lies in shared memory, byte in the tensor) for every element;
  // the latter is -1 for one beyond the tensor.
  template <class Visit>
  void each(const Visit& visit) const {
    for (std::int64_t i = 0; i < elements(); ++i) {
      std::int64_t rest = i, at = 0;
      bool inside = true;
      for (std::size_t d = rank(); d-- > 0;) {
        const std::int64_t step = rest % along(d) * options.element_strides[d];
        const std::int64_t coordinate = corner.at[d] + step;
        inside = inside && coordinate >= 0 && coordinate < shape[d];
        at += coordinate * strides[d];
        rest /= along(d);
      }
      const auto plain = static_cast<unsigned>(i * std::int64_t(size()));
      visit(ps::kit::swizzled(shift + plain, options.swizzle) - shift,
            inside ? at * std::int64_t(size()) : -1);
    }
  }

  std::string describe() const {
    std::string text = ps::kit::describe(options) + ", corner";
    for (std::size_t d = 0; d < rank(); ++d) text.append(" ").append(std::to_string(corner.at[d]));
    return text + ", shift " + std::to_string(shift) + ", hint " + std::to_string(hint);
  }
};

class KitTensorGpu : public ps::test::KitSm90Test {
 protected:
  // The last dimension has `inner` elements; strides leave random gaps.
  void lay_out(BoxCopy& copy, std::vector<std::int64_t> shape) {
    copy.shape = std::move(shape);
    copy.strides.assign(copy.rank(), 1);
    const std::int64_t chunk = 16 / std::int64_t(copy.size());
    for (std::size_t d = copy.rank() - 1; d-- > 0;) {
      const std::int64_t least = copy.shape[d + 1] * copy.strides[d + 1];
      copy.strides[d] = rounded_up(least, chunk) + from(0, 2) * chunk;
    }
  }

  // Any size of tensor and box; `chunks`: the innermost dimension is a multiple of 16 bytes, too.
  BoxCopy any(std::size_t rank, DType type, bool chunks) {
    constexpr int most[] = {0, 0, 9, 5, 4, 3};
    BoxCopy copy{.type = type};
    const int chunk = 16 / static_cast<int>(copy.size());
    std::vector<std::int64_t> shape;
    for (std::size_t d = 0; d + 1 < rank; ++d) shape.push_back(from(1, 2 * most[rank]));
    shape.push_back(chunks ? from(1, 12) * chunk : from(1, 12 * chunk));
    lay_out(copy, shape);
    for (std::size_t d = 0; d + 1 < rank; ++d) copy.options.box[d] = from(1, most[rank]);
    copy.options.box[rank - 1] = from(1, 8) * chunk;
    for (std::size_t d = 0; d < rank; ++d) {
      const int box = static_cast<int>(copy.options.box[d]);
      copy.corner.at[d] = from(-box, static_cast<int>(copy.shape[d]));
    }
    copy.corner.at[rank - 1] = copy.corner.at[rank - 1] / chunk * chunk;
    copy.hint = static_cast<unsigned>(from(0, hints - 1));
    return copy;
  }

  static TensorMap map_of(BoxCopy& copy, void* data, ps::Place place = {ps::Memory::device, 0}) {
    copy.options.tensor = ps::TensorView(data, copy.type, copy.shape, copy.strides, place);
    return ps::kit::encode(copy.options);
  }

  // Calls `run_in(rank as a type)`.
  template <class Run>
  static void in_rank(std::size_t rank, const Run& run_in) {
    if (rank == 1) run_in(std::integral_constant<unsigned, 1>());
    if (rank == 2) run_in(std::integral_constant<unsigned, 2>());
    if (rank == 3) run_in(std::integral_constant<unsigned, 3>());
    if (rank == 4) run_in(std::integral_constant<unsigned, 4>());
    if (rank == 5) run_in(std::integral_constant<unsigned, 5>());
  }

  // Whether `got`, which begins `shift` bytes before the box, holds the box of a tensor of `data`.
  static testing::AssertionResult is_box(const Bytes& got, const BoxCopy& copy, const Bytes& data) {
    Bytes want(got.size(), untouched);
    std::size_t not_nan = 0;
    copy.each([&](unsigned in_box, std::int64_t in_tensor) {
      const std::size_t at = copy.shift + in_box;
      if (in_tensor >= 0) {
        std::memcpy(&want[at], &data[static_cast<std::size_t>(in_tensor)], copy.size());
      } else if (copy.options.fill == Fill::nan) {
        not_nan += is_nan(&got[at], copy.type) ? 0 : 1;
        std::memcpy(&want[at], &got[at], copy.size());
      } else {
        std::memset(&want[at], 0, copy.size());
      }
    });
    if (not_nan != 0) return testing::AssertionFailure() << not_nan << " elements are not NaN";
    return same(got, want);
  }

  // Stores may not begin before the tensor.
  static void begin_inside(BoxCopy& copy) {
    for (int& at : copy.corner.at) at = std::max(at, 0);
  }

  void check_load(BoxCopy copy) {
    const Bytes data = noise<unsigned char>(copy.tensor_bytes());
    const DeviceArray<unsigned char> tensor(data);
    const DeviceArray<unsigned char> out(copy.shift + copy.bytes() + margin);
    const TensorMap map = map_of(copy, tensor.data());
    SCOPED_TRACE(copy.describe());
    in_rank(copy.rank(), [&](auto rank) {
      run(load<rank()>, {.block = 128, .shared_bytes = out.bytes() + 1024}, map, copy.corner,
          copy.shift, copy.bytes(), copy.hint, out.data());
    });
    EXPECT_TRUE(is_box(out.values(), copy, data));
  }

  // `behind`: bytes behind the end of the innermost dimension that a store may change as well.
  void check_store(BoxCopy copy, std::size_t behind = 0) {
    begin_inside(copy);
    const Bytes box = noise<unsigned char>(copy.bytes());
    const DeviceArray<unsigned char> in(box), tensor(copy.tensor_bytes());
    const TensorMap map = map_of(copy, tensor.data());
    SCOPED_TRACE(copy.describe());
    in_rank(copy.rank(), [&](auto rank) {
      run(store<rank()>, {.block = 128, .shared_bytes = box.size() + 1024}, map, copy.corner,
          copy.bytes(), copy.hint, in.data());
    });
    const Bytes got = tensor.values();
    Bytes want(got.size(), ps::test::poison);
    copy.each([&](unsigned in_box, std::int64_t in_tensor) {
      if (in_tensor < 0) return;
      std::memcpy(&want[static_cast<std::size_t>(in_tensor)], &box[in_box], copy.size());
    });
    if (behind > 0) {
      // Two dimensions: of every row, what is not the tensor's.
      const auto row_bytes = static_cast<std::size_t>(copy.shape[1]) * copy.size();
      for (std::int64_t row = 0; row < copy.shape[0]; ++row) {
        const auto end = static_cast<std::size_t>(row * copy.strides[0]) * copy.size() + row_bytes;
        std::copy_n(got.begin() + static_cast<std::ptrdiff_t>(end), behind,
                    want.begin() + static_cast<std::ptrdiff_t>(end));
      }
    }
    EXPECT_TRUE(same(got, want));
  }
};

TEST_F(KitTensorGpu, LoadsInEveryRank) {
  for (std::size_t rank = 1; rank <= 5; ++rank) {
    for (int i = 0; i < 12; ++i) check_load(any(rank, DType::f32, false));
  }
}

TEST_F(KitTensorGpu, LoadsEveryType) {
  for (const DType type : {DType::u8, DType::f16, DType::bf16, DType::i32, DType::f32, DType::i64,
                           DType::f64, DType::boolean}) {
    for (int i = 0; i < 4; ++i) check_load(any(2, type, false));
  }
}

TEST_F(KitTensorGpu, LoadsLargeBoxes) {
  BoxCopy copy{.type = DType::f16};
  lay_out(copy, {300, 300});
  copy.options.box = {256, 256};  // 128 KiB
  for (const int row : {-7, 0, 5}) {
    copy.corner = {{row, row * 8}};
    check_load(copy);
  }
}

TEST_F(KitTensorGpu, FillsWithNaN) {
  for (const DType type : {DType::f32, DType::f16, DType::bf16}) {
    for (std::size_t rank = 1; rank <= 3; ++rank) {
      for (int i = 0; i < 4; ++i) {
        BoxCopy copy = any(rank, type, false);
        copy.options.fill = Fill::nan;
        check_load(copy);
      }
    }
  }
}

TEST_F(KitTensorGpu, FillsDoublesWithNaN) {
  for (int i = 0; i < 4; ++i) {
    BoxCopy copy = any(2, DType::f64, false);
    copy.options.fill = Fill::nan;
    check_load(copy);
  }
}

constexpr Swizzle swizzles[] = {Swizzle::none, Swizzle::b32, Swizzle::b64, Swizzle::b128};

TEST_F(KitTensorGpu, LoadsSwizzled) {
  for (const Swizzle swizzle : swizzles) {
    for (std::size_t rank = 2; rank <= 4; ++rank) {
      for (int i = 0; i < 6; ++i) {
        BoxCopy copy = any(rank, DType::bf16, false);
        copy.options.swizzle = swizzle;
        copy.options.box[rank - 1] = ps::kit::span(swizzle) / 2;
        copy.options.box[rank - 2] = from(1, 40);
        check_load(copy);
      }
    }
  }
}

// The pattern counts from address 0, not from where a box begins.
TEST_F(KitTensorGpu, SwizzleGoesByTheAddress) {
  for (const Swizzle swizzle : {Swizzle::b32, Swizzle::b64, Swizzle::b128}) {
    for (const unsigned shift : {128U, 256U, 384U, 896U, 1024U, 1152U}) {
      BoxCopy copy = any(2, DType::f32, false);
      copy.options.swizzle = swizzle;
      copy.options.box[1] = ps::kit::span(swizzle) / 4;
      copy.options.box[0] = 24;
      copy.shift = shift;
      check_load(copy);
    }
  }
}

TEST_F(KitTensorGpu, LoadsEveryNthElement) {
  constexpr int most[] = {0, 0, 64, 9, 6, 4};
  for (std::size_t rank = 2; rank <= 5; ++rank) {
    for (int i = 0; i < 8; ++i) {
      BoxCopy copy = any(rank, DType::f32, false);
      for (std::size_t d = 0; d + 1 < rank; ++d) {
        copy.options.element_strides[d] = from(1, 8);
        copy.options.box[d] = from(1, most[rank]);
      }
      check_load(copy);
    }
  }
}

TEST_F(KitTensorGpu, TakesEveryHintAndPromotion) {
  for (unsigned hint = 0; hint < hints; ++hint) {
    for (const auto promotion : {ps::kit::L2Promotion::none, ps::kit::L2Promotion::b64,
                                 ps::kit::L2Promotion::b128, ps::kit::L2Promotion::b256}) {
      for (const std::size_t rank : {1, 3}) {
        BoxCopy copy = any(rank, DType::f32, true);
        copy.hint = hint;
        copy.options.l2_promotion = promotion;
        check_load(copy);
        check_store(copy);
      }
    }
  }
}

TEST_F(KitTensorGpu, LoadsABroadcastRow) {
  BoxCopy copy{.type = DType::f32};
  copy.shape = {7, 40};
  copy.strides = {0, 1};
  copy.options.box = {6, 32};
  copy.corner = {{3, 12}};
  check_load(copy);
}

TEST_F(KitTensorGpu, LoadsFromPageLockedMemory) {
  BoxCopy copy = any(2, DType::f32, false);
  void* host = nullptr;
  ASSERT_EQ(cudaMallocHost(&host, copy.tensor_bytes()), cudaSuccess);
  const Bytes data = noise<unsigned char>(copy.tensor_bytes());
  std::memcpy(host, data.data(), data.size());
  const DeviceArray<unsigned char> out(copy.bytes() + margin);
  const TensorMap map = map_of(copy, host, {ps::Memory::pinned});
  SCOPED_TRACE(copy.describe());
  run(load<2>, {.block = 128, .shared_bytes = out.bytes() + 1024}, map, copy.corner, 0U,
      copy.bytes(), copy.hint, out.data());
  EXPECT_TRUE(is_box(out.values(), copy, data));
  EXPECT_EQ(cudaFreeHost(host), cudaSuccess);
}

TEST_F(KitTensorGpu, LoadsForSeveralBlocks) {
  constexpr unsigned size = 4;
  for (const Swizzle swizzle : {Swizzle::none, Swizzle::b128}) {
    for (const unsigned blocks : {0b0001U, 0b1000U, 0b1011U, 0b1111U}) {
      BoxCopy copy = any(2, DType::bf16, false);
      copy.options.swizzle = swizzle;
      if (swizzle == Swizzle::b128) copy.options.box[1] = 64;
      const Bytes data = noise<unsigned char>(copy.tensor_bytes());
      const DeviceArray<unsigned char> tensor(data);
      const unsigned all = copy.bytes() + margin;
      const DeviceArray<unsigned char> out(size * all);
      const TensorMap map = map_of(copy, tensor.data());
      SCOPED_TRACE(copy.describe() + ", blocks " + std::to_string(blocks));
      run(load_multicast, {.grid = size, .block = 128, .shared_bytes = all + 1024, .cluster = size},
          map, copy.corner, copy.bytes(), static_cast<std::uint16_t>(blocks), copy.hint,
          out.data());
      const Bytes got = out.values();
      for (unsigned block = 0; block < size; ++block) {
        const Bytes part(got.begin() + block * all, got.begin() + (block + 1) * all);
        SCOPED_TRACE(testing::Message() << "block " << block);
        if ((blocks >> block & 1) != 0) {
          EXPECT_TRUE(is_box(part, copy, data));
        } else {
          EXPECT_TRUE(ps::test::all_are(part, untouched));
        }
      }
    }
  }
}

TEST_F(KitTensorGpu, StoresInEveryRank) {
  for (std::size_t rank = 1; rank <= 5; ++rank) {
    for (int i = 0; i < 12; ++i) check_store(any(rank, DType::f32, true));
  }
}

TEST_F(KitTensorGpu, StoresEveryType) {
  for (const DType type :
       {DType::u8, DType::f16, DType::bf16, DType::i32, DType::i64, DType::f64}) {
    for (int i = 0; i < 4; ++i) check_store(any(2, type, true));
  }
}

TEST_F(KitTensorGpu, StoresSwizzled) {
  for (const Swizzle swizzle : swizzles) {
    for (int i = 0; i < 8; ++i) {
      BoxCopy copy = any(2, DType::bf16, true);
      copy.options.swizzle = swizzle;
      copy.options.box[1] = ps::kit::span(swizzle) / 2;
      copy.options.box[0] = from(1, 40);
      check_store(copy);
    }
  }
}

// Rows that end in the middle of 16 bytes: as the kit says, those 16 bytes may be written whole,
// and nothing behind them.
TEST_F(KitTensorGpu, StoresEndAtTheNext16Bytes) {
  for (int i = 0; i < 16; ++i) {
    BoxCopy copy = any(2, DType::f32, true);
    copy.shape[1] -= from(1, 3);
    check_store(copy, static_cast<std::size_t>(rounded_up(copy.shape[1], 4) - copy.shape[1]) * 4);
  }
}

template <class T>
T combined(Reduction how, T a, T b) {
  const auto x = static_cast<float>(a), y = static_cast<float>(b);
  return T(how == Reduction::add ? x + y : how == Reduction::min ? std::min(x, y) : std::max(x, y));
}

class KitTensorReduceGpu : public KitTensorGpu {
 protected:
  // Whole numbers, exact in every type.
  template <class T, unsigned rank, Reduction how>
  void check_reduce(DType type) {
    for (int i = 0; i < 6; ++i) {
      BoxCopy copy = any(rank, type, true);
      begin_inside(copy);
      std::vector<T> box(copy.bytes() / sizeof(T)), data(copy.tensor_bytes() / sizeof(T));
      for (T& value : box) value = T(static_cast<float>(from(-99, 99)));
      for (T& value : data) value = T(static_cast<float>(from(-99, 99)));
      const DeviceArray<T> in(box), tensor(data);
      const TensorMap map = map_of(copy, tensor.data());
      SCOPED_TRACE(copy.describe());
      run(reduce<rank, how>, {.block = 128, .shared_bytes = copy.bytes() + 1024}, map, copy.corner,
          copy.bytes(), copy.hint, reinterpret_cast<const unsigned char*>(in.data()));
      copy.each([&](unsigned in_box, std::int64_t in_tensor) {
        if (in_tensor < 0) return;
        T& value = data[static_cast<std::size_t>(in_tensor) / sizeof(T)];
        value = combined(how, value, box[in_box / sizeof(T)]);
      });
      EXPECT_TRUE(same(tensor.values(), data));
    }
  }
};

TEST_F(KitTensorReduceGpu, AddsFloats) {
  check_reduce<float, 1, Reduction::add>(DType::f32);
  check_reduce<float, 2, Reduction::add>(DType::f32);
  check_reduce<float, 3, Reduction::add>(DType::f32);
  check_reduce<float, 4, Reduction::add>(DType::f32);
  check_reduce<float, 5, Reduction::add>(DType::f32);
}

TEST_F(KitTensorReduceGpu, AddsSmallFloats) {
  check_reduce<__half, 2, Reduction::add>(DType::f16);
  check_reduce<__nv_bfloat16, 2, Reduction::add>(DType::bf16);
}

TEST_F(KitTensorReduceGpu, Integers) {
  check_reduce<std::int32_t, 2, Reduction::add>(DType::i32);
  check_reduce<std::int32_t, 2, Reduction::min>(DType::i32);
  check_reduce<std::int32_t, 2, Reduction::max>(DType::i32);
}

TEST_F(KitTensorReduceGpu, LeastAndGreatestOfSmallFloats) {
  check_reduce<__half, 2, Reduction::min>(DType::f16);
  check_reduce<__half, 2, Reduction::max>(DType::f16);
  check_reduce<__nv_bfloat16, 2, Reduction::min>(DType::bf16);
  check_reduce<__nv_bfloat16, 2, Reduction::max>(DType::bf16);
}

}  // namespace
