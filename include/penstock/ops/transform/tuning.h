// Tuning parameters of the elementwise kernels and their defaults. A tuning is a type with these
// members; a variant derives from one and hides some of them.
#pragma once

namespace ps::elementwise {

enum class Load : unsigned char {
  plain,
  streaming,  // for data read once: evicted first
  around,     // bypasses L1; L2 fetches 256 bytes
};
enum class Store : unsigned char { plain, streaming };

// Functions of a few instructions declare `static constexpr bool light = true;`.
template <class Function>
concept Light = Function::light;

// For plain.cuh. Small blocks with few loads and no cache hints were fastest, because accesses in
// flight stay close together.
struct PlainTuning {
  static constexpr unsigned threads = 128;
  // Bytes of all inputs that a thread has in flight; `light_bytes` for light functions. Others need
  // more loads in flight to hide their arithmetic.
  static constexpr unsigned bytes = 64, light_bytes = 32;
  // Minimum blocks per SM.
  static constexpr unsigned resident = 8, light_resident = 16;
  static constexpr Load load = Load::plain;
  static constexpr Store store = Store::plain;
};

// For bulk.cuh. Streaming stores keep the results from displacing other data in the L2 cache.
struct BulkTuning {
  static constexpr unsigned threads = 256;
  static constexpr unsigned tile_bytes = 8 * 1024;  // of all inputs together
  static constexpr unsigned resident = 8;           // minimum blocks per SM
  static constexpr Store store = Store::streaming;
};
struct KeptBulkTuning : BulkTuning {
  static constexpr Store store = Store::plain;
};

// The fastest tuning on Hopper, by number of inputs, bytes of the largest element and whether the
// function is light; see docs/notes/transform.md. For the prebuilt functions, a choice made by
// `penstock tune` takes precedence.
template <unsigned inputs, unsigned largest, bool light>
struct Best {
  using Plain = PlainTuning;
  using Bulk = BulkTuning;
  static constexpr bool bulk = inputs > 1;
};
template <>
struct Best<1, 4, true> {
  using Plain = PlainTuning;
  using Bulk = KeptBulkTuning;
  static constexpr bool bulk = true;
};

}  // namespace ps::elementwise
