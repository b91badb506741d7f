// Headers of safetensors files: what is read from right ones, and how wrong ones are refused.
#include "weights/header.h"

#include <gtest/gtest.h>

#include <string>

#include "penstock/base/error.h"
#include "penstock/weights/weights.h"
#include "support/failure_of.h"
#include "support/temporary_directory.h"
#include "weights/support.h"

namespace ps::test {
namespace {

constexpr const char* one = R"({"a":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]}})";

TEST(SafetensorsHeader, TensorsAreListedInTheOrderOfTheirBytes) {
  const TemporaryDirectory here;
  const auto path = here.write(
      "file", safetensors(R"({"z":{"dtype":"BF16","shape":[4],"data_offsets":[8,16]},)"
                          R"("__metadata__":{"format":"pt","by":"\u00e9"},)"
                          R"("empty":{"dtype":"I64","shape":[3,0],"data_offsets":[8,8]},)"
                          R"("one":{"shape":[],"data_offsets":[16,17],"dtype":"BOOL"},)"
                          R"("a\n\"b":{"dtype":"F64","shape":[1],"data_offsets":[0,8]}}   )",
                          17));
  const Weights weights(path);
  ASSERT_EQ(weights.tensors().size(), 4U);
  std::vector<std::string> names;
  for (const WeightInfo& tensor : weights.tensors()) names.push_back(tensor.name);
  EXPECT_EQ(names, (std::vector<std::string>{"a\n\"b", "empty", "z", "one"}));
  EXPECT_EQ(weights.metadata(),
            (std::map<std::string, std::string>{{"by", "\xC3\xA9"}, {"format", "pt"}}));
  EXPECT_EQ(weights.bytes(), 17U);
  EXPECT_TRUE(weights.contains("z"));
  EXPECT_FALSE(weights.contains("y"));
  const WeightInfo& z = weights.tensors()[weights.index_of("z")];
  EXPECT_EQ(z.type, WeightType::bf16);
  EXPECT_EQ(z.shape, std::vector<std::int64_t>{4});
  EXPECT_EQ(z.bytes, 8U);
  const auto bytes = read(weights, "z");
  for (std::size_t i = 0; i < 8; ++i) EXPECT_EQ(bytes[i], static_cast<std::byte>((i + 8) * 7 + 1));
  EXPECT_TRUE(read(weights, "empty").empty());
  EXPECT_EQ(read(weights, "one").size(), 1U);
}

TEST(SafetensorsHeader, EveryTypeOfTheFormatIsKnown) {
  const std::vector<std::pair<const char*, std::size_t>> bits{
      {"BOOL", 8}, {"F4", 4},          {"F6_E2M3", 6}, {"F6_E3M2", 6}, {"U8", 8},
      {"I8", 8},   {"F8_E5M2", 8},     {"F8_E4M3", 8}, {"F8_E8M0", 8}, {"F8_E4M3FNUZ", 8},
      {"I16", 16}, {"F8_E5M2FNUZ", 8}, {"U16", 16},    {"F16", 16},    {"BF16", 16},
      {"I32", 32}, {"U32", 32},        {"F32", 32},    {"C64", 64},    {"F64", 64},
      {"I64", 64}, {"U64", 64}};
  for (const auto& [text, size] : bits) {
    const auto type = find_weight_type(text);
    ASSERT_TRUE(type) << text;
    EXPECT_EQ(name(*type), text);
    EXPECT_EQ(bits_of(*type), size) << text;
    if (const auto dtype = dtype_of(*type)) {
      EXPECT_EQ(weight_type_of(*dtype), *type);
      EXPECT_EQ(size_of(*dtype) * 8, size);
    }
    const TemporaryDirectory here;
    const auto path = here.write("file", safetensors("{\"a\":{\"dtype\":\"" + std::string(text) +
                                                         "\",\"shape\":[2,4],\"data_offsets\":[0," +
                                                         std::to_string(size) + "]}}",
                                                     size));
    const Weights weights(path);
    std::vector<std::byte> bytes = read(weights, "a");
    EXPECT_EQ(bytes.size(), size);
    const auto failure = failure_of([&] { view_of(weights.tensors()[0], in(bytes)); });
    if (dtype_of(*type)) {
      EXPECT_EQ(failure, nullptr) << text;
    } else {
      EXPECT_TRUE(is<InvalidArgument>(failure));
      EXPECT_NE(ps::test::text(failure).find(text), std::string::npos) << ps::test::text(failure);
    }
  }
  EXPECT_FALSE(find_weight_type("f32"));
  EXPECT_EQ(name(static_cast<WeightType>(99)), "unknown");
  EXPECT_EQ(bits_of(static_cast<WeightType>(99)), 0U);
  EXPECT_FALSE(dtype_of(static_cast<WeightType>(99)));
  EXPECT_THROW(weight_type_of(static_cast<DType>(99)), InvalidArgument);
}

