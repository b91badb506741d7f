// The traced products of moe(): the bits of the ordinary ones, and a record of every step.
#include <filesystem>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "gpu/gpu_test.h"
#include "moe/support/layer.h"
#include "moe/support/rung.h"
#include "moe/support/tile_loop.h"
#include "penstock/base/text_file.h"
#include "penstock/base/units.h"
#include "penstock/measure/page.h"
#include "support/ladder.h"
#include "support/temporary_directory.h"

namespace {

using ladder::moe::Layer;
using ladder::moe::Products;

class MoeLadder : public ps::test::GpuTest {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    if (!IsSkipped() && gpu.capabilities().compute_major != 9) {
      GTEST_SKIP() << "needs compute capability 9.0";
    }
  }
};

// The spans of each role of one block, in the order of their begins.
using BlockRoles = std::map<unsigned, std::vector<ps::RoleSpan>>;

std::map<unsigned, BlockRoles> by_block(const ps::KernelTrace& trace) {
  ps::KernelTraceOptions options;
  for (const ps::KernelTrace::Block& block : trace.blocks()) {
    if (block.records == 0) continue;  // it got no tile
    EXPECT_TRUE(block.aligned) << "block " << block.block;
    EXPECT_EQ(block.lost, 0u) << "block " << block.block;
    options.blocks.push_back(block.block);
  }
  std::map<unsigned, BlockRoles> found;
  for (const ps::RoleSpan& span : trace.roles(options).spans) {
    EXPECT_LE(0, span.begin_ns);
    EXPECT_LE(span.begin_ns, span.end_ns);
    EXPECT_LE(span.end_ns, trace.span().end_ns);
    found[span.block][span.role].push_back(span);
  }
  return found;
}

// Every step of every tile of a block was loaded, then multiplied by both consumers, and every tile
// was stored by both; returns the number of tiles.
std::size_t expect_every_step(const BlockRoles& roles, unsigned steps) {
  EXPECT_EQ(roles.size(), 5u) << "a role without records";
  if (roles.size() != 5) return 0;
  const std::vector<ps::RoleSpan>& loads = roles.at(0);
  EXPECT_EQ(loads.size() % steps, 0u);
  for (std::size_t i = 0; i < loads.size(); ++i) EXPECT_EQ(loads[i].tile, i);
  const std::size_t tiles = loads.size() / steps;
  for (const unsigned consumer : {0u, 1u}) {
    SCOPED_TRACE(testing::Message() << "consumer " << consumer + 1);
    const std::vector<ps::RoleSpan>& products = roles.at(1 + 2 * consumer);
    const std::vector<ps::RoleSpan>& stores = roles.at(2 + 2 * consumer);
    EXPECT_EQ(products.size(), loads.size());
    EXPECT_EQ(stores.size(), tiles);
    if (products.size() != loads.size() || stores.size() != tiles) return 0;
    for (std::size_t i = 0; i < products.size(); ++i) {
      EXPECT_EQ(products[i].tile, i);
      EXPECT_LE(loads[i].begin_ns, products[i].begin_ns) << "step " << i;
      if (i > 0) {
        EXPECT_LE(products[i - 1].end_ns, products[i].begin_ns) << "step " << i;
      }
    }
    for (std::size_t tile = 0; tile < tiles; ++tile) {
      const std::size_t last = (tile + 1) * steps - 1;
      EXPECT_EQ(stores[tile].tile, last);
      EXPECT_LE(products[last].end_ns, stores[tile].begin_ns) << "tile " << tile;
      if (last + 1 < products.size()) {
        EXPECT_LE(stores[tile].end_ns, products[last + 1].begin_ns) << "tile " << tile;
      }
    }
  }
  return tiles;
}

void expect_every_tile(const ps::KernelTrace& trace, unsigned steps, std::size_t tiles) {
  std::size_t found = 0;
  for (const auto& [block, roles] : by_block(trace)) {
    SCOPED_TRACE(testing::Message() << "block " << block);
    found += expect_every_step(roles, steps);
  }
  EXPECT_EQ(found, tiles);
}

