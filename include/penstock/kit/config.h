#pragma once

// Functions that both a kernel and a plain C++ program may call.
#if defined(__CUDACC__)
#define PENSTOCK_HD __host__ __device__
#else
#define PENSTOCK_HD
#endif
