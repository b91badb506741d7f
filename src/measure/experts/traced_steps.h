// Records when the products of StreamedExperts run, and makes a timeline of them and of the
// library's own records of its calls.
#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "host/device_clock.h"
#include "outofcore/expert_steps.h"
#include "penstock/host/event.h"
#include "penstock/outofcore/experts.h"
#include "penstock/trace/timeline.h"

namespace ps::detail {

// One call of one layer, by the host's clock.
struct TracedCall {
  struct Group {
    std::int64_t arrived_ns = 0;  // its experts were there
    Span products{};
  };
  ExpertCallRecord record{};
  bool whole = false;           // so many tokens that its experts are loaded before they are known
  std::vector<Group> groups{};  // that had experts
};

// Every call of a trace reads its ids from another place: they tell the calls apart.
class TracedSteps : public ExpertSteps {
 public:
  TracedSteps(const Device& device, std::int64_t experts) : stream_(device), experts_(experts) {}

  void begin();  // calls that are made from now on are traced
  // The calls since begin(), which are all done, with the latest of `records`.
  std::vector<TracedCall> end(const std::vector<ExpertCallRecord>& records);

  void plan(const MoeOptions& options, const Stream& stream) override;
  void take_slots(const std::int32_t* from, const TensorView& slots, const Stream& stream) override;
  void experts(const MoeOptions& options, const Stream& stream) override;

 private:
  struct Marks {
    std::optional<Event> arrived;  // absent: when the products begin
    Event begin, end;
  };
  struct Call {
    bool whole = false;
    std::vector<Marks> groups{};
  };
  Event mark();
  std::int64_t host_ns(const Event& event) const;

  const Stream stream_;
  const std::int64_t experts_;
  std::mutex mutex_;
  std::optional<DeviceClock> clock_;  // while calls are traced
  std::vector<Event> unused_;
  std::optional<Event> arrived_;                       // of the next group
  std::unordered_map<const void*, std::size_t> call_;  // by its ids
  std::vector<Call> calls_;
};

// "routing" until the host knows the experts of a layer, from the products of the layer before;
// "load" from then on until the last of them is there, on `loads`; "products" of each group; and
// "wait" while a load goes on and no products run. Items count calls.
void add_calls(Timeline& timeline, const std::vector<TracedCall>& calls, Engine loads);

}  // namespace ps::detail
