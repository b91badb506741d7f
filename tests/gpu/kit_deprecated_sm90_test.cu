// Deprecated names of the kit still compile and mean the same as the new ones. Remove with them.
#include <gtest/gtest.h>

#include <type_traits>

#include "penstock/kit/gemm/config.cuh"

#pragma nv_diagnostic push
#pragma nv_diag_suppress 1444
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"

namespace {

using Config = ps::kit::GemmConfig<__nv_bfloat16, 128, 128, 4>;

TEST(KitDeprecated, NamesOfTheRing) {
  static_assert(std::is_same_v<Config::StageRing, Config::TileRing>);
  EXPECT_EQ(Config::stage_bytes, Config::slot_bytes);
}

}  // namespace

#pragma GCC diagnostic pop
#pragma nv_diagnostic pop
