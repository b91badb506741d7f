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

// The plain kernel: every thread loads several vectors of every input, then computes.
struct PlainTuning {
  static constexpr unsigned threads = 256;
  // Loads of a thread on their way at once, in bytes of all inputs: of 1024 threads 64 KiB, where a
  // Hopper needs 48.
  static constexpr unsigned bytes = 64;
  // Blocks that fit on a multiprocessor at least; the second for functions of a few instructions,
  // which say `static constexpr bool light = true;`.
  static constexpr unsigned resident = 4, light_resident = 8;
  static constexpr unsigned blocks = 0;  // that stay, per multiprocessor; 0: a block takes one tile
  static constexpr Load load = Load::streaming;
  static constexpr Store store = Store::streaming;
};

// The ring: a loader warp brings stages by bulk copies, others compute.
struct RingTuning {
  static constexpr unsigned threads = 256;            // that compute
  static constexpr unsigned stage_bytes = 16 * 1024;  // of all inputs together
  static constexpr unsigned depth = 6;
  static constexpr unsigned blocks = 1;        // per multiprocessor
  static constexpr unsigned stored_depth = 0;  // stages of results that a storer warp sends by bulk
                                               // copies; 0: threads store them themselves
  static constexpr Store store = Store::streaming;
};

// The table of what is best on Hopper, by number of inputs and bytes of the largest element. Until
// it is measured, plain loads everywhere: 4.09 TB/s against 3.9 in the copies known so far.
template <unsigned inputs, unsigned largest>
struct Best {
  using Plain = PlainTuning;
  using Ring = RingTuning;
  static constexpr bool ring = false;
};

}  // namespace ps::elementwise