TEST_F(MoeLadder, TracedProductsHaveTheBitsOfMoeAndRecordEveryStep) {
  ASSERT_EQ(ladder::moe::all_products().size(), 2u);
  const ps::Stream stream(gpu);
  // Tiles of one, two and three times 64 rows; d and n that are not whole steps; as many steps as
  // the ring has slots, and more. The second layer has several tiles per block.
  const ladder::moe::Shape shapes[] = {
      {.tokens = 70, .hidden = 200, .width = 136, .experts = 9, .choices = 2},
      {.tokens = 3000, .hidden = 1032, .width = 520, .experts = 7, .choices = 3}};
  for (const ladder::moe::Shape& shape : shapes) {
    SCOPED_TRACE(testing::Message() << shape.tokens << " tokens");
    const Layer layer(stream, shape);
    for (const Products& products : ladder::moe::all_products()) {
      SCOPED_TRACE(products.name);
      layer.forget_results();
      layer.run(products.kernel);
      const std::vector<std::uint16_t> expected = layer.result();
      const ladder::moe::ProductTraces traces = ladder::moe::run_traced(layer, products);
      EXPECT_TRUE(layer.result() == expected) << "the bits differ";
      const std::vector<unsigned> tiles = layer.tiles();
      {
        SCOPED_TRACE("up");
        expect_every_tile(traces.up, ladder::moe::up_steps(shape), tiles[0]);
      }
      {
        SCOPED_TRACE("down");
        expect_every_tile(traces.down, ladder::moe::down_steps(shape), tiles[1]);
      }
    }
  }
}

// With one slot a load begins when the products of the step before it have been done.
TEST_F(MoeLadder, TracedSequentialProductsDoNotOverlapWithLoads) {
  const ps::Stream stream(gpu);
  const ladder::moe::Shape shape{
      .tokens = 1000, .hidden = 512, .width = 256, .experts = 4, .choices = 2};
  const Layer layer(stream, shape);
  for (const Products& products : ladder::moe::all_products()) {
    if (products.kernel != ps::MoeKernel::sequential) continue;
    layer.run(products.kernel);
    const ladder::moe::ProductTraces traces = ladder::moe::run_traced(layer, products);
    for (const auto& [block, roles] : by_block(traces.up)) {
      const std::vector<ps::RoleSpan>& loads = roles.at(0);
      for (std::size_t i = 0; i + 1 < loads.size(); ++i) {
        for (const unsigned role : {1u, 3u}) {
          EXPECT_LE(roles.at(role).at(i).end_ns, loads[i + 1].begin_ns)
              << "block " << block << ", step " << i;
        }
      }
    }
  }
}

TEST_F(MoeLadder, TracedRungsWritePages) {
  const ps::test::TemporaryDirectory folder;
  ladder::Context context({.device = gpu, .quick = true, .trace = folder.path().string()});
  std::vector<ladder::Rung> rungs = ladder::rungs();
  std::erase_if(rungs, [](const ladder::Rung& rung) { return rung.ladder != "moe"; });
  ASSERT_EQ(rungs.size(), 2u);
  for (const auto& [rung, rows] : climb(context, rungs, [](const auto&, double) {})) {
    ASSERT_EQ(rows.size(), 1u) << rung.name;
    EXPECT_GT(rows[0].seconds, 0) << rung.name;
  }
  for (const Products& products : ladder::moe::all_products()) {
    const std::string name = "moe_" + std::string(products.name);
    EXPECT_TRUE(std::filesystem::exists(folder.path() / (name + ".html"))) << name;
    const std::string json = ps::read_text(folder.path() / (name + ".json"), 64 * ps::MiB);
    const std::vector<ps::PageRun> runs = ps::timelines_in(json, name);
    ASSERT_EQ(runs.size(), 2u) << name;
    for (const ps::PageRun& run : runs) {
      ASSERT_EQ(run.kernels.size(), 1u) << run.name;
      const ladder::moe::LoopShares shares = ladder::moe::loop_shares(run.kernels[0].roles);
      EXPECT_GT(shares.products, 0) << run.name;
      EXPECT_GT(shares.loads, 0) << run.name;
      EXPECT_GT(shares.stores, 0) << run.name;
    }
  }
}

}  // namespace
