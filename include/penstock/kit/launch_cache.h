// Remembers what launch.cuh has asked the CUDA runtime about kernels.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>

namespace ps::kit::detail {

// Values by key, in a hash table of fixed size that allocates nothing. Keeps every key until it is
// full; then a new key displaces one. For a single thread.
//
// Hidden like the functions of launch.cuh, as each program and library has caches of its own.
class [[gnu::visibility("hidden")]] LaunchCache {
 public:
  struct Key {
    const void* kernel = nullptr;  // not null
    int device = 0;
    unsigned cluster = 0;
    std::uint64_t threads = 0;  // per block; 0: the kernel's attributes
    std::size_t shared_bytes = 0;

    friend bool operator==(const Key& a, const Key& b) {
      return a.kernel == b.kernel && a.device == b.device && a.cluster == b.cluster &&
             a.threads == b.threads && a.shared_bytes == b.shared_bytes;
    }
  };

  static constexpr std::size_t size = 128;  // keys that are kept

  // Null if the value was never kept, or was displaced.
  const unsigned* find(const Key& key) const {
    const Entry& entry = entries_[place(key)];
    return entry.key == key ? &entry.value : nullptr;
  }
  void keep(const Key& key, unsigned value) { entries_[place(key)] = {key, value}; }

 private:
  struct Entry {
    Key key;  // without a kernel: the entry is free
    unsigned value = 0;
  };

  // The entry that holds the key or, if none does, the one to put it into: the first free one from
  // the key's home on, or its home if all are taken.
  std::size_t place(const Key& key) const {
    const std::size_t home = hash(key) % size;
    for (std::size_t i = 0; i < size; ++i) {
      const std::size_t at = (home + i) % size;
      if (entries_[at].key == key || entries_[at].key.kernel == nullptr) return at;
    }
    return home;
  }

  static std::uint64_t hash(const Key& key) {
    std::uint64_t hash = reinterpret_cast<std::uintptr_t>(key.kernel);
    for (const std::uint64_t part :
         {static_cast<std::uint64_t>(key.device), std::uint64_t{key.cluster}, key.threads,
          static_cast<std::uint64_t>(key.shared_bytes)}) {
      hash = (hash ^ part) * 0x9E3779B97F4A7C15U;
      hash ^= hash >> 32;
    }
    return hash;
  }

  Entry entries_[size];
};

}  // namespace ps::kit::detail
