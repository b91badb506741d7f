// A call of round_routes() with checked arguments, and the ways to run it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ops/round_routes/cut.h"
#include "penstock/base/dtype.h"
#include "penstock/host/stream.h"

namespace ps::detail {

struct RoundingWork {
  std::int64_t tokens = 0;  // T
  int experts = 0;          // E
  int choices = 0;          // K
  int places = 0;           // P
  std::int64_t tile = 1;
  bool sigmoid = false;  // else softmax
  DType logit_type = DType::f32;
  bool wide_ids = false;  // i64, else i32

  const void* logits = nullptr;
  std::int64_t logit_row = 0;  // stride, in elements
  const void* ids = nullptr;
  const float* weights = nullptr;
  void* rounded_ids = nullptr;
  float* rounded_weights = nullptr;
  std::int32_t* changes = nullptr;  // null: not wanted

  std::byte* memory = nullptr;  // the workspace

  static constexpr std::size_t cut_bytes = 16 * 512;  // of all experts, before the keys
  PENSTOCK_HD rounding::Cut* cuts() const { return reinterpret_cast<rounding::Cut*>(memory); }
  PENSTOCK_HD std::uint32_t* keys() const {  // (E, T)
    return reinterpret_cast<std::uint32_t*>(memory + cut_bytes);
  }
  PENSTOCK_HD std::int64_t id(std::int64_t place) const {
    return wide_ids ? static_cast<const std::int64_t*>(ids)[place]
                    : std::int64_t{static_cast<const std::int32_t*>(ids)[place]};
  }
  PENSTOCK_HD void write(std::int64_t place, std::int64_t id, float weight) const {
    if (wide_ids) {
      static_cast<std::int64_t*>(rounded_ids)[place] = id;
    } else {
      static_cast<std::int32_t*>(rounded_ids)[place] = static_cast<std::int32_t>(id);
    }
    rounded_weights[place] = weight;
  }
};

static_assert(sizeof(rounding::Cut) * 512 == RoundingWork::cut_bytes);

void round_routes_cpu(const RoundingWork& work, const Stream& stream);

// On a GPU of compute capability 8.0 or later. Throws DeviceError.
void round_routes_portable(const RoundingWork& work, const Stream& stream);

}  // namespace ps::detail
