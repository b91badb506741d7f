// An expert layer of random numbers on the GPU, for ps::moe() and for its two products alone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "ops/moe/work.h"
#include "penstock/host/buffer.h"
#include "penstock/host/stream.h"
#include "penstock/ops/moe.h"

namespace ladder::moe {

struct Shape {
  std::int64_t tokens = 0, hidden = 0, width = 0, experts = 0, choices = 0;

  double flops() const {
    return 6.0 * static_cast<double>(tokens * choices) * static_cast<double>(hidden * width);
  }
};

class Layer {
 public:
  // bf16. Every token chooses different experts at random. Throws InvalidArgument unless each
  // number is at least 1 and the choices are at most the experts.
  Layer(const ps::Stream& stream, const Shape& shape);

  const Shape& shape() const { return shape_; }
  const ps::Stream& stream() const { return stream_; }

  // Overwrites the result, and those of the single products, with NaN.
  void forget_results() const;

  // Enqueues ps::moe(). Throws as it does.
  void run(ps::MoeKernel kernel) const;

  // Enqueues the same with other kernels for the two products: `products` enqueues the
  // up-projection and the down-projection of the items that MoeKernel::sequential lists.
  template <class Products>
  void run_with(const Products& products) const {
    run(ps::MoeKernel::sequential);
    forget_results();
    put_items_back();
    products(work());
    combine();
  }

  // The bits of the result. Synchronises.
  std::vector<std::uint16_t> result() const;
  // The number of tiles of the up-projection and of the down-projection. Synchronises.
  std::vector<unsigned> tiles() const;

 private:
  ps::MoeOptions options() const;
  ps::detail::MoeWork work() const;
  void put_items_back() const;
  void combine() const;
  void choose_experts();

  ps::Stream stream_;
  Shape shape_;
  ps::detail::MoeWorkspace space_;
  ps::DeviceBuffer x_, gate_up_, down_, ids_, weights_, out_, memory_;
};

}  // namespace ladder::moe
