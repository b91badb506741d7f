// The arguments of append_kv(): checked once, and turned into work.
#pragma once

#include "ops/append_kv/work.h"
#include "penstock/host/device.h"
#include "penstock/host/stream.h"

namespace ps::appending {

// All of the work. Throws InvalidArgument naming the argument.
detail::AppendWork checked(const AppendKVOptions& options, const Device& device);

// Of (sequences, rows, heads, dimension) or (rows, heads, dimension).
detail::AppendRows rows_of(const TensorView& view);

// Throws InvalidArgument if a new row has no place in the cache or no position in the tables. The
// arrays of `work` that are read on the stream are copies that the host can read.
void check_places(const detail::AppendWork& work);

// The same, of the work as it is: waits for these arrays on the stream.
void check_places_on(const AppendKVOptions& options, detail::AppendWork work, const Stream& stream);

}  // namespace ps::appending
