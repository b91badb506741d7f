#include "penstock/weights/weights.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <system_error>
#include <unordered_map>
#include <utility>
#include <vector>

#include "host/blocking_transfer.h"
#include "host/storage/changed.h"
#include "penstock/base/error.h"
#include "penstock/base/text_file.h"
#include "weights/header.h"
#include "weights/index.h"
#include "weights/rows.h"
#include "weights/strict_json.h"

namespace ps {
namespace {

std::filesystem::path checkpoint_in(const std::filesystem::path& path) {
  std::error_code ignored;  // opening the file says what is wrong with it
  if (!std::filesystem::is_directory(path, ignored)) return path;
  const auto file = path / "model.safetensors";
  return std::filesystem::exists(file, ignored) ? file : path / "model.safetensors.index.json";
}

MemoryView bytes_in(std::string& text) {
  return {reinterpret_cast<std::byte*>(text.data()), text.size(), {Memory::host}};
}

detail::Header read_header(const File& file) {
  const std::uint64_t file_bytes = file.size();
  std::array<std::byte, detail::length_bytes> first{};
  if (file_bytes < first.size()) {
    detail::throw_invalid(file.path(), "a file of at least 8 bytes",
                          fmt::format("{} bytes", file_bytes));
  }
  file.read(0, {first.data(), first.size(), {Memory::host}});
  std::string json(detail::header_length(first, file_bytes, file.path()), '\0');
  file.read(first.size(), bytes_in(json));
  return detail::parse_header(json, file_bytes, file.path());
}

}  // namespace

struct Weights::State {
  explicit State(const WeightsOptions& options) : queue(options.queue), direct(options.direct) {}

  void open_file(const std::filesystem::path& path);
  void open_index(const std::filesystem::path& path);
  void add_file(const std::filesystem::path& path, const detail::WeightMap* map);
  void index_names();

  FileRead checked(const WeightRead& read, const std::string& where) const;
  void check_unchanged(std::size_t file) const;

  FileQueue queue;
  bool direct;
  std::vector<File> files;
  std::vector<FileVersion> versions;  // of each file, when it was opened
  std::vector<std::map<std::string, std::string>> metadata;
  std::vector<WeightInfo> tensors;
  std::unordered_map<std::string_view, std::size_t> by_name;
  std::uint64_t bytes = 0;
};

// With an index: only the tensors that the index has in this file.
void Weights::State::add_file(const std::filesystem::path& path, const detail::WeightMap* map) {
  const File file(queue, path, {.direct = direct});
  versions.push_back(file.version());
  detail::Header header = read_header(file);
  for (WeightInfo& tensor : header.tensors) {
    if (map != nullptr && !map->contains(tensor.name)) continue;
    tensor.file = files.size();
    bytes += tensor.bytes;
    tensors.push_back(std::move(tensor));
  }
  metadata.push_back(std::move(header.metadata));
  files.push_back(file);
}

void Weights::State::index_names() {
  by_name.reserve(tensors.size());
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const auto [entry, added] = by_name.emplace(tensors[i].name, i);
    if (!added) {
      detail::throw_invalid(
          fmt::format("{}: tensor {}", files[tensors[i].file].path(),
                      detail::in_quotes(tensors[i].name)),
          "every tensor in one file",
          fmt::format("the same name in {}", files[tensors[entry->second].file].path()));
    }
  }
}

void Weights::State::open_file(const std::filesystem::path& path) {
  add_file(path, nullptr);
  index_names();
}

void Weights::State::open_index(const std::filesystem::path& path) {
  const detail::WeightMap map =
      detail::parse_index(read_text(path, detail::longest_index), path.string());
  std::map<std::string, std::size_t> names;  // of files, in order
  for (const auto& [tensor, file] : map) names.emplace(file, 0);
  for (auto& [file, number] : names) {
    number = files.size();
    add_file(path.parent_path() / file, &map);
  }
  index_names();
  for (const auto& [tensor, file] : map) {
    const auto found = by_name.find(tensor);
    if (found == by_name.end() || tensors[found->second].file != names.at(file)) {
      detail::throw_invalid(fmt::format("{}: tensor {}", path.string(), detail::in_quotes(tensor)),
                            fmt::format("a tensor of {}", file), "none of that name there");
    }
  }
}

