#include "moe/support/rung.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <utility>

#include "moe/support/tile_loop.h"
#include "ops/moe/workspace.h"
#include "penstock/base/text_file.h"
#include "penstock/host/cuda.h"
#include "penstock/measure/page.h"
#include "penstock/measure/report.h"
#include "support/interleaved.h"
#include "support/kernel_page.h"

namespace ladder::moe {
namespace {

constexpr Shape qwen3{.tokens = 16384, .hidden = 2048, .width = 768, .experts = 128, .choices = 8};
// Several tiles for each block of an H200.
constexpr Shape quick{.tokens = 4096, .hidden = 1024, .width = 512, .experts = 32, .choices = 8};

constexpr unsigned step_columns = 64;  // of K: GemmConfig::tile_k
constexpr unsigned shown_tiles = 3;    // on a page

std::vector<Products>& registered() {
  static std::vector<Products> all;
  return all;
}

Shape shape_of(const ladder::Context& context) {
  const std::vector<std::int64_t>& given = context.shape();
  if (given.empty()) return context.quick() ? quick : qwen3;
  if (given.size() != 5) {
    ps::detail::throw_invalid("--shape", "five numbers: T,d,n,E,K",
                              fmt::format("{}", given.size()));
  }
  return {given[0], given[1], given[2], given[3], given[4]};
}

std::string name_of(const Shape& shape) {
  return fmt::format("({}, {}, {}, {}, {})", shape.tokens, shape.hidden, shape.width, shape.experts,
                     shape.choices);
}

// What all rungs share: the layer, and its result by ps::moe().
struct Problem {
  explicit Problem(ladder::Context& context)
      : layer(ps::Stream(context.device()), shape_of(context)) {
    layer.forget_results();
    layer.run(ps::MoeKernel::large);
    expected = layer.result();
    if (std::ranges::find(expected, std::uint16_t{0xffff}) != expected.end()) {
      throw std::runtime_error("ps::moe() left elements of its result unwritten");
    }
  }

  void check(const std::string& what) const {
    const std::vector<std::uint16_t> got = layer.result();
    const auto at = std::ranges::mismatch(got, expected).in1;
    if (at == got.end()) return;
    const auto index = at - got.begin();
    throw std::runtime_error(fmt::format("{} differ from ps::moe() in element ({}, {})", what,
                                         index / layer.shape().hidden,
                                         index % layer.shape().hidden));
  }

