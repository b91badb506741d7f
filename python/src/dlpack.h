// The memory layout of DLPack, versions 0 and 1: https://dmlc.github.io/dlpack/latest/c_api.html
#pragma once

#include <cstdint>

namespace ps::python::dlpack {

enum DeviceType : std::int32_t { cpu = 1, cuda = 2, cuda_host = 3, cuda_managed = 13 };
enum TypeCode : std::uint8_t {
  integer = 0,
  unsigned_integer = 1,
  floating = 2,
  bfloat = 4,
  boolean = 6
};

// How the array API standard names streams of CUDA.
enum StreamNumber : std::intptr_t { no_sync = -1, ambiguous = 0, legacy = 1, per_thread = 2 };

struct Device {
  std::int32_t type;
  std::int32_t index;
};

struct DataType {
  std::uint8_t code;
  std::uint8_t bits;
  std::uint16_t lanes;
};

struct Tensor {
  void* data;
  Device device;
  std::int32_t rank;
  DataType dtype;
  std::int64_t* shape;
  std::int64_t* strides;  // in elements; null: contiguous
  std::uint64_t byte_offset;
};

struct Managed {
  static constexpr const char* name = "dltensor";
  static constexpr const char* used = "used_dltensor";

  Tensor tensor;
  void* context;
  void (*deleter)(Managed*);
};

struct Version {
  std::uint32_t major, minor;
};

inline constexpr Version newest{1, 1};
inline constexpr std::uint64_t read_only = 1;

struct ManagedVersioned {
  static constexpr const char* name = "dltensor_versioned";
  static constexpr const char* used = "used_dltensor_versioned";

  Version version;
  void* context;
  void (*deleter)(ManagedVersioned*);
  std::uint64_t flags;
  Tensor tensor;
};

// A library's functions of C for calls that work in its own order, which cost a fraction of
// __dlpack__. Its types have them in `__dlpack_c_exchange_api__`. Those that fail set a Python
// error.
struct Exchange {
  static constexpr const char* attribute = "__dlpack_c_exchange_api__";
  static constexpr const char* name = "dlpack_exchange_api";

  Version version;
  Exchange* previous;
  void *allocate, *share, *adopt;         // not used here
  int (*view)(void* array, Tensor* out);  // may be null
  int (*current_stream)(std::int32_t type, std::int32_t index, void** out);
};

}  // namespace ps::python::dlpack
