// What the elementwise kernels can be told, and what they are told by default. A tuning is a type
// with these members; a variant derives from one and hides some.
#pragma once

namespace ps::elementwise {

enum class Load : unsigned char {
  plain,
  streaming,  // read once: first to leave the caches
  around,     // not into L1 at all; L2 fetches 256 bytes
};
enum class Store : unsigned char { plain, streaming };

// Functions of a few instructions say `static constexpr bool light = true;`.
template <class Function>
concept Light = Function::light;

// The plain kernel: every thread loads a few vectors of every input, then computes. Small blocks,
// few loads each and no hints: what the memory is asked for stays close together, and what is
// written meets the L2 cache first.
struct PlainTuning {
  static constexpr unsigned threads = 128;
  // Loads of a thread on their way at once, in bytes of all inputs; the second for light functions.
  // Others need more work at hand to hide what they compute.
  static constexpr unsigned bytes = 64, light_bytes = 32;
  // Blocks that fit on a multiprocessor at least.
  static constexpr unsigned resident = 8, light_resident = 16;
  static constexpr Load load = Load::plain;
  static constexpr Store store = Store::plain;
};

// Tiles by bulk copies. The stores' hint keeps results that nobody reads again from the L2 cache's
// other work.
struct BulkTuning {
  static constexpr unsigned threads = 256;
  static constexpr unsigned tile_bytes = 8 * 1024;  // of all inputs together
  static constexpr unsigned resident = 8;           // blocks that fit on a multiprocessor at least
  static constexpr Store store = Store::streaming;
};
struct KeptBulkTuning : BulkTuning {
  static constexpr Store store = Store::plain;
};

// The table of what is best on Hopper, by number of inputs, bytes of the largest element and
// whether the function is one of a few instructions. Measured: docs/notes/transform.md. What
// `penstock tune` measured on a machine comes before it in the prebuilt functions.
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