  Layer layer;
  std::vector<std::uint16_t> expected;
};

unsigned steps_of(std::int64_t k) {
  return static_cast<unsigned>((k + step_columns - 1) / step_columns);
}

// Room for three times the mean number of steps per block: blocks with low tiles take more of them.
TraceRoom room_for(const Layer& layer, std::int64_t columns, unsigned steps) {
  const Shape& shape = layer.shape();
  const std::int64_t tiles =
      columns * ps::detail::moe_most_tiles(shape.tokens * shape.choices, shape.experts);
  const std::int64_t blocks = layer.stream().device().capabilities().multiprocessors;
  const std::int64_t spans = 3 * (tiles / blocks + 1) * steps;
  return {.blocks = 1, .capacity = static_cast<unsigned>(std::min<std::int64_t>(spans, 1 << 17))};
}

ps::KernelRoles all_blocks(const ps::KernelTrace& trace) {
  ps::KernelTraceOptions options;
  for (const ps::KernelTrace::Block& block : trace.blocks()) {
    if (block.aligned) options.blocks.push_back(block.block);
  }
  return trace.roles(options);
}

struct Shown {
  ps::PageRun run;
  std::string sentence;
};

// A few tiles of one block, and the shares of all blocks.
Shown shown(const std::string& product, const ps::KernelTrace& trace, unsigned steps) {
  const ps::KernelRoles roles = all_blocks(trace);
  if (roles.spans.empty()) throw std::runtime_error("the trace of " + product + " has no records");
  ps::KernelRoles part = middle_tiles(roles, roles.spans.front().block, steps, shown_tiles);
  const ps::TimelineEntry bar{.engine = ps::Engine::compute,
                              .stage = product,
                              .begin_ns = part.kernel.begin_ns,
                              .end_ns = part.kernel.end_ns};
  return {.run = {.name = product,
                  .entries = {bar},
                  .kernels = {{.name = product, .stage = product, .item = 0, .roles = part}}},
          .sentence = as_sentence(product, loop_shares(roles))};
}

void write_page(const ladder::Context& context, const Problem& problem, const Products& products) {
  const ProductTraces traces = run_traced(problem.layer, products);
  problem.check("results of the traced products");
  const Shape& shape = problem.layer.shape();
  const Shown up = shown("up", traces.up, up_steps(shape));
  const Shown down = shown("down", traces.down, down_steps(shape));

  const std::string title = fmt::format("Inside the products of moe: {}", products.name);
  const std::string note = fmt::format(
      "Layer {}, of which the page shows {} tiles of one block. The traced products gave the same "
      "bits as ps::moe(). Over all blocks, {} {}",
      name_of(shape), shown_tiles, up.sentence, down.sentence);
  const ps::PageRun runs[] = {up.run, down.run};
  const std::string json = ps::trace_json(title, runs, context.device(), note);
  const std::string file = fmt::format("moe_{}", products.name);
  const std::filesystem::path folder = context.trace();
  ps::Page page = ps::make_page(title);
  ps::add_document(page, json, file + ".json");
  std::filesystem::create_directories(folder);
  ps::write_text(folder / (file + ".json"), json + "\n");
  ps::write_text(folder / (file + ".html"), page.html());
  std::fprintf(stderr, "wrote %s\n%s\n", (folder / (file + ".html")).c_str(), note.c_str());
}

}  // namespace

const std::vector<Products>& all_products() { return registered(); }

detail::Registration::Registration(const Products& products) { registered().push_back(products); }

unsigned up_steps(const Shape& shape) { return steps_of(shape.hidden); }
unsigned down_steps(const Shape& shape) { return steps_of(shape.width); }

ProductTraces run_traced(const Layer& layer, const Products& products) {
  const Shape& shape = layer.shape();
  const ps::Stream& stream = layer.stream();
  const TraceMemory up(stream, role_names(),
                       room_for(layer, ps::detail::moe_up_columns(shape.width), up_steps(shape)));
  const TraceMemory down(
      stream, role_names(),
      room_for(layer, ps::detail::moe_down_columns(shape.hidden), down_steps(shape)));
  layer.run_with([&](const ps::detail::MoeWork& work) {
    products.traced(work, stream.device().place(), ps::cuda_stream(stream), up.buffer(),
                    down.buffer());
  });
  return {up.read(stream), down.read(stream)};
}

std::vector<ladder::Row> measure(ladder::Context& context, const Products& products) {
  if (context.device().capabilities().compute_major != 9) {
    return ladder::not_here("needs compute capability 9.0");
  }
  const auto& problem = context.shared<Problem>();
  const Layer& layer = problem.layer;
  layer.forget_results();
  layer.run(products.kernel);
  problem.check(fmt::format("results of '{}'", products.name));
  const std::size_t number = context.profile(layer.stream(), [&] { layer.run(products.kernel); });
  const double seconds = ladder::interleaved_medians(
      layer.stream(), {[&](std::size_t) { layer.run(products.kernel); }},
      {.stop = context.stop()})[0];
  const double flops = layer.shape().flops() / seconds;
  ladder::Row row{.label = name_of(layer.shape()),
                  .work = "moe",
                  .seconds = seconds,
                  .flops = layer.shape().flops(),
                  .number = number,
                  .note = fmt::format("{:.1f} TFLOP/s; {} elements checked", flops * 1e-12,
                                      problem.expected.size())};
  if (!context.trace().empty()) write_page(context, problem, products);
  return {row};
}

}  // namespace ladder::moe
