// The arguments of append_attention(): checked once, and turned into the work of its two operators.
#pragma once

#include <cstddef>

#include "ops/append_kv/work.h"
#include "ops/attention/work.h"
#include "penstock/host/device.h"
#include "penstock/ops/append_attention.h"

namespace ps::append_attending {

struct Work {
  detail::AppendWork append{};
  detail::AttentionWork attention{};
  AttentionOptions options{};  // of attention(), with what belongs to append_kv()

  bool rotates_q() const { return append.rotated > 0; }
  // Whether the decode kernels do all of it.
  bool is_fused() const { return attention.decodes(); }
  // Of the rotated q, which only the others store.
  std::size_t rotated_bytes() const;
  // Behind the workspace of attention().
  std::size_t rotated_at() const;
  std::size_t workspace_bytes() const { return rotated_at() + rotated_bytes(); }

  // Lets append_kv() write the rotated q to `memory`, and attention() read it there.
  void rotate_into(std::byte* memory);
};

// Throws InvalidArgument naming the argument. `attention.memory` is null if the workspace is to be
// allocated or not needed.
Work checked(const AppendKVOptions& append, const AttentionOptions& attention,
             const Device& device);

// The size of the workspace, without a device. Throws InvalidArgument naming the argument.
std::size_t workspace_bytes(const AppendKVOptions& append, const AttentionOptions& attention);

}  // namespace ps::append_attending