FileRead Weights::State::checked(const WeightRead& read, const std::string& where) const {
  if (read.tensor >= tensors.size()) {
    detail::throw_invalid(where + "tensor", fmt::format("an index below {}", tensors.size()),
                          std::to_string(read.tensor));
  }
  const WeightInfo& tensor = tensors[read.tensor];
  const detail::ByteRange range =
      detail::checked_rows(tensor, read.first_row, read.rows, read.to, where);
  return {files[tensor.file], tensor.offset + range.offset, read.to};
}

void Weights::State::check_unchanged(std::size_t file) const {
  detail::check_unchanged(files[file], versions[file]);
}

Weights::Weights(const std::filesystem::path& path, WeightsOptions options) {
  const auto state = std::make_shared<State>(options);
  const std::filesystem::path file = checkpoint_in(path);
  file.extension() == ".json" ? state->open_index(file) : state->open_file(file);
  state_ = state;
}

std::span<const WeightInfo> Weights::tensors() const { return state_->tensors; }
std::uint64_t Weights::bytes() const { return state_->bytes; }
std::span<const File> Weights::files() const { return state_->files; }

const std::map<std::string, std::string>& Weights::metadata(std::size_t file) const {
  if (file >= state_->metadata.size()) {
    detail::throw_invalid("file", fmt::format("an index below {}", state_->metadata.size()),
                          std::to_string(file));
  }
  return state_->metadata[file];
}

bool Weights::contains(std::string_view name) const { return state_->by_name.contains(name); }

std::size_t Weights::index_of(std::string_view name) const {
  const auto found = state_->by_name.find(name);
  if (found == state_->by_name.end()) {
    detail::throw_invalid(
        "name",
        fmt::format("one of the {} tensors of {}", state_->tensors.size(),
                    state_->files.empty() ? "an empty checkpoint" : state_->files[0].path()),
        detail::in_quotes(name));
  }
  return found->second;
}

void Weights::read(std::span<const WeightRead> reads, TransferDone done,
                   ReadOptions options) const {
  if (!done) detail::throw_invalid("done", "something to call", "an empty function");
  std::vector<FileRead> parts;
  std::vector<std::size_t> from;  // files, each once
  parts.reserve(reads.size());
  for (std::size_t i = 0; i < reads.size(); ++i) {
    parts.push_back(state_->checked(reads[i], fmt::format("reads[{}].", i)));
    from.push_back(state_->tensors[reads[i].tensor].file);
  }
  std::ranges::sort(from);
  from.erase(std::unique(from.begin(), from.end()), from.end());
  state_->queue.read(
      parts,
      [state = state_, from = std::move(from), done = std::move(done)](std::exception_ptr failure) {
        try {
          if (!failure) std::ranges::for_each(from, [&](auto f) { state->check_unchanged(f); });
        } catch (...) {
          failure = std::current_exception();
        }
        done(std::move(failure));
      },
      std::move(options));
}

void Weights::read(std::span<const WeightRead> reads, ReadOptions options) const {
  detail::blocking_transfer(
      [&](TransferDone done) { read(reads, std::move(done), std::move(options)); });
}

void Weights::read(std::size_t tensor, MemoryView to) const {
  const WeightRead whole{.tensor = tensor, .to = to};
  read({&whole, 1});
}

void Weights::check_unchanged(std::size_t file) const {
  metadata(file);  // checks the index
  state_->check_unchanged(file);
}

TensorView view_of(const WeightInfo& tensor, MemoryView memory) {
  const std::string where = "tensor " + detail::in_quotes(tensor.name);
  const auto dtype = dtype_of(tensor.type);
  if (!dtype) {
    detail::throw_invalid(where, "a type that Penstock computes with, to make a view of elements",
                          fmt::format("{}; its bytes can be read", name(tensor.type)));
  }
  if (memory.bytes != tensor.bytes) {
    detail::throw_invalid(where, fmt::format("memory of {} bytes", tensor.bytes),
                          fmt::format("{} bytes", memory.bytes));
  }
  return {memory.data, *dtype, tensor.shape, memory.place};
}

}  // namespace ps
