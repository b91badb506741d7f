#include "penstock/kit/tensor_map.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <functional>
#include <ostream>
#include <random>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "kit/tiled_map.h"
#include "penstock/base/error.h"

namespace ps::kit {
namespace {

static_assert(sizeof(TensorMap) == 128 && alignof(TensorMap) % 64 == 0);
static_assert(std::is_trivial_v<TensorMap> && std::is_standard_layout_v<TensorMap>);

constexpr std::int64_t two32 = std::int64_t{1} << 32, two40 = std::int64_t{1} << 40;
constexpr Place gpu{Memory::device, 0};

// Maps are made of addresses; nobody looks at what is there.
alignas(1024) std::array<std::byte, 64> memory{};

// A set of options in parts that can be changed one by one.
struct Draft {
  std::size_t offset = 0;  // of the address, in bytes
  DType dtype = DType::f32;
  std::vector<std::int64_t> shape;
  std::vector<std::int64_t> strides = {};  // in elements; none: packed
  Place place = gpu;
  TensorMapOptions options = {};

  TensorMapOptions made() const {
    TensorMapOptions result = options;
    void* data = memory.data() + offset;
    result.tensor = strides.empty() ? TensorView(data, dtype, shape, place)
                                    : TensorView(data, dtype, shape, strides, place);
    return result;
  }
};

// Floats of 64 by 32 in boxes of 16 by 32, to be spoilt.
Draft matrix() { return {.shape = {64, 32}, .options = {.box = {16, 32}}}; }
Draft block() { return {.shape = {8, 64, 32}, .options = {.box = {2, 16, 32}}}; }

struct Broken {
  const char* name;
  Draft draft;
  const char* argument;
  std::vector<std::string> words;  // of the message

