#include "support/tiny_session.h"

#include <gtest/gtest.h>

#include <utility>

#include "support/fake_machine.h"

namespace ps::test {
namespace {

bool is_not_resident(const Payload& payload) { return !payload.get<TinyLoad>().resident; }

}  // namespace

const std::vector<std::string> TinySession::stages = {"read", "upload", "compute", "download",
                                                      "write"};

TinySession::TinySession(const Device& device, TinySessionOptions options)
    : session({.device = device,
               .depth = options.depth,
               .in_flight = options.in_flight,
               .when_full = options.when_full,
               .waiting = options.waiting,
               .recorder = options.recorder}),
      options_(std::move(options)) {
  build();
}

void TinySession::build() {
  in_ = session.ring("in", {.memory = Memory::pinned, .bytes = bytes});
  work_ = session.ring("work", {.memory = Memory::device, .bytes = bytes});
  out_ = session.ring("out", {.memory = Memory::pinned, .bytes = bytes});
  read_ = edge_stage(
      0, {}, in_, true, [](std::uint64_t* slot, TinyLoad& load) { *slot = load.value; },
      is_not_resident);
  upload_ = device_stage(
      1, {.after = {read_}, .uses = {in_, work_}, .engine = Engine::upload},
      [this](Item& item) { copy(item.slot(work_), item.slot(in_), item.stream()); },
      is_not_resident);
  compute_ =
      device_stage(2, {.after = {upload_}, .uses = {work_}}, [this](Item& item) { compute(item); });
  download_ =
      device_stage(3, {.after = {compute_}, .uses = {work_, out_}, .engine = Engine::download},
                   [this](Item& item) { download(item); });
  write_ = edge_stage(4, {download_}, out_, false,
                      [](std::uint64_t* slot, TinyLoad& load) { load.result = *slot; });
}

StageFunction TinySession::with_hook(std::size_t stage, StageFunction function) {
  return [this, stage, function = std::move(function)](Item& item) {
    if (hook) hook(stages[stage], item);
    function(item);
  };
}

StageId TinySession::device_stage(std::size_t stage, StageOptions options, StageFunction function,
                                  StageCondition when) {
  if (!options_.streams.empty()) {
    options.stream = options_.streams[stage % options_.streams.size()];
  }
  return session.stage(stages[stage], std::move(options), with_hook(stage, std::move(function)),
                       std::move(when));
}

StageId TinySession::edge_stage(std::size_t stage, std::vector<StageId> after, RingId ring,
                                bool writes,
                                std::function<void(std::uint64_t* slot, TinyLoad& load)> function,
                                StageCondition when) {
  if (options_.host_stages) {
    return session.host_stage(stages[stage], {.after = std::move(after), .uses = {ring}},
                              with_hook(stage,
                                        [this, ring, writes, function](Item& item) {
                                          host_access(item.slot(ring), writes);
                                          function(item.slot(ring).as<std::uint64_t>(),
                                                   item.payload<TinyLoad>());
                                        }),
                              std::move(when));
  }
  return device_stage(
      stage, {.after = std::move(after), .uses = {ring}},
      [this, ring, writes, function](Item& item) {
        auto* slot = item.slot(ring).as<std::uint64_t>();
        const Bytes touched{slot, bytes};
        kernel(item, {touched}, writes ? std::vector{touched} : std::vector<Bytes>{},
               [function, slot, load = item.payload<TinyLoad>().shared_from_this()] {
                 function(slot, *load);
               });
      },
      std::move(when));
}

void TinySession::kernel(Item& item, std::vector<Bytes> reads, std::vector<Bytes> writes,
                         std::function<void()> function) {
  if (options_.driver == nullptr) {
    item.stream().call(std::move(function));
  } else {
    launch(*options_.driver, item.stream(), std::move(reads), std::move(writes),
           std::move(function));
  }
}

void TinySession::host_access(MemoryView view, bool write) {
  if (options_.driver == nullptr) return;
  if (write) {
    options_.driver->host_write(view.data, view.bytes);
  } else {
    options_.driver->host_read(view.data, view.bytes);
  }
}

void TinySession::compute(Item& item) {
  const MemoryView data = item.slot(work_);
  item.scratch(bytes);  // freed right after this stage
  const MemoryView middle = item.scratch(bytes + item.index() % 3, download_);
  const TinyLoad& load = item.payload<TinyLoad>();
  kernel(item, {{data.data, bytes}}, {{middle.data, bytes}, {data.data, bytes}},
         [value = data.as<std::uint64_t>(), copy = middle.as<std::uint64_t>(), given = load.value,
          resident = load.resident] {
           if (resident) *value = given;
           *copy = *value * 3;
           *value = *copy + 1;
         });
}

void TinySession::download(Item& item) {
  copy(item.slot(out_), item.slot(work_), item.stream());
  if (!options_.host_calls) return;
  item.stream().call([this, out = item.slot(out_)] {
    host_access(out, true);
    *out.as<std::uint64_t>() += 5;
  });
}

TinySession::Pushed TinySession::push(std::uint64_t value, bool resident) {
  auto load = std::make_shared<TinyLoad>();
  load->value = value;
  load->resident = resident;
  return {session.push(load), load};
}

void TinySession::check(const Pushed& item) const {
  item.ticket.wait();
  EXPECT_EQ(item.load->result, item.load->value * 3 + 1 + (options_.host_calls ? 5 : 0))
      << "item " << item.ticket.index();
}

void TinySession::run_well(std::uint64_t items) {
  try {
    std::vector<Pushed> pushed;
    for (std::uint64_t i = 0; i < items; ++i) pushed.push_back(push(100 + i, i % 3 == 2));
    for (const Pushed& item : pushed) check(item);
    session.drain();
  } catch (const std::exception& error) {
    ADD_FAILURE() << "the session does not work: " << error.what();
  }
}

}  // namespace ps::test
