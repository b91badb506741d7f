#include "weights/load_plan.h"

#include <algorithm>
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

std::vector<LoadPiece> plan_load(std::vector<LoadRange> ranges, std::size_t slot_bytes) {
  std::ranges::stable_sort(
      ranges, {}, [](const LoadRange& range) { return std::pair(range.file, range.offset); });
  std::vector<LoadPiece> pieces;
  for (const LoadRange& range : ranges) {
    for (std::size_t at = 0; at < range.to.bytes;) {
      const std::uint64_t offset = range.offset + at;
      const auto follows = [&](const LoadPiece& last) {
        return last.file == range.file && last.offset + last.bytes == offset &&
               last.in_slot + last.bytes < slot_bytes;
      };
      if (pieces.empty() || !follows(pieces.back())) {
        pieces.push_back(piece_at(range.file, offset));
      }
      LoadPiece& piece = pieces.back();
      const std::size_t from = piece.in_slot + piece.bytes;
      const std::size_t bytes = std::min(slot_bytes - from, range.to.bytes - at);
      piece.copies.push_back({from, range.to.sub(at, bytes)});
      piece.bytes += bytes;
      at += bytes;
    }
  }
  return pieces;
}

}  // namespace ps::detail
