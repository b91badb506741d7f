#include "trace/kernel_buffer.h"

#include <fmt/format.h>

#include <cstring>
#include <string>
#include <utility>

#include "penstock/base/checked.h"
#include "penstock/base/error.h"

namespace ps::detail {
namespace {

// No clock or timer gets this far, and differences of such values do not overflow.
constexpr std::uint64_t furthest = std::uint64_t{1} << 62;
constexpr std::uint64_t longest_kernel = std::uint64_t{1}
                                         << 42;  // in clocks: at least half an hour
constexpr std::uint32_t most_sms = 1 << 16;

[[noreturn]] void refuse(std::string_view expected, std::string_view given) {
  throw_invalid("buffer", expected, given);
}

// Reads values one after the other. Does not check the size: checked_head() has done so.
class Cursor {
 public:
  explicit Cursor(std::span<const std::byte> bytes) : at_(bytes.data()) {}

  template <class T>
  T take() {
    T value;
    std::memcpy(&value, at_, sizeof(T));
    at_ += sizeof(T);
    return value;
  }

  void skip(std::size_t bytes) { at_ += bytes; }

 private:
  const std::byte* at_;
};

KernelTraceHead checked_head(std::span<const std::byte> buffer) {
  if (buffer.size() < sizeof(KernelTraceHead)) {
    refuse(fmt::format("at least {} bytes", sizeof(KernelTraceHead)),
           fmt::format("{} bytes", buffer.size()));
  }
  const auto head = Cursor(buffer).take<KernelTraceHead>();
  if (head.magic == 0) refuse("a kernel trace", "zeros: no traced kernel wrote to it");
  if (head.magic != kernel_trace_magic) {
    refuse("a kernel trace", fmt::format("bytes that begin with {:#018x}", head.magic));
  }
  if (head.version != kernel_trace_version) {
    refuse(fmt::format("layout version {}", kernel_trace_version),
           fmt::format("version {}", head.version));
  }
  if (head.blocks == 0 || head.roles == 0 || head.capacity == 0 || head.grid == 0) {
    refuse("at least one block, role and record per role",
           fmt::format("{} blocks of a grid of {}, {} roles, {} records per role", head.blocks,
                       head.grid, head.roles, head.capacity));
  }
  const std::size_t slice =
      sizeof(KernelTraceRole) + std::size_t{head.capacity} * sizeof(KernelTraceRecord);
  const std::size_t block =
      checked_add(checked_mul(slice, head.roles, "buffer"), sizeof(KernelTraceBlock), "buffer");
  const std::size_t bytes =
      checked_add(checked_mul(block, head.blocks, "buffer"), sizeof(KernelTraceHead), "buffer");
  if (buffer.size() != bytes) {
    refuse(fmt::format("{} bytes, for {} blocks of {} roles with {} records each", bytes,
                       head.blocks, head.roles, head.capacity),
           fmt::format("{} bytes", buffer.size()));
  }
  return head;
}

void take_pairs(std::vector<ClockPair>& into, const ClockPair (&pairs)[kernel_trace_pairs],
                const std::string& block) {
  for (const ClockPair& pair : pairs) {
    if (pair.ns == 0 && pair.clock == 0) continue;  // the timer did not tick
    if (pair.ns == 0 || pair.ns > furthest || pair.clock > furthest) {
      refuse("plausible times of a clock and a timer",
             fmt::format("{} and {} ns in {}", pair.clock, pair.ns, block));
    }
    into.push_back(pair);
  }
}

BlockRecords checked_block(const KernelTraceBlock& head, unsigned index) {
  const std::string block = fmt::format("block {}", index);
  const bool ended = head.state == KernelTraceState::ended;
  if (!ended && head.state != KernelTraceState::begun) {
    refuse("a block that is begun, ended or untraced",
           fmt::format("state {} of {}", static_cast<std::uint32_t>(head.state), block));
  }
  if (head.block != index) {
    refuse("blocks in ascending order", fmt::format("number {} instead of {}", head.block, block));
  }
  if (head.sm >= most_sms) {
    refuse("the number of a multiprocessor", fmt::format("{} in {}", head.sm, block));
  }
  if (ended && head.sm != head.end_sm) {
    refuse(
        "blocks that stay on one multiprocessor",
        fmt::format("{}, begun on multiprocessor {} and ended on {}", block, head.sm, head.end_sm));
  }
  if (head.begin > furthest ||
      (ended && (head.end < head.begin || head.end - head.begin > longest_kernel))) {
    refuse("a block whose end is not before its begin",
           fmt::format("{} to {} in {}", head.begin, head.end, block));
  }
  BlockRecords read{.head = head, .pairs = {}, .records = {}};
  take_pairs(read.pairs, head.at_begin, block);
  const std::size_t at_begin = read.pairs.size();
  take_pairs(read.pairs, head.at_end, block);
  if (!ended && read.pairs.size() > at_begin) {
    refuse("no samples at the end of a block that has not ended", block);
  }
  return read;
}

std::vector<KernelTraceRecord> take_role(Cursor& cursor, const KernelTraceHead& head,
                                         const KernelTraceRole& role, BlockRecords& block) {
  const auto where = [&] { return fmt::format("block {}", block.head.block); };
  if (role.count > head.capacity || (role.lost > 0 && role.count < head.capacity)) {
    refuse(
        fmt::format("at most {} records per role, and lost ones only beyond that", head.capacity),
        fmt::format("{} and {} lost in {}", role.count, role.lost, where()));
  }
  std::vector<KernelTraceRecord> records;
  records.reserve(role.count);
  for (std::uint32_t i = 0; i < role.count; ++i) {
    const auto record = cursor.take<KernelTraceRecord>();
    const std::uint64_t away = record.start > block.head.begin ? record.start - block.head.begin
                                                               : block.head.begin - record.start;
    if (away > longest_kernel) {
      refuse("records close to the begin of their block",
             fmt::format("one that is {} clocks away in {}", away, where()));
    }
    records.push_back(record);
  }
  block.lost += role.lost;
  return records;
}

}  // namespace

KernelBuffer read_kernel_buffer(std::span<const std::byte> buffer) {
  KernelBuffer read{.head = checked_head(buffer), .blocks = {}};
  Cursor heads(buffer), slices(buffer);
  heads.skip(sizeof(KernelTraceHead));
  slices.skip(sizeof(KernelTraceHead) + std::size_t{read.head.blocks} * sizeof(KernelTraceBlock));
  for (unsigned index = 0; index < read.head.blocks; ++index) {
    const auto head = heads.take<KernelTraceBlock>();
    const bool traced = head.state != KernelTraceState::none;
    BlockRecords block = traced ? checked_block(head, index) : BlockRecords{};
    for (unsigned number = 0; number < read.head.roles; ++number) {
      const auto role = slices.take<KernelTraceRole>();
      if (!traced && (role.count > 0 || role.lost > 0)) {
        refuse("records of traced blocks only", fmt::format("records of block {}", index));
      }
      Cursor records = slices;
      block.records.push_back(take_role(records, read.head, role, block));
      slices.skip(std::size_t{read.head.capacity} * sizeof(KernelTraceRecord));
    }
    if (traced) read.blocks.push_back(std::move(block));
  }
  return read;
}

}  // namespace ps::detail
