// The arguments of attention(): checked once, and turned into work.
#pragma once

#include "ops/attention/shapes.h"
#include "ops/attention/work.h"
#include "penstock/host/device.h"
#include "penstock/host/stream.h"

namespace ps::attending {

// All of the work. `memory` is null if the workspace is to be allocated or not needed. Throws
// InvalidArgument naming the argument.
detail::AttentionWork checked(const AttentionOptions& options, const Device& device,
                              const Names& names = {});

// What the size of the workspace depends on, without a device: of the work, its type, kernel, most
// queries of a sequence and the layouts. Throws InvalidArgument naming the argument.
detail::AttentionWork sized_work(const AttentionOptions& options, const Names& names = {});

// Throws if the kernel named does not run on the device, or does not take the call.
void require_kernel(const detail::AttentionWork& work, const Device& device);

// Waits for the arrays of lengths and pages on the stream and checks them.
void check_lengths_on(const AttentionOptions& options, detail::AttentionSequences sequences,
                      detail::AttentionPages pages, const Stream& stream);

}  // namespace ps::attending
