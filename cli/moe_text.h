// A measurement of loading and computing experts as text.
#pragma once

#include <string>

#include "penstock/measure/experts.h"

namespace ps::cli {

// `model` is the name of a published model, or empty.
std::string moe_text(const ExpertOverlapResult& result, const Device& device,
                     const std::string& model);

}  // namespace ps::cli