TEST(SafetensorsHeader, AFileWithoutTensorsIsRead) {
  const TemporaryDirectory here;
  const Weights weights(here.write("file", safetensors("{}", 0)));
  EXPECT_TRUE(weights.tensors().empty());
  EXPECT_EQ(weights.bytes(), 0U);
  EXPECT_THROW(weights.index_of("a"), InvalidArgument);
  EXPECT_THROW(weights.metadata(1), InvalidArgument);
}

struct Wrong {
  const char* name;
  std::string file;
  const char* message;  // a part of it
};

void PrintTo(const Wrong& wrong, std::ostream* out) { *out << wrong.name; }

std::string with_length(std::uint64_t length, std::string rest) {
  std::string file(8, '\0');
  std::memcpy(file.data(), &length, 8);
  return file + rest;
}

std::string two(const std::string& first, const std::string& second) {
  return R"({"a":{"dtype":"U8","shape":)" + first + R"(},"b":{"dtype":"U8","shape":)" + second +
         "}}";
}

// A header with one tensor "a".
std::string tensor(const std::string& fields) { return "{\"a\":{" + fields + "}}"; }

class WrongHeaders : public testing::TestWithParam<Wrong> {};

TEST_P(WrongHeaders, AreRefusedWithTheReason) {
  const TemporaryDirectory here;
  const auto path = here.write("file", GetParam().file);
  const auto failure = failure_of([&] { Weights weights(path); });
  EXPECT_TRUE(is<InvalidArgument>(failure)) << text(failure);
  EXPECT_EQ(text(failure).find(path.string()), 0U) << text(failure);
  EXPECT_NE(text(failure).find(GetParam().message), std::string::npos) << text(failure);
  EXPECT_LT(text(failure).size(), 500U);
}

