#include "weights/load_plan.h"

#include <algorithm>
#include <tuple>
#include <utility>

namespace ps::detail {
namespace {

constexpr std::size_t disk_block = 4096;

LoadPiece piece_at(std::size_t file, std::uint64_t offset) {
  return {.file = file,
          .offset = offset,
          .in_slot = static_cast<std::size_t>(offset % disk_block),
          .bytes = 0,
          .copies = {}};
}

}  // namespace

std::vector<LoadPiece> plan_load(const Weights& weights, std::span<const LoadTarget> targets,
                                 std::size_t slot_bytes) {
  std::vector<LoadTarget> sorted(targets.begin(), targets.end());
  const auto info = [&](const LoadTarget& target) -> const WeightInfo& {
    return weights.tensors()[target.tensor];
  };
  std::ranges::stable_sort(sorted, {}, [&](const LoadTarget& target) {
    return std::tuple(info(target).file, info(target).offset);
  });

  std::vector<LoadPiece> pieces;
  for (const LoadTarget& target : sorted) {
    const WeightInfo& tensor = info(target);
    for (std::uint64_t at = 0; at < tensor.bytes;) {
      const std::uint64_t offset = tensor.offset + at;
      const auto follows = [&](const LoadPiece& last) {
        return last.file == tensor.file && last.offset + last.bytes == offset &&
               last.in_slot + last.bytes < slot_bytes;
      };
      if (pieces.empty() || !follows(pieces.back())) {
        pieces.push_back(piece_at(tensor.file, offset));
      }
      LoadPiece& piece = pieces.back();
      const std::size_t from = piece.in_slot + piece.bytes;
      const auto bytes =
          static_cast<std::size_t>(std::min<std::uint64_t>(slot_bytes - from, tensor.bytes - at));
      piece.copies.push_back({from, target.to.sub(static_cast<std::size_t>(at), bytes)});
      piece.bytes += bytes;
      at += bytes;
    }
  }
  return pieces;
}

}  // namespace ps::detail
