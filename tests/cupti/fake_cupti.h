// A CUPTI without a GPU: tests say which work the device did and which records were lost.
#pragma once

#include <cstddef>
#include <cstdint>

extern "C" {

// A kernel enqueued by the calling code; its record is delivered at the next flush.
void fake_cupti_kernel(std::uint64_t begin_ns, std::uint64_t end_ns);
// So many records do not fit into CUPTI's buffers before the next flush.
void fake_cupti_drop(std::size_t records);
// The next buffer ends with a record that CUPTI cannot read.
void fake_cupti_break();
}
