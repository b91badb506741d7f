// Tensor copies out of shared memory, and those that combine, against a model on the host.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstring>

#include "gpu/kit_tensor_test.h"
#include "penstock/kit/fence.cuh"
#include "penstock/kit/piece_store.cuh"
#include "penstock/kit/tma.cuh"

namespace {

using ps::DType;
using ps::kit::Reduction;
using ps::kit::Swizzle;
using ps::kit::TensorMap;
using ps::test::aligned_shared;
using ps::test::at_corner;
using ps::test::BoxCopy;
using ps::test::Bytes;
using ps::test::Corner;
using ps::test::DeviceArray;
using ps::test::hint_of;
using ps::test::same;

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

__global__ void store_ragged(const __grid_constant__ TensorMap map, unsigned row, unsigned valid,
                             unsigned column, unsigned bytes, const unsigned char* in) {
  from_shared(in, bytes, [&](const unsigned char* shared) {
    ps::kit::ragged_store(map, shared, hint_of(0), row, valid, column);
  });
}

class KitTensorStoreGpu : public ps::test::KitTensorTest {
 protected:
  // Stores may not begin before the tensor.
  static void begin_inside(BoxCopy& copy) {
    for (int& at : copy.corner.at) at = std::max(at, 0);
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

TEST_F(KitTensorStoreGpu, InEveryRank) {
  for (std::size_t rank = 1; rank <= 5; ++rank) {
    for (int i = 0; i < 12; ++i) check_store(any(rank, DType::f32, true));
  }
}

TEST_F(KitTensorStoreGpu, EveryType) {
  for (const DType type :
       {DType::u8, DType::f16, DType::bf16, DType::i32, DType::i64, DType::f64}) {
    for (int i = 0; i < 4; ++i) check_store(any(2, type, true));
  }
}

TEST_F(KitTensorStoreGpu, Swizzled) {
  for (const Swizzle swizzle : ps::test::swizzles) {
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
TEST_F(KitTensorStoreGpu, EndsAtTheNext16Bytes) {
  for (int i = 0; i < 16; ++i) {
    BoxCopy copy = any(2, DType::f32, true);
    copy.shape[1] -= from(1, 3);
    check_store(
        copy, static_cast<std::size_t>(ps::test::rounded_up(copy.shape[1], 4) - copy.shape[1]) * 4);
  }
}

TEST_F(KitTensorStoreGpu, TakesEveryHintAndPromotion) {
  for (unsigned hint = 0; hint < ps::test::hints; ++hint) {
    for (const auto promotion : ps::test::promotions) {
      for (const std::size_t rank : {1, 3}) {
        BoxCopy copy = any(rank, DType::f32, true);
        copy.hint = hint;
        copy.options.l2_promotion = promotion;
        check_store(copy);
      }
    }
  }
}

// Any number of rows of a box, anywhere in a matrix: the rows behind them, and the 16 before the
// matrix, stay as they were.
TEST_F(KitTensorStoreGpu, RaggedRows) {
  constexpr unsigned rows = 37, columns = 72, stride = 80, box_rows = 16, box_columns = 64;
  constexpr std::int64_t shape[] = {rows, columns}, strides[] = {stride, 1};
  const std::size_t all = std::size_t{stride} * (box_rows + rows);
  for (unsigned valid = 1; valid <= box_rows; ++valid) {
    for (const unsigned row : {0U, 1U, 13U, rows - valid}) {
      for (const unsigned column : {0U, box_columns}) {
        SCOPED_TRACE(testing::Message() << valid << " rows from " << row << ", column " << column);
        const auto box = noise<std::uint16_t>(std::size_t{box_rows} * box_columns);
        const DeviceArray<std::uint16_t> in(box), matrix(all);
        std::vector<std::uint16_t> want = matrix.values();
        const TensorMap map = ps::kit::encode(ps::kit::ragged_options(
            ps::TensorView(matrix.data() + std::size_t{stride} * box_rows, DType::bf16, shape,
                           strides, {ps::Memory::device, 0})));
        run(store_ragged, {.block = 128, .shared_bytes = in.bytes() + 1024}, map, row, valid,
            column, static_cast<unsigned>(in.bytes()),
            reinterpret_cast<const unsigned char*>(in.data()));
        for (unsigned i = 0; i < valid; ++i) {
          for (unsigned j = 0; j < box_columns && column + j < columns; ++j) {
            const unsigned in_shared = ps::kit::swizzled(2 * (i * box_columns + j), Swizzle::b128);
            want[std::size_t{stride} * (box_rows + row + i) + column + j] = box[in_shared / 2];
          }
        }
        EXPECT_TRUE(same(matrix.values(), want));
      }
    }
  }
}

template <class T>
T combined(Reduction how, T a, T b) {
  const auto x = static_cast<float>(a), y = static_cast<float>(b);
  return T(how == Reduction::add ? x + y : how == Reduction::min ? std::min(x, y) : std::max(x, y));
}

class KitTensorReduceGpu : public KitTensorStoreGpu {
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
