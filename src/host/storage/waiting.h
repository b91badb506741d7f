// The pieces that an engine has not started yet.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <deque>
#include <iterator>
#include <utility>
#include <vector>

#include "host/storage/transfer.h"

namespace ps::detail {

// The most urgent comes first, and of the same priority the one that was submitted first.
class WaitingPieces {
 public:
  bool empty() const { return size_ == 0; }
  std::size_t size() const { return size_; }

  void push(Piece piece) {
    const auto priority = static_cast<std::size_t>(piece.transfer->priority);
    queues_.at(priority).push_back(std::move(piece));
    ++size_;
  }

  // There is one.
  Piece pop() {
    const auto queue = std::ranges::find_if(queues_.rbegin(), queues_.rend(),
                                            [](const auto& each) { return !each.empty(); });
    Piece piece = std::move(queue->front());
    queue->pop_front();
    --size_;
    return piece;
  }

  // Moves the pieces of cancelled transfers to the end of `to`. They must be dropped without a
  // lock.
  void take_cancelled(std::vector<Piece>& to) {
    for (auto& queue : queues_) {
      const auto kept = [](const Piece& piece) { return !piece.transfer->cancelled(); };
      const auto taken = std::stable_partition(queue.begin(), queue.end(), kept);
      to.insert(to.end(), std::make_move_iterator(taken), std::make_move_iterator(queue.end()));
      size_ -= static_cast<std::size_t>(queue.end() - taken);
      queue.erase(taken, queue.end());
    }
  }

 private:
  std::array<std::deque<Piece>, 3> queues_;  // by priority, the least urgent first
  std::size_t size_ = 0;
};

}  // namespace ps::detail
