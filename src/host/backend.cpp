#include "host/backend.h"

namespace ps::detail {

std::string Backend::name() const { return ps::name(place()); }

}  // namespace ps::detail
