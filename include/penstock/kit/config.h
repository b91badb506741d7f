// Marks functions that kernels and host code may call.
#pragma once

#if defined(__CUDACC__)
#define PENSTOCK_HD __host__ __device__
#else
#define PENSTOCK_HD
#endif
