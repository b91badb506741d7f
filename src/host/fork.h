// Threads do not survive a fork: a child has the library's memory and none of its threads.
#pragma once

namespace ps::detail {

// Whether this process was forked after the library was first used.
bool forked() noexcept;

// Throws Unsupported in such a process, where waiting for a thread would never end. Called by
// whatever is about to use one, or a device.
void refuse_after_fork();

}  // namespace ps::detail
