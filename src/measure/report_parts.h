// What reports of all kinds have in common.
#pragma once

#include <initializer_list>
#include <nlohmann/json.hpp>

#include "penstock/host/device.h"
#include "penstock/measure/floor.h"
#include "penstock/trace/overlap.h"
#include "penstock/trace/timeline.h"

namespace ps::detail {

// Microseconds, rounded to a nanosecond.
double us(double seconds);

// {"schema", "kind", "version", "commit", "date", "device"}
nlohmann::ordered_json report_header(const char* kind, const Device& device);

void add_figures(nlohmann::ordered_json& document, const OverlapTimes& times,
                 const OverlapFigures& figures, const FloorVerdict& verdict);

struct NamedTimeline {
  const char* name;
  const Timeline& timeline;
};
// The intervals only if `all`; what is missing from them is said in any case.
void add_timelines(nlohmann::ordered_json& document, std::initializer_list<NamedTimeline> timelines,
                   bool all);

}  // namespace ps::detail
