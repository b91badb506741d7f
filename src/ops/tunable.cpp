#include "ops/tunable.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <exception>
#include <memory>
#include <mutex>
#include <utility>

namespace ps {
namespace detail {
namespace {

// What calls on one device run. Never changed and never freed once calls may look at it.
struct ChoiceTable {
  int device = 0;
  std::vector<std::vector<unsigned>> kernels;  // by operator, as in all_tunables(), and problem
  const ChoiceTable* next = nullptr;
};

struct ChoiceTables {
  std::atomic<const ChoiceTable*> first = nullptr;
  std::mutex mutex;  // of who makes one
  std::vector<std::unique_ptr<const ChoiceTable>> made;
};

// Never destroyed: calls may come from destructors of static objects.
ChoiceTables& choice_tables() {
  static auto& tables = *new ChoiceTables;
  return tables;
}

const ChoiceTable* find_table(const ChoiceTables& tables, int device) {
  const ChoiceTable* table = tables.first.load(std::memory_order_acquire);
  while (table != nullptr && table->device != device) table = table->next;
  return table;
}

std::optional<Choices> choices_or_none(const Device& device) {
  try {
    return measured_choices(device);
  } catch (const std::exception&) {
    return std::nullopt;  // `penstock tune` and `penstock doctor` say what is wrong with the file
  }
}

const ChoiceTable* make_table(ChoiceTables& tables, const Device& device) {
  const std::lock_guard lock(tables.mutex);
  if (const ChoiceTable* other = find_table(tables, device.index())) return other;
  const std::optional<Choices> choices = choices_or_none(device);
  auto table = std::make_unique<ChoiceTable>();
  table->device = device.index();
  for (const Tunable* op : all_tunables()) {
    std::vector<unsigned>& kernels = table->kernels.emplace_back();
    for (std::size_t problem = 0; problem < op->problems.size(); ++problem) {
      kernels.push_back(use_of(*op, problem, device, choices).kernel);
    }
  }
  table->next = tables.first.load(std::memory_order_relaxed);
  const ChoiceTable* made = tables.made.emplace_back(std::move(table)).get();
  tables.first.store(made, std::memory_order_release);
  return made;
}

}  // namespace

std::span<const Tunable* const> all_tunables() {
  static const std::array<const Tunable*, 4> all = {&gemm_tunable(), &iterate_tunable(),
                                                    &resample_tunable(), &transform_tunable()};
  return all;
}

Use use_of(const Tunable& op, std::size_t problem, const Device& device,
           const std::optional<Choices>& choices) {
  const std::vector<unsigned> candidates = op.candidates(problem, device);
  const Choice* choice = choices ? choices->find(op.name, op.problems[problem]) : nullptr;
  if (choice != nullptr) {
    for (const unsigned kernel : candidates) {
      if (op.kernels[kernel] == choice->kernel) return {kernel, choice->date};
    }
  }
  return {candidates.empty() ? 0 : candidates.front(), {}};
}

unsigned chosen_kernel(const Tunable& op, std::size_t problem, const Device& device) {
  ChoiceTables& tables = choice_tables();
  const ChoiceTable* table = find_table(tables, device.index());
  if (table == nullptr) table = make_table(tables, device);
  const auto all = all_tunables();
  const auto place = std::ranges::find(all, &op) - all.begin();
  return table->kernels[static_cast<std::size_t>(place)].at(problem);
}

}  // namespace detail

void reload_choices() {
  detail::ChoiceTables& tables = detail::choice_tables();
  const std::lock_guard lock(tables.mutex);
  tables.first.store(nullptr, std::memory_order_release);
}

}  // namespace ps
