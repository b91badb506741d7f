// Words of page-locked memory through which host threads and streams wait for each other. Values
// count upwards and may wrap around.
#pragma once

#include <atomic>
#include <cstdint>

namespace ps::detail {

inline std::uint32_t flag_value(std::uint32_t* flag) {
  return std::atomic_ref<std::uint32_t>(*flag).load(std::memory_order_acquire);
}

// Whether the value of a flag is `value` or a later one.
inline bool is_reached(std::uint32_t now, std::uint32_t value) {
  return static_cast<std::int32_t>(now - value) >= 0;
}
inline bool flag_reached(std::uint32_t* flag, std::uint32_t value) {
  return is_reached(flag_value(flag), value);
}

// Whoever sees the value, on the host or on a device, sees what this thread wrote before.
inline void set_flag(std::uint32_t* flag, std::uint32_t value) {
  std::atomic_ref<std::uint32_t>(*flag).store(value, std::memory_order_seq_cst);
}

}  // namespace ps::detail
