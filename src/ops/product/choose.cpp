// Which kernels of the matrix product this CPU can run.
#include "ops/product/kernel.h"

#if defined(__x86_64__) && defined(__GNUC__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace ps::detail {
namespace {

#if defined(__x86_64__) && defined(__GNUC__)

bool has_avx2() {
  unsigned a = 0, b = 0, c = 0, d = 0;  // clang 14 has no name for f16c
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
         __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_F16C) != 0;
}

bool has_avx512() {
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
}

bool has_avx512_bf16() { return has_avx512() && __builtin_cpu_supports("avx512bf16"); }

// A process has to ask the kernel for the tile registers, once for all its threads.
bool has_amx() {
  constexpr unsigned amx_bf16 = 1U << 22, amx_tile = 1U << 24;  // in edx of leaf 7
  constexpr long request_permission = 0x1023, tile_data = 18;
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (!has_avx512_bf16() || __get_cpuid_count(7, 0, &a, &b, &c, &d) == 0) return false;
  if ((d & amx_bf16) == 0 || (d & amx_tile) == 0) return false;
#if defined(__linux__)
  return syscall(SYS_arch_prctl, request_permission, tile_data) == 0;
#else
  return false;
#endif
}

#else

bool has_avx2() { return false; }
bool has_avx512() { return false; }
bool has_avx512_bf16() { return false; }
bool has_amx() { return false; }

#endif

}  // namespace

const ProductKernel* product_kernel(InstructionSet set, DType type) {
  static const bool avx2 = has_avx2(), avx512 = has_avx512(), avx512_bf16 = has_avx512_bf16(),
                    amx = has_amx();
  switch (set) {
    case InstructionSet::baseline:
      return product_baseline(type);
    case InstructionSet::avx2:
      return avx2 ? product_avx2(type) : nullptr;
    case InstructionSet::avx512:
      return avx512 ? product_avx512(type) : nullptr;
    case InstructionSet::avx512_bf16:
      return avx512_bf16 ? product_avx512_bf16(type) : nullptr;
    case InstructionSet::amx:
      break;
  }
  return amx ? product_amx(type) : nullptr;
}

const ProductKernel& best_product_kernel(DType type) {
  for (const InstructionSet set : {InstructionSet::amx, InstructionSet::avx512_bf16,
                                   InstructionSet::avx512, InstructionSet::avx2}) {
    const ProductKernel* kernel = product_kernel(set, type);
    if (kernel != nullptr) return *kernel;
  }
  return *product_baseline(type);
}

}  // namespace ps::detail
