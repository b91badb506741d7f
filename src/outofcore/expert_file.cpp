#include "outofcore/expert_file.h"

#include <fmt/format.h>

#include <chrono>
#include <cstring>
#include <exception>
#include <future>
#include <string>
#include <type_traits>
#include <vector>

#include "penstock/base/error.h"
#include "penstock/host/buffer.h"
#include "weights/temporary_file.h"

namespace ps {
namespace {

using detail::expert_blocks_offset;
using detail::throw_invalid;

constexpr char magic[8] = {'P', 'S', 'E', 'X', 'P', 'R', 'T', '1'};

// As in the file, little-endian.
struct FileHeader {
  char magic[8];
  std::int64_t layers, experts, hidden, width;
  std::uint8_t dtype, layout, transposed, gate_up_bias, down_bias, unused[3];
  std::uint64_t block_bytes, file_bytes;
  std::int64_t created_ns;
  double pack_seconds;
  std::uint64_t checksum;  // of the bytes before
};
static_assert(sizeof(FileHeader) == 88 && std::is_trivially_copyable_v<FileHeader>);

// FNV-1a.
std::uint64_t checksum_of(const FileHeader& header) {
  std::uint64_t sum = 0xcbf29ce484222325;
  const auto* bytes = reinterpret_cast<const unsigned char*>(&header);
  for (std::size_t i = 0; i < offsetof(FileHeader, checksum); ++i) {
    sum = (sum ^ bytes[i]) * 0x100000001b3;
  }
  return sum;
}

FileHeader header_of(const ExpertFileInfo& info) {
  FileHeader header{};
  std::memcpy(header.magic, magic, sizeof magic);
  header.layers = info.shape.layers;
  header.experts = info.shape.experts;
  header.hidden = info.shape.hidden;
  header.width = info.shape.width;
  header.dtype = static_cast<std::uint8_t>(info.shape.dtype);
  header.layout = static_cast<std::uint8_t>(info.shape.layout);
  header.transposed = info.shape.transposed ? 1 : 0;
  header.gate_up_bias = info.shape.gate_up_bias ? 1 : 0;
  header.down_bias = info.shape.down_bias ? 1 : 0;
  header.block_bytes = ExpertStore::block_bytes(info.shape);
  header.file_bytes = info.bytes;
  header.created_ns = info.created_ns;
  header.pack_seconds = info.pack_seconds;
  header.checksum = checksum_of(header);
  return header;
}

// Writes a block while the next one is filled.
class Writer {
 public:
  Writer(const File& file, std::size_t block) : file_(file) {
    for (PinnedBuffer& each : blocks_) each = PinnedBuffer(Device::cpu(), block);
  }
  ~Writer() {
    if (written_.valid()) written_.wait();
  }

  MemoryView next() {
    const MemoryView block = blocks_[count_ % 2].view();
    std::memset(block.data, 0, block.bytes);
    return block;
  }
  void write_next() {
    wait();
    const MemoryView block = blocks_[count_ % 2].view();
    const auto promise = std::make_shared<std::promise<void>>();
    written_ = promise->get_future();
    file_.write(expert_blocks_offset + count_ * block.bytes, block,
                [promise](const std::exception_ptr& failure) {
                  failure ? promise->set_exception(failure) : promise->set_value();
                });
    ++count_;
  }
  void wait() {
    if (written_.valid()) written_.get();
  }

 private:
  const File& file_;
  PinnedBuffer blocks_[2];
  std::uint64_t count_ = 0;
  std::future<void> written_;
};

void write_header(const File& file, const ExpertFileInfo& info) {
  const FileHeader header = header_of(info);
  const PinnedBuffer page(Device::cpu(), expert_blocks_offset);
  std::memset(page.view().data, 0, page.bytes());
  std::memcpy(page.view().data, &header, sizeof header);
  file.write(0, page.view());
}

}  // namespace

ExpertFileInfo pack_experts(const std::filesystem::path& path, const ExpertShape& shape,
                            const FillExpert& fill, PackExpertsOptions options) {
  const std::uint64_t total = ExpertStore::bytes_needed(shape);
  if (!fill) throw_invalid("fill", "a function", "an empty one");
  const auto begin = std::chrono::steady_clock::now();
  detail::TemporaryFile temporary(path);
  const File file(temporary.name(), {.mode = FileMode::write});
  {
    Writer writer(file, ExpertStore::block_bytes(shape));
    for (std::int64_t number = 0; number < shape.layers * shape.experts; ++number) {
      if (options.stop.stop_requested()) throw Cancelled();
      fill(number / shape.experts, number % shape.experts, writer.next());
      writer.write_next();
      if (options.progress) {
        options.progress(static_cast<std::uint64_t>(number + 1) * ExpertStore::block_bytes(shape),
                         total);
      }
    }
    writer.wait();
  }
  file.flush();
  using std::chrono::duration_cast;
  using std::chrono::nanoseconds;
  const ExpertFileInfo info{
      .path = path.string(),
      .shape = shape,
      .bytes = expert_blocks_offset + total,
      .created_ns =
          duration_cast<nanoseconds>(std::chrono::system_clock::now().time_since_epoch()).count(),
      .pack_seconds =
          std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count()};
  write_header(file, info);  // last: a file with a header has all blocks
  file.flush();
  temporary.rename();
  return info;
}

ExpertFileInfo detail::read_expert_header(const File& file) {
  const std::uint64_t bytes = file.size();
  const std::string& path = file.path();
  FileHeader header{};
  if (bytes < expert_blocks_offset) {
    throw_invalid(path, "a file of packed experts, of at least 4096 bytes",
                  fmt::format("{} bytes", bytes));
  }
  file.read(0, {reinterpret_cast<std::byte*>(&header), sizeof header, {Memory::host}});
  if (std::memcmp(header.magic, magic, sizeof magic) != 0) {
    throw_invalid(path, "a file of packed experts", "a file that begins with other bytes");
  }
  if (header.checksum != checksum_of(header)) {
    throw_invalid(path, "a header with the right checksum", "a damaged header");
  }
  ExpertFileInfo info{.path = path,
                      .shape = {.layers = header.layers,
                                .experts = header.experts,
                                .hidden = header.hidden,
                                .width = header.width,
                                .dtype = static_cast<DType>(header.dtype),
                                .layout = static_cast<GateUpLayout>(header.layout),
                                .transposed = header.transposed != 0,
                                .gate_up_bias = header.gate_up_bias != 0,
                                .down_bias = header.down_bias != 0},
                      .bytes = header.file_bytes,
                      .created_ns = header.created_ns,
                      .pack_seconds = header.pack_seconds};
  std::uint64_t needed = 0, block = 0;
  try {
    block = ExpertStore::block_bytes(info.shape);
    needed = expert_blocks_offset + ExpertStore::bytes_needed(info.shape);
  } catch (const InvalidArgument& error) {
    throw_invalid(path + ": " + error.argument(), error.expected(), error.given());
  }
  if (header.block_bytes != block || header.file_bytes != needed) {
    throw_invalid(
        path, fmt::format("blocks of {} bytes", block),
        fmt::format("blocks of {} bytes, as another version writes them", header.block_bytes));
  }
  if (bytes != needed) {
    throw_invalid(path, fmt::format("a file of {} bytes", needed), fmt::format("{} bytes", bytes));
  }
  return info;
}

ExpertFileInfo expert_file_info(const std::filesystem::path& path) {
  return detail::read_expert_header(File(path, {.in_flight = 1}));
}

}  // namespace ps