  friend void PrintTo(const Broken& broken, std::ostream* out) { *out << broken.name; }
};

Broken broken(const char* name, Draft draft, const std::function<void(Draft&)>& change,
              const char* argument, std::vector<std::string> words) {
  change(draft);
  return {name, std::move(draft), argument, std::move(words)};
}

// Every rule once.
std::vector<Broken> all_broken() {
  return {
      broken("NoDimensions", matrix(), [](Draft& d) { d.shape = {}; }, "tensor",
             {"1 to 5 dimensions", "f32[]"}),
      broken("SixDimensions", matrix(), [](Draft& d) { d.shape = {2, 2, 2, 2, 2, 32}; }, "tensor",
             {"1 to 5 dimensions", "f32[2, 2, 2, 2, 2, 32]"}),
      broken("EmptyDimension", matrix(), [](Draft& d) { d.shape = {0, 32}; }, "tensor",
             {"1 to 2^32", "dimension 0", "f32[0, 32]"}),
      broken("HugeDimension", matrix(), [](Draft& d) { d.shape = {two32 + 1, 32}; }, "tensor",
             {"1 to 2^32", "dimension 0", "f32[4294967297, 32]"}),
      broken("HugeInnermostDimension", matrix(),
             [](Draft& d) {
               d.dtype = DType::u8;
               d.shape = {two32 + 1};
               d.options.box = {16};
             },
             "tensor", {"1 to 2^32", "dimension 0", "u8[4294967297]"}),
      broken("PageableMemory", matrix(), [](Draft& d) { d.place = {}; }, "tensor",
             {"GPU", "page-locked", "on host"}),
      broken("MemoryOfTheCpu", matrix(), [](Draft& d) { d.place = {Memory::device, cpu_index}; },
             "tensor", {"GPU", "page-locked", "on cpu"}),
      broken("Address", matrix(), [](Draft& d) { d.offset = 8; }, "tensor",
             {"address", "multiple of 16 bytes", "0x"}),
      broken("AddressWithInterleave32", block(),
             [](Draft& d) {
               d.offset = 16;
               d.options.interleave = Interleave::b32;
               d.options.swizzle = Swizzle::b32;
             },
             "tensor", {"address", "multiple of 32 bytes", "interleave b32", "0x"}),
      broken("InnermostStride", matrix(), [](Draft& d) { d.strides = {64, 2}; }, "tensor",
             {"innermost stride of 1 element", "[64, 2]"}),
      broken("TransposedMatrix", matrix(), [](Draft& d) { d.strides = {1, 64}; }, "tensor",
             {"innermost stride of 1 element", "[1, 64]"}),
      broken("StrideOfNoWholeChunks", matrix(), [](Draft& d) { d.strides = {33, 1}; }, "tensor",
             {"dimension 0", "multiple of 16 bytes", "132 bytes", "[33, 1] of f32"}),
      broken("PackedRowsOfNoWholeChunks", matrix(), [](Draft& d) { d.shape = {64, 30}; }, "tensor",
             {"dimension 0", "multiple of 16 bytes", "120 bytes"}),
      broken("OuterStrideOfNoWholeChunks", block(), [](Draft& d) { d.strides = {2050, 32, 1}; },
             "tensor", {"dimension 0", "multiple of 16 bytes", "8200 bytes"}),
      broken("StrideWithInterleave32", block(),
             [](Draft& d) {
               d.strides = {64 * 36, 36, 1};
               d.options.interleave = Interleave::b32;
               d.options.swizzle = Swizzle::b32;
             },
             "tensor", {"dimension 1", "multiple of 32 bytes", "interleave b32", "144 bytes"}),
      broken("LongStride", matrix(), [](Draft& d) { d.strides = {two40 / 4, 1}; }, "tensor",
             {"dimension 0", "below 2^40", "1099511627776 bytes"}),
      broken("NegativeStride", matrix(), [](Draft& d) { d.strides = {-32, 1}; }, "tensor",
             {"dimension 0", "from 0", "-128 bytes"}),
      broken("NoBox", matrix(), [](Draft& d) { d.options.box = {}; }, "box[0]",
             {"1 to 256 elements", "0 in [0, 0]"}),
      broken("ShortBox", matrix(), [](Draft& d) { d.options.box = {16}; }, "box[1]",
             {"1 to 256 elements", "0 in [16, 0]"}),
      broken("NegativeBox", matrix(), [](Draft& d) { d.options.box = {-1, 32}; }, "box[0]",
             {"1 to 256 elements", "-1 in [-1, 32]"}),
      broken("LongBox", matrix(), [](Draft& d) { d.options.box = {257, 32}; }, "box[0]",
             {"1 to 256 elements", "257 in [257, 32]"}),
      broken("LongInnermostBox", matrix(), [](Draft& d) { d.options.box = {16, 260}; }, "box[1]",
             {"1 to 256 elements", "260 in [16, 260]"}),
      broken("BoxOfMoreDimensions", matrix(), [](Draft& d) { d.options.box = {1, 16, 32}; }, "box",
             {"2 values", "[1, 16, 32]"}),
      broken("BoxOfNoWholeChunks", matrix(), [](Draft& d) { d.options.box = {16, 30}; }, "box[1]",
             {"a multiple of 16 bytes", "innermost", "30 of f32, 120 bytes"}),
      broken("BoxWiderThan32", matrix(),
             [](Draft& d) {
               d.options.swizzle = Swizzle::b32;
               d.options.box = {16, 12};
             },
             "box[1]", {"at most the 32 bytes of swizzle b32", "12 of f32, 48 bytes"}),
      broken("BoxWiderThan64", matrix(),
             [](Draft& d) {
               d.options.swizzle = Swizzle::b64;
               d.options.box = {16, 20};
             },
             "box[1]", {"at most the 64 bytes of swizzle b64", "20 of f32, 80 bytes"}),
      broken("BoxWiderThan128", matrix(),
             [](Draft& d) {
               d.options.swizzle = Swizzle::b128;
               d.options.box = {16, 36};
             },
             "box[1]", {"at most the 128 bytes of swizzle b128", "36 of f32, 144 bytes"}),
      broken("NoElementStride", matrix(), [](Draft& d) { d.options.element_strides = {0, 1}; },
             "element_strides[0]", {"1 to 8", "0 in [0, 1]"}),
      broken("ShortElementStrides", matrix(), [](Draft& d) { d.options.element_strides = {2}; },
             "element_strides[1]", {"1 to 8", "0 in [2, 0]"}),
      broken("LongElementStride", matrix(), [](Draft& d) { d.options.element_strides = {9, 1}; },
             "element_strides[0]", {"1 to 8", "9 in [9, 1]"}),
      broken("ElementStridesOfMoreDimensions", matrix(),
             [](Draft& d) { d.options.element_strides = {1, 1, 2}; }, "element_strides",
             {"2 values", "[1, 1, 2]"}),
      broken("InnermostElementStride", matrix(),
             [](Draft& d) { d.options.element_strides = {1, 2}; }, "element_strides[1]",
             {"1 along the innermost dimension", "without interleave", "given 2"}),
      broken("InterleavedMatrix", matrix(),
             [](Draft& d) { d.options.interleave = Interleave::b16; }, "tensor",
             {"at least 3 dimensions with interleave", "f32[64, 32]"}),
      broken("Interleave32Alone", block(), [](Draft& d) { d.options.interleave = Interleave::b32; },
             "swizzle", {"b32 with interleave b32", "given none"}),
      broken("Interleave32WithSwizzle128", block(),
             [](Draft& d) {
               d.options.interleave = Interleave::b32;
               d.options.swizzle = Swizzle::b128;
             },
             "swizzle", {"b32 with interleave b32", "given b128"}),
      broken("NanOfIntegers", matrix(),
             [](Draft& d) {
               d.dtype = DType::i32;
               d.options.fill = Fill::nan;
             },
             "fill", {"zero", "floating-point", "nan for i32"}),
      broken("NanOfBytes", matrix(),
             [](Draft& d) {
               d.dtype = DType::u8;
               d.options.fill = Fill::nan;
             },
             "fill", {"zero", "floating-point", "nan for u8"}),
      broken("UnknownSwizzle", matrix(),
             [](Draft& d) { d.options.swizzle = static_cast<Swizzle>(4); }, "swizzle",
             {"enumerators", "given 4"}),
      broken("UnknownInterleave", matrix(),
             [](Draft& d) { d.options.interleave = static_cast<Interleave>(3); }, "interleave",
             {"enumerators", "given 3"}),
      broken("UnknownPromotion", matrix(),
             [](Draft& d) { d.options.l2_promotion = static_cast<L2Promotion>(4); }, "l2_promotion",
             {"enumerators", "given 4"}),
      broken("UnknownFill", matrix(), [](Draft& d) { d.options.fill = static_cast<Fill>(2); },
             "fill", {"enumerators", "given 2"}),
  };
}

class BrokenMap : public testing::TestWithParam<Broken> {};

TEST_P(BrokenMap, IsRefusedByTheNameOfTheRule) {
  const TensorMapOptions options = GetParam().draft.made();
  // encode() says so too, with or without a driver.
  const std::function<void()> doors[] = {[&] { check(options); }, [&] { encode(options); }};
  for (const auto& door : doors) {
    try {
      door();
      ADD_FAILURE() << "accepted: " << describe(options);
    } catch (const InvalidArgument& error) {
      EXPECT_EQ(error.argument(), GetParam().argument);
      for (const std::string& word : GetParam().words) {
        EXPECT_NE(std::string(error.what()).find(word), std::string::npos)
            << "'" << word << "' is not in: " << error.what();
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(TensorMap, BrokenMap, testing::ValuesIn(all_broken()),
                         [](const auto& test) { return std::string(test.param.name); });

void expect_legal(const Draft& draft) {
  const TensorMapOptions options = draft.made();
  try {
    check(options);
  } catch (const InvalidArgument& error) {
    ADD_FAILURE() << error.what() << "\nfor " << describe(options);
  }
}

TEST(TensorMap, TheDraftsAreLegalUnspoilt) {
  expect_legal(matrix());
  expect_legal(block());
  EXPECT_THROW(check({}), InvalidArgument);
}

TEST(TensorMap, ExtremesOfTheTensor) {
  expect_legal({.dtype = DType::u8, .shape = {1}, .options = {.box = {16}}});
  expect_legal({.dtype = DType::u8, .shape = {two32}, .options = {.box = {256}}});
  expect_legal({.dtype = DType::u8, .shape = {two32, 16}, .options = {.box = {256, 16}}});
  expect_legal({.shape = {2, 2, 2, 2, 4}, .options = {.box = {256, 256, 256, 256, 256}}});
  expect_legal({.offset = 16, .shape = {64, 32}, .options = {.box = {1, 4}}});
  // The box may be larger than the tensor, and the tensor no multiple of anything inside a row.
  expect_legal({.shape = {3, 5}, .strides = {8, 1}, .options = {.box = {64, 32}}});
  expect_legal({.shape = {64, 32}, .place = {Memory::pinned}, .options = {.box = {64, 32}}});
}

TEST(TensorMap, ExtremesOfTheStrides) {
  const TensorMapOptions options{.box = {2, 16}};
  expect_legal({.shape = {2, 16}, .strides = {(two40 - 16) / 4, 1}, .options = options});
  expect_legal({.shape = {2, 16}, .strides = {0, 1}, .options = options});  // a broadcast
  expect_legal({.shape = {2, 16}, .strides = {4, 1}, .options = options});  // rows that overlap
  // Steps that are never made.
  expect_legal({.shape = {1, 16}, .strides = {7, 1}, .options = options});
  expect_legal({.shape = {1, 16}, .strides = {-3, 1}, .options = options});
  expect_legal({.shape = {16, 1}, .strides = {4, 9}, .options = {.box = {16, 4}}});
  expect_legal({.shape = {1, 17}, .options = {.box = {1, 16}}});
  // Heads before tokens, as views of attention's tensors have them.
  expect_legal({.dtype = DType::bf16,
                .shape = {2, 16, 100000, 128},
                .strides = {100000 * 16 * 128, 128, 16 * 128, 1},
                .options = {.box = {1, 1, 128, 64}, .swizzle = Swizzle::b128}});
}

TEST(TensorMap, ExtremesOfTheBox) {
  expect_legal({.shape = {512, 512}, .options = {.box = {256, 256}}});
  expect_legal({.dtype = DType::f64, .shape = {512, 512}, .options = {.box = {1, 2}}});
  expect_legal({.dtype = DType::f64, .shape = {512, 512}, .options = {.box = {256, 256}}});
  expect_legal({.dtype = DType::boolean, .shape = {512, 512}, .options = {.box = {256, 16}}});
  for (const Swizzle swizzle : {Swizzle::b32, Swizzle::b64, Swizzle::b128}) {
    for (const std::int64_t bytes : {std::int64_t{16}, std::int64_t{span(swizzle)}}) {
      expect_legal({.dtype = DType::bf16,
                    .shape = {512, 512},
                    .options = {.box = {256, bytes / 2}, .swizzle = swizzle}});
      expect_legal({.dtype = DType::u8,
                    .shape = {512, 512},
                    .options = {.box = {256, bytes}, .swizzle = swizzle}});
    }
  }
}

TEST(TensorMap, ExtremesOfTheElementStrides) {
  expect_legal({.shape = {512, 512}, .options = {.box = {256, 32}, .element_strides = {8, 1}}});
  expect_legal({.shape = {8, 8, 8, 8, 32},
                .options = {.box = {8, 8, 8, 8, 32}, .element_strides = {8, 8, 8, 8, 1}}});
  expect_legal(
      {.shape = {8, 64, 32},
       .options = {
           .box = {1, 16, 32}, .element_strides = {1, 1, 8}, .interleave = Interleave::b16}});
}

TEST(TensorMap, ExtremesOfTheModes) {
  for (const Swizzle swizzle : {Swizzle::none, Swizzle::b32, Swizzle::b64, Swizzle::b128}) {
    // Interleaved boxes have neither a limit by the swizzle nor whole chunks.
    expect_legal(
        {.shape = {8, 64, 32},
         .options = {.box = {1, 16, 33}, .swizzle = swizzle, .interleave = Interleave::b16}});
  }
  expect_legal(
      {.offset = 32,
       .shape = {8, 64, 32},
       .options = {.box = {1, 16, 256}, .swizzle = Swizzle::b32, .interleave = Interleave::b32}});
  for (const DType dtype : {DType::f64, DType::f32, DType::f16, DType::bf16}) {
    expect_legal(
        {.dtype = dtype, .shape = {64, 32}, .options = {.box = {16, 8}, .fill = Fill::nan}});
  }
  for (const L2Promotion promotion :
       {L2Promotion::none, L2Promotion::b64, L2Promotion::b128, L2Promotion::b256}) {
    expect_legal({.shape = {64, 32}, .options = {.box = {16, 8}, .l2_promotion = promotion}});
  }
}

TEST(TensorMap, TheDriverGetsItsOwnOrder) {
  const Draft draft{.dtype = DType::bf16,
                    .shape = {2, 3, 1, 100, 40},
                    .strides = {30000, 10000, 17, 64, 1},
                    .options = {.box = {1, 2, 1, 64, 32}, .element_strides = {1, 2, 1, 4, 1}}};
  const detail::TiledMap map = detail::tiled_map(draft.made());
  EXPECT_EQ(map.type, 9);
  EXPECT_EQ(map.rank, 5U);
  EXPECT_EQ(map.address, memory.data());
  EXPECT_EQ(map.dimensions, (std::array<std::uint64_t, 5>{40, 100, 1, 3, 2}));
  EXPECT_EQ(map.stride_bytes, (std::array<std::uint64_t, 4>{128, 0, 20000, 60000}));
  EXPECT_EQ(map.box, (std::array<std::uint32_t, 5>{32, 64, 1, 2, 1}));
  EXPECT_EQ(map.element_strides, (std::array<std::uint32_t, 5>{1, 4, 1, 2, 1}));
}

// What a tensor store of ragged_store(), which is given (row + valid, 16 - valid, column), writes:
// for every element of the box, in its order, the element of the matrix or -1.
std::vector<std::int64_t> written(const detail::TiledMap& map, const std::byte* matrix,
                                  std::uint64_t row, std::uint64_t valid, std::uint64_t column) {
  const std::uint64_t corner[] = {column, 16 - valid, row + valid};
  const std::int64_t first = (static_cast<const std::byte*>(map.address) - matrix) / 2;
  std::vector<std::int64_t> elements;
  for (std::uint64_t i = 0; i < map.box[2] * map.box[1] * map.box[0]; ++i) {
    const std::uint64_t at[] = {corner[0] + i % map.box[0], corner[1] + i / map.box[0] % map.box[1],
                                corner[2] + i / map.box[0] / map.box[1]};
    const bool inside =
        at[0] < map.dimensions[0] && at[1] < map.dimensions[1] && at[2] < map.dimensions[2];
    const auto offset = static_cast<std::int64_t>(at[0] + at[1] * map.stride_bytes[0] / 2 +
                                                  at[2] * map.stride_bytes[1] / 2);
    elements.push_back(inside ? first + offset : -1);
  }
  return elements;
}

TEST(TensorMap, ARaggedStoreWritesItsValidRowsAlone) {
  constexpr std::int64_t rows = 37, columns = 72, stride = 80, box_rows = 16, box_columns = 64;
  alignas(16) static std::array<std::byte, std::size_t{2} * stride*(box_rows + rows)> buffer;
  std::byte* const data = buffer.data() + 2 * stride * box_rows;
  const std::int64_t shape[] = {rows, columns}, strides[] = {stride, 1};
  const detail::TiledMap map =
      detail::tiled_map(ragged_options(TensorView(data, DType::bf16, shape, strides, gpu)));
  ASSERT_EQ(map.rank, 3U);
  EXPECT_EQ(map.box[1] * map.box[2], box_rows);
  for (std::int64_t valid = 1; valid <= box_rows; ++valid) {
    for (std::int64_t row = 0; row + valid <= rows; ++row) {
      for (const std::int64_t column : {std::int64_t{0}, box_columns}) {
        SCOPED_TRACE(testing::Message() << valid << " rows from " << row << ", column " << column);
        std::vector<std::int64_t> expected;
        for (std::int64_t i = 0; i < box_rows; ++i) {
          for (std::int64_t j = column; j < column + box_columns; ++j) {
            expected.push_back(i < valid && j < columns ? (row + i) * stride + j : -1);
          }
        }
        ASSERT_EQ(written(map, data, static_cast<std::uint64_t>(row),
                          static_cast<std::uint64_t>(valid), static_cast<std::uint64_t>(column)),
                  expected);
      }
    }
  }
}

TEST(TensorMap, ElementTypesAreTheDrivers) {
  const std::pair<DType, int> types[] = {{DType::u8, 0},  {DType::boolean, 0}, {DType::i32, 3},
                                         {DType::i64, 5}, {DType::f16, 6},     {DType::f32, 7},
                                         {DType::f64, 8}, {DType::bf16, 9}};
  for (const auto& [type, number] : types) {
    const Draft draft{.dtype = type, .shape = {64, 64}, .options = {.box = {16, 16}}};
    EXPECT_EQ(detail::tiled_map(draft.made()).type, number) << name(type);
  }
}

TEST(TensorMap, DescribesEverything) {
  const Draft draft{.dtype = DType::bf16,
                    .shape = {64, 32},
                    .strides = {40, 1},
                    .options = {.box = {16, 32},
                                .swizzle = Swizzle::b64,
                                .l2_promotion = L2Promotion::b256,
                                .fill = Fill::nan}};
  const std::string text = describe(draft.made());
  for (const char* word :
       {"bf16[64, 32] on cuda:0 at 0x", "strides [40, 1]", "box [16, 32]", "element strides [1, 1]",
        "swizzle b64", "interleave none", "L2 promotion b256", "fill nan"}) {
    EXPECT_NE(text.find(word), std::string::npos) << word << " is not in: " << text;
  }
}

// Where there is a driver and a GPU the map is made; where not, the error says so.
TEST(TensorMap, EncodesOrSaysWhyNot) {
  const TensorMapOptions options = matrix().made();
  try {
    const TensorMap map = encode(options);
    EXPECT_TRUE(std::ranges::any_of(map.bytes, [](unsigned char byte) { return byte != 0; }));
  } catch (const Unsupported& error) {
    EXPECT_NE(std::string(error.what()).find("tensor maps need"), std::string::npos)
        << error.what();
  }
}

// Legal options by chance.
class Chance {
 public:
  explicit Chance(unsigned seed) : generator_(seed) {}

  std::int64_t between(std::int64_t low, std::int64_t high) {
    return std::uniform_int_distribution<std::int64_t>(low, high)(generator_);
  }
  template <class T, std::size_t count>
  T one_of(const std::array<T, count>& values) {
    return values[static_cast<std::size_t>(between(0, count - 1))];
  }

  Draft draft() {
    Draft d;
    d.dtype = one_of(std::array{DType::f64, DType::f32, DType::f16, DType::bf16, DType::i64,
                                DType::i32, DType::u8, DType::boolean});
    const auto element = static_cast<std::int64_t>(size_of(d.dtype));
    const auto rank = static_cast<std::size_t>(between(1, 5));
    TensorMapOptions& o = d.options;
    if (rank >= 3) {
      o.interleave = one_of(std::array{Interleave::none, Interleave::b16, Interleave::b32});
    }
    o.swizzle = one_of(std::array{Swizzle::none, Swizzle::b32, Swizzle::b64, Swizzle::b128});
    if (o.interleave == Interleave::b32) o.swizzle = Swizzle::b32;
    o.l2_promotion = one_of(
        std::array{L2Promotion::none, L2Promotion::b64, L2Promotion::b128, L2Promotion::b256});
    if (is_floating(d.dtype)) o.fill = one_of(std::array{Fill::zero, Fill::nan});
    const std::int64_t multiple = o.interleave == Interleave::b32 ? 32 : 16;
    d.offset = static_cast<std::size_t>(between(0, 1) * multiple);
    d.shape.resize(rank);
    d.strides.resize(rank);
    for (std::size_t i = 0; i < rank; ++i) {
      const bool inner = i == rank - 1;
      d.shape[i] =
          between(0, 9) == 0
              ? 1
              : between(1, std::int64_t{1} << between(1, std::min<std::int64_t>(32, 50 / rank)));
      d.strides[i] = inner ? 1 : between(0, std::int64_t{1} << between(1, 30)) * multiple / element;
      o.box[i] = between(1, 256);
      o.element_strides[i] = between(1, 8);
      if (inner && o.interleave == Interleave::none) {
        const std::int64_t widest = o.swizzle == Swizzle::none ? 256 * element : span(o.swizzle);
        o.box[i] = between(1, std::min(widest / 16, 256 * element / 16)) * 16 / element;
        o.element_strides[i] = 1;
      }
    }
    return d;
  }

 private:
  std::mt19937 generator_;
};

TEST(TensorMap, LegalOptionsByChanceAreAcceptedAndReversed) {
  for (unsigned seed = 0; seed < 5000; ++seed) {
    SCOPED_TRACE(seed);
    const Draft draft = Chance(seed).draft();
    expect_legal(draft);
    if (HasFailure()) return;
    const detail::TiledMap map = detail::tiled_map(draft.made());
    const std::size_t rank = draft.shape.size();
    ASSERT_EQ(map.rank, rank);
    for (std::size_t i = 0; i < rank; ++i) {
      const std::size_t d = rank - 1 - i;
      EXPECT_EQ(map.dimensions[i], static_cast<std::uint64_t>(draft.shape[d]));
      EXPECT_EQ(map.box[i], static_cast<std::uint32_t>(draft.options.box[d]));
      EXPECT_EQ(map.element_strides[i],
                static_cast<std::uint32_t>(draft.options.element_strides[d]));
      if (i == 0) continue;
      // What the driver asks of the strides, whatever the view had.
      EXPECT_EQ(map.stride_bytes[i - 1] % 16, 0U);
      EXPECT_LT(map.stride_bytes[i - 1], static_cast<std::uint64_t>(two40));
    }
  }
}

// One thing wrong with legal options is enough.
TEST(TensorMap, LegalOptionsByChanceSpoiltAreRefused) {
  const std::function<void(Draft&, Chance&)> spoilers[] = {
      [](Draft& d, Chance& chance) { d.offset += static_cast<std::size_t>(chance.between(1, 15)); },
      [](Draft& d, Chance& chance) {
        d.options.box[static_cast<std::size_t>(chance.between(0, d.shape.size() - 1))] = 257;
      },
      [](Draft& d, Chance& chance) {
        d.options.box[static_cast<std::size_t>(chance.between(0, d.shape.size() - 1))] = 0;
      },
      [](Draft& d, Chance& chance) {
        const auto at = static_cast<std::size_t>(chance.between(0, d.shape.size() - 1));
        d.options.element_strides[at] = chance.between(0, 1) * 9;
      },
      [](Draft& d, Chance& chance) {
        const auto at = static_cast<std::size_t>(chance.between(0, d.shape.size() - 1));
        d.shape[at] = chance.between(0, 1) * (two32 + 1);
        d.strides.clear();
        for (std::size_t i = 0; i < d.shape.size(); ++i) {
          if (i != at) d.shape[i] = 1;
        }
      },
      [](Draft& d, Chance& chance) {
        d.shape.back() = chance.between(2, 100);
        d.strides.back() = chance.between(2, 100);
      },
      [](Draft& d, Chance&) { d.place = {}; },
      [](Draft& d, Chance&) { d.options.swizzle = static_cast<Swizzle>(17); },
  };
  for (unsigned seed = 0; seed < 2000; ++seed) {
    for (std::size_t s = 0; s < std::size(spoilers); ++s) {
      Chance chance(seed);
      Draft draft = chance.draft();
      spoilers[s](draft, chance);
      const TensorMapOptions options = draft.made();
      EXPECT_THROW(check(options), InvalidArgument)
          << "seed " << seed << ", spoiler " << s << ": " << describe(options);
    }
  }
}

}  // namespace
}  // namespace ps::kit