INSTANTIATE_TEST_SUITE_P(
    All, WrongHeaders,
    testing::Values(
        // The length.
        Wrong{"Nothing", "", "at least 8 bytes, given 0"},
        Wrong{"SevenBytes", "1234567", "at least 8 bytes, given 7"},
        Wrong{"LongHeader", with_length(100'000'001, "{}"), "at most 100000000 bytes"},
        Wrong{"HugeHeader", with_length(~std::uint64_t{0}, "{}"), "at most 100000000 bytes"},
        Wrong{"HeaderPastTheEnd", with_length(58, one), "given a file of 65 bytes"},
        Wrong{"NoHeader", with_length(0, ""), "begins with '{'"},
        // UTF-8 and JSON.
        Wrong{"LeadingSpace", safetensors(" {}", 0), "begins with '{'"},
        Wrong{"ByteOrderMark", safetensors("\xEF\xBB\xBF{}", 0), "begins with '{'"},
        Wrong{"AnArray", safetensors("[]", 0), "begins with '{'"},
        Wrong{"NotUtf8", safetensors("{\"\xFF\":1}", 0), "JSON in UTF-8"},
        Wrong{"LoneSurrogate", safetensors(R"({"\ud800":1})", 0), "JSON in UTF-8"},
        Wrong{"Unfinished", safetensors("{\"a\":", 0), "JSON in UTF-8"},
        Wrong{"TwoDocuments", safetensors("{}{}", 0), "JSON in UTF-8"},
        Wrong{"PaddedWithZeros", safetensors(std::string("{}\0\0", 4), 0),
              "given a zero at byte 2"},
        Wrong{"Comment", safetensors("{/**/}", 0), "JSON in UTF-8"},
        Wrong{"Deep", safetensors("{\"a\":{\"shape\":[[[[", 0), "field \"shape\""},
        // Duplicate keys.
        Wrong{"TensorTwice",
              safetensors(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
                          R"("a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})",
                          1),
              "every key once, given \"a\" twice"},
        Wrong{"TensorTwiceEscaped",
              safetensors(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
                          R"("\u0061":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})",
                          1),
              "every key once"},
        Wrong{
            "FieldTwice",
            safetensors(tensor(R"("dtype":"U8","shape":[1],"shape":[1],"data_offsets":[0,1])"), 1),
            "every key once, given \"shape\" twice"},
        Wrong{"MetadataTwice", safetensors(R"({"__metadata__":{},"__metadata__":{}})", 0),
              "every key once"},
        Wrong{"MetadataKeyTwice", safetensors(R"({"__metadata__":{"a":"1","a":"2"}})", 0),
              "every key once"},
        // Metadata.
        Wrong{"MetadataNull", safetensors(R"({"__metadata__":null})", 0),
              "__metadata__: expected an object of strings, given null"},
        Wrong{"MetadataText", safetensors(R"({"__metadata__":"pt"})", 0), "an object of strings"},
        Wrong{"MetadataArray", safetensors(R"({"__metadata__":[]})", 0), "an object of strings"},
        Wrong{"MetadataNumber", safetensors(R"({"__metadata__":{"a":1}})", 0),
              "field \"a\": expected a string, given 1"},
        Wrong{"MetadataNested", safetensors(R"({"__metadata__":{"a":{}}})", 0), "a string"},
        Wrong{"MetadataList", safetensors(R"({"__metadata__":{"a":[]}})", 0), "a string"},
        // Fields of a tensor.
        Wrong{"TensorNumber", safetensors(R"({"a":1})", 0), "an object with dtype"},
        Wrong{"NoType", safetensors(tensor(R"("shape":[1],"data_offsets":[0,1])"), 1),
              "tensor \"a\": expected the field dtype"},
        Wrong{"NoShape", safetensors(tensor(R"("dtype":"U8","data_offsets":[0,1])"), 1),
              "the field shape"},
        Wrong{"NoOffsets", safetensors(tensor(R"("dtype":"U8","shape":[1])"), 1),
              "the field data_offsets"},
        Wrong{"OtherField",
              safetensors(tensor(R"("dtype":"U8","shape":[1],"data_offsets":[0,1],"c":1)"), 1),
              "field \"c\": expected no such field"},
        Wrong{"OtherArray",
              safetensors(tensor(R"("dtype":"U8","shape":[1],"data_offsets":[0,1],"c":[])"), 1),
              "no such field"},
        Wrong{"OtherObject",
              safetensors(tensor(R"("dtype":"U8","shape":[1],"data_offsets":[0,1],"c":{})"), 1),
              "no such field"},
        Wrong{"UnknownType",
              safetensors(tensor(R"("dtype":"F128","shape":[1],"data_offsets":[0,16])"), 16),
              "given \"F128\""},
        Wrong{"LowerCaseType",
              safetensors(tensor(R"("dtype":"f32","shape":[1],"data_offsets":[0,4])"), 4),
              "a type of the format"},
        Wrong{"TypeNumber",
              safetensors(tensor(R"("dtype":32,"shape":[1],"data_offsets":[0,4])"), 4),
              "the name of a type"},
        Wrong{"ShapeNumber",
              safetensors(tensor(R"("dtype":"U8","shape":1,"data_offsets":[0,1])"), 1),
              "an array of whole numbers"},
        Wrong{"NegativeExtent",
              safetensors(tensor(R"("dtype":"U8","shape":[-1],"data_offsets":[0,1])"), 1),
              "given -1"},
        Wrong{"FractionalExtent",
              safetensors(tensor(R"("dtype":"U8","shape":[1.0],"data_offsets":[0,1])"), 1),
              "given 1.0"},
        Wrong{"HugeExtent",
              safetensors(tensor(R"("dtype":"U8","shape":[9223372036854775808,0],)"
                                 R"("data_offsets":[0,0])"),
                          0),
              "2^63"},
        Wrong{"ExtentPastAllNumbers",
              safetensors(tensor(R"("dtype":"U8","shape":[1e30],"data_offsets":[0,1])"), 1),
              "whole numbers"},
        Wrong{"NestedShape",
              safetensors(tensor(R"("dtype":"U8","shape":[[1]],"data_offsets":[0,1])"), 1),
              "whole numbers"},
        Wrong{"OneOffset", safetensors(tensor(R"("dtype":"U8","shape":[1],"data_offsets":[0])"), 1),
              "two data_offsets, given 1"},
        Wrong{"ThreeOffsets",
              safetensors(tensor(R"("dtype":"U8","shape":[1],"data_offsets":[0,1,2])"), 1),
              "two data_offsets, given 3"},
        Wrong{"OffsetsDecrease",
              safetensors(tensor(R"("dtype":"U8","shape":[1],"data_offsets":[1,0])"), 1),
              "do not decrease"},
        Wrong{"OffsetText",
              safetensors(tensor(R"("dtype":"U8","shape":[1],"data_offsets":["0",1])"), 1),
              "given \"0\""},
        // Sizes.
        Wrong{"ProductOverflows",
              safetensors(tensor(R"("dtype":"U8","shape":[4294967296,4294967296],)"
                                 R"("data_offsets":[0,0])"),
                          0),
              "a size below 2^64 bytes"},
        Wrong{"BitsOverflow",
              safetensors(tensor(R"("dtype":"F64","shape":[4611686018427387904],)"
                                 R"("data_offsets":[0,0])"),
                          0),
              "a size below 2^64 bytes"},
        Wrong{"HalfAByte",
              safetensors(tensor(R"("dtype":"F4","shape":[3],"data_offsets":[0,1])"), 1),
              "whole bytes, given 12 bits"},
        Wrong{"SpanTooShort",
              safetensors(tensor(R"("dtype":"F32","shape":[2],"data_offsets":[0,4])"), 4),
              "8 bytes, as its dtype and shape say, given data_offsets of 4"},
        Wrong{"SpanTooLong",
              safetensors(tensor(R"("dtype":"F32","shape":[1],"data_offsets":[0,8])"), 8),
              "4 bytes"},
        // Bytes that belong to no tensor, or to two.
        Wrong{"HoleAtTheStart",
              safetensors(tensor(R"("dtype":"U8","shape":[1],"data_offsets":[1,2])"), 2),
              "data that begins at 0"},
        Wrong{"Hole",
              safetensors(two(R"([4],"data_offsets":[0,4])", R"([4],"data_offsets":[5,9])"), 9),
              "tensor \"b\": expected data that begins at 4"},
        Wrong{"Overlap",
              safetensors(two(R"([4],"data_offsets":[0,4])", R"([4],"data_offsets":[3,7])"), 7),
              "data that begins at 4"},
        Wrong{"SameBytes",
              safetensors(two(R"([4],"data_offsets":[0,4])", R"([4],"data_offsets":[0,4])"), 4),
              "data that begins at 4"},
        Wrong{"FileTooShort", safetensors(one, 23), "a file of 89 bytes, as its header says"},
        Wrong{"FileTooLong", safetensors(one, 25), "given 90 bytes"},
        Wrong{"NoDataAtAll", safetensors(one, 0), "given 65 bytes"},
        Wrong{"OnlyData", safetensors("{}", 1), "a file of 10 bytes"},
        Wrong{"EndBeyondEverything",
              safetensors(tensor(R"("dtype":"U8","shape":[1152921504606846975],)"
                                 R"("data_offsets":[0,1152921504606846975])"),
                          0),
              "as its header says"},
        // Long names are cut in messages.
        Wrong{"LongName", safetensors("{\"" + std::string(100'000, 'x') + "\":1}", 0), "..."}),
    [](const auto& tested) { return std::string(tested.param.name); });

}  // namespace
}  // namespace ps::test
