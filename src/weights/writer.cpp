#include "penstock/weights/writer.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <optional>
#include <unordered_set>
#include <utility>

#include "penstock/base/checked.h"
#include "penstock/base/error.h"
#include "penstock/base/text_file.h"
#include "penstock/base/units.h"
#include "penstock/host/storage.h"
#include "weights/header.h"
#include "weights/index.h"
#include "weights/strict_json.h"
#include "weights/temporary_file.h"

namespace ps {
namespace {

// The files of a checkpoint, with offsets from the first byte of their tensors.
std::vector<std::vector<WeightInfo>> in_shards(std::vector<WeightSpec> tensors,
                                               std::uint64_t shard_bytes) {
  std::vector<std::vector<WeightInfo>> shards(1);
  std::uint64_t used = 0;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const std::string where = fmt::format("tensors[{}]", i);
    const std::uint64_t bytes = detail::bytes_of(tensors[i].type, tensors[i].shape, where);
    if (bits_of(tensors[i].type) == 0) {
      detail::throw_invalid(where + ".type", "a ps::WeightType", "another number");
    }
    if (shard_bytes > 0 && used > 0 && bytes > shard_bytes - std::min(used, shard_bytes)) {
      shards.emplace_back();
      used = 0;
    }
    shards.back().push_back({.name = std::move(tensors[i].name),
                             .type = tensors[i].type,
                             .shape = std::move(tensors[i].shape),
                             .file = shards.size() - 1,
                             .offset = used,
                             .bytes = bytes});
    used = checked_add(used, bytes, where);
  }
  return shards;
}

void check_names(const std::vector<WeightSpec>& tensors) {
  std::unordered_set<std::string_view> seen;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const std::string where = fmt::format("tensors[{}].name", i);
    if (tensors[i].name == detail::metadata_key) {
      detail::throw_invalid(where, "a name that the format does not use", tensors[i].name);
    }
    if (!seen.insert(tensors[i].name).second) {
      detail::throw_invalid(where, "every name once",
                            detail::in_quotes(tensors[i].name) + " again");
    }
  }
}

void check_writer_options(const WeightsWriterOptions& options) {
  if (!std::has_single_bit(options.alignment) || options.alignment < 8 || options.alignment > MiB) {
    detail::throw_invalid("alignment", "a power of two from 8 to 1 MiB",
                          std::to_string(options.alignment));
  }
}

}  // namespace

struct WeightsWriter::State {
  State(std::filesystem::path where, std::vector<WeightSpec> specs, WeightsWriterOptions given)
      : path(std::move(where)), options(std::move(given)) {
    check_writer_options(options);
    check_names(specs);
    shards = in_shards(std::move(specs), options.shard_bytes);
    // All headers before the first file: what cannot be written leaves nothing behind.
    for (const auto& shard : shards) {
      headers.push_back(detail::format_header(shard, options.metadata, options.alignment));
    }
    begin_file();
  }

  std::string file_name(std::size_t shard) const;
  void begin_file();
  void end_file();
  void write(std::string_view name, MemoryView from);
  void finish();
  const WeightInfo* current() const;
  void skip_empty();

  std::filesystem::path path;
  WeightsWriterOptions options;
  std::vector<std::vector<WeightInfo>> shards;
  std::vector<std::string> headers;
  FileQueue queue;
  std::vector<detail::TemporaryFile> temporary;  // of the shards so far
  std::optional<File> file;                      // of the last of them
  std::size_t next = 0;                          // tensor of this shard
  std::uint64_t written = 0;                     // bytes of it
};

std::string WeightsWriter::State::file_name(std::size_t shard) const {
  if (shards.size() == 1) return path.filename().string();
  return fmt::format("{}-{:05}-of-{:05}{}", path.stem().string(), shard + 1, shards.size(),
                     path.extension().string());
}

void WeightsWriter::State::begin_file() {
  const std::size_t shard = temporary.size();
  temporary.emplace_back(path.parent_path() / file_name(shard));
  file.emplace(queue, temporary.back().name(), OpenOptions{.mode = FileMode::write});
  std::string& header = headers[shard];
  file->write(0, {reinterpret_cast<std::byte*>(header.data()), header.size(), {Memory::host}});
  next = 0;
  written = 0;
}

void WeightsWriter::State::end_file() {
  file->flush();
  file.reset();
}

const WeightInfo* WeightsWriter::State::current() const {
  const auto& shard = shards[temporary.size() - 1];
  return next < shard.size() ? &shard[next] : nullptr;
}

// To the next tensor with bytes left to write, which may be in the next file.
void WeightsWriter::State::skip_empty() {
  const auto complete = [&] { return current() != nullptr && current()->bytes == written; };
  for (; complete(); written = 0) ++next;
  if (current() == nullptr && temporary.size() < shards.size()) {
    end_file();
    begin_file();
    skip_empty();
  }
}

void WeightsWriter::State::write(std::string_view name, MemoryView from) {
  if (!file) detail::throw_invalid("writer", "one that is not finished", "a finished one");
  const bool is_next = current() != nullptr && current()->name == name;
  if (!is_next) skip_empty();  // leaves out tensors without bytes
  const WeightInfo* tensor = current();
  if (tensor == nullptr || tensor->name != name) {
    detail::throw_invalid("name",
                          tensor == nullptr ? "no more tensors"
                                            : detail::in_quotes(tensor->name) + ", the next tensor",
                          detail::in_quotes(name));
  }
  const std::uint64_t left = tensor->bytes - written;
  if (from.bytes > left) {
    detail::throw_invalid("from",
                          fmt::format("at most {} bytes of {}", left, detail::in_quotes(name)),
                          fmt::format("{} bytes", from.bytes));
  }
  file->write(headers[temporary.size() - 1].size() + tensor->offset + written, from);
  written += from.bytes;
  if (written == tensor->bytes) {
    ++next;
    written = 0;
  }
}

void WeightsWriter::State::finish() {
  if (!file) detail::throw_invalid("writer", "one that is not finished", "a finished one");
  skip_empty();
  if (const WeightInfo* tensor = current()) {
    detail::throw_invalid("tensors",
                          fmt::format("all bytes of {}", detail::in_quotes(tensor->name)),
                          fmt::format("{} of {} bytes", written, tensor->bytes));
  }
  end_file();
  detail::WeightMap map;
  std::uint64_t total = 0;
  for (const auto& shard : shards) {
    for (const WeightInfo& tensor : shard) {
      map.emplace(tensor.name, file_name(tensor.file));
      total += tensor.bytes;
    }
  }
  for (detail::TemporaryFile& each : temporary) each.rename();
  if (shards.size() > 1) {
    write_text(path.string() + ".index.json", detail::format_index(map, total));
  }
}

WeightsWriter::WeightsWriter(const std::filesystem::path& path, std::vector<WeightSpec> tensors,
                             WeightsWriterOptions options)
    : state_(std::make_unique<State>(path, std::move(tensors), std::move(options))) {}
WeightsWriter::~WeightsWriter() = default;
WeightsWriter::WeightsWriter(WeightsWriter&&) noexcept = default;
WeightsWriter& WeightsWriter::operator=(WeightsWriter&&) noexcept = default;

void WeightsWriter::write(std::string_view name, MemoryView from) { state_->write(name, from); }
void WeightsWriter::finish() { state_->finish(); }

}  // namespace ps
