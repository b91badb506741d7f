#include "penstock/base/error.h"

#include <fmt/format.h>

#include "penstock/base/units.h"

namespace ps {

InvalidArgument::InvalidArgument(std::string_view argument, std::string_view expected,
                                 std::string_view given)
    : std::invalid_argument(fmt::format("{}: expected {}, given {}", argument, expected, given)),
      argument_(argument),
      expected_(expected),
      given_(given) {}

OutOfMemory::OutOfMemory(std::string_view place, std::size_t requested, std::string_view why)
    : message_(fmt::format("out of {}: {} requested{}{}", place, format_bytes(requested),
                           why.empty() ? "" : "; ", why)),
      requested_(requested) {}

DeviceError::DeviceError(std::string_view device, std::string_view call, int code,
                         std::string_view meaning)
    : DeviceError(fmt::format("{}: {} failed: {} (code {})", device, call, meaning, code), code) {}

DeviceLost::DeviceLost(std::string_view device, std::string_view first_cause, int code)
    : DeviceError(
          fmt::format("{} is lost for this process; the first cause was: {}", device, first_cause),
          code) {}

SystemError::SystemError(int error_number, std::string_view action, std::string_view subject)
    : std::system_error(error_number, std::generic_category(),
                        fmt::format("{} {}", action, subject)) {}

namespace detail {
void throw_invalid(std::string_view argument, std::string_view expected, std::string_view given) {
  throw InvalidArgument(argument, expected, given);
}
}  // namespace detail

}  // namespace ps
