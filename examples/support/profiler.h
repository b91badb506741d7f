// Marks what a profiler that was told to wait for it looks at.
#pragma once

namespace ladder {

// Throw Unsupported without CUDA, and std::runtime_error if the runtime refuses.
void start_profiler();
void stop_profiler();

}  // namespace ladder
