// Tensor copies into shared memory against a model on the host.
#include <cmath>
#include <cstring>

#include "gpu/kit_tensor_test.h"
#include "penstock/kit/barrier.cuh"
#include "penstock/kit/cluster.cuh"
#include "penstock/kit/fence.cuh"
#include "penstock/kit/tma.cuh"

namespace {

using ps::DType;
using ps::kit::Fill;
using ps::kit::Swizzle;
using ps::kit::TensorMap;
using ps::test::aligned_shared;
using ps::test::at_corner;
using ps::test::BoxCopy;
using ps::test::Bytes;
using ps::test::Corner;
using ps::test::DeviceArray;
using ps::test::fill_shared;
using ps::test::hint_of;
using ps::test::same;

using Barrier = ps::test::Patient<ps::kit::Barrier>;

constexpr unsigned margin = 256;           // behind the box, which nothing may touch
constexpr unsigned char untouched = 0xA5;  // no NaN in any type

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

class KitTensorLoadGpu : public ps::test::KitTensorTest {
 protected:
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
};

TEST_F(KitTensorLoadGpu, InEveryRank) {
  for (std::size_t rank = 1; rank <= 5; ++rank) {
    for (int i = 0; i < 12; ++i) check_load(any(rank, DType::f32, false));
  }
}

TEST_F(KitTensorLoadGpu, EveryType) {
  for (const DType type : {DType::u8, DType::f16, DType::bf16, DType::i32, DType::f32, DType::i64,
                           DType::f64, DType::boolean}) {
    for (int i = 0; i < 4; ++i) check_load(any(2, type, false));
  }
}

TEST_F(KitTensorLoadGpu, LargeBoxes) {
  BoxCopy copy{.type = DType::f16};
  lay_out(copy, {300, 300});
  copy.options.box = {256, 256};  // 128 KiB
  for (const int row : {-7, 0, 5}) {
    copy.corner = {{row, row * 8}};
    check_load(copy);
  }
}

TEST_F(KitTensorLoadGpu, FillsWithNaN) {
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

TEST_F(KitTensorLoadGpu, FillsDoublesWithNaN) {
  for (int i = 0; i < 4; ++i) {
    BoxCopy copy = any(2, DType::f64, false);
    copy.options.fill = Fill::nan;
    check_load(copy);
  }
}

TEST_F(KitTensorLoadGpu, Swizzled) {
  for (const Swizzle swizzle : ps::test::swizzles) {
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
TEST_F(KitTensorLoadGpu, SwizzleGoesByTheAddress) {
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

TEST_F(KitTensorLoadGpu, EveryNthElement) {
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

TEST_F(KitTensorLoadGpu, TakesEveryHintAndPromotion) {
  for (unsigned hint = 0; hint < ps::test::hints; ++hint) {
    for (const auto promotion : ps::test::promotions) {
      for (const std::size_t rank : {1, 3}) {
        BoxCopy copy = any(rank, DType::f32, true);
        copy.hint = hint;
        copy.options.l2_promotion = promotion;
        check_load(copy);
      }
    }
  }
}

TEST_F(KitTensorLoadGpu, ABroadcastRow) {
  BoxCopy copy{.type = DType::f32};
  copy.shape = {7, 40};
  copy.strides = {0, 1};
  copy.options.box = {6, 32};
  copy.corner = {{3, 12}};
  check_load(copy);
}

TEST_F(KitTensorLoadGpu, FromPageLockedMemory) {
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

TEST_F(KitTensorLoadGpu, ForSeveralBlocks) {
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

}  // namespace
