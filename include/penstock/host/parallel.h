// Work on all cores: one loop, or many pieces that need not wait for each other.
#pragma once

#include <cstddef>
#include <functional>

namespace ps {

// Threads that parallel_ranges() uses at most, the calling one among them: the machine's cores.
std::size_t parallel_threads();

// Calls work(begin, end) for ranges that together are [0, count), each once, on all cores; returns
// when all are done. Ranges begin at multiples of `grain` (1 or more) and are a good deal longer
// where count allows it; the calling thread takes part, and does all of it alone where there are
// fewer than two grains. Throws InvalidArgument on a grain of 0, and the first exception of `work`
// once no thread is in it any more; ranges not yet begun are then left out. Several calls at once
// share the threads, and `work` may itself call it.
void parallel_ranges(std::size_t count, std::size_t grain,
                     const std::function<void(std::size_t begin, std::size_t end)>& work);

// Has one of those threads call `work` some time soon, and returns; pieces begin in the order in
// which they came, on all cores but two, which are left to those who post. `work` must not throw.
// Throws what starting a thread does where there is none yet.
void parallel_post(std::function<void()> work);

}  // namespace ps
