// What a kernel waited for that never came.
#pragma once

namespace ps::lesson {

enum class Stuck : unsigned {
  nowhere,
  at_a_barrier,
  not_ahead,  // a loader that should have been further ahead of those who compute
};

}  // namespace ps::lesson
