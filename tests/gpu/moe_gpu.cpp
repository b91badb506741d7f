#include "gpu/moe_gpu.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>

#include "gpu/recording.h"
#include "penstock/host/cuda.h"

namespace ps::test {

std::vector<std::uint8_t> MoeCallsGpu::bits(const MoeNumbers& numbers, const MoeStorage& storage,
                                            MoeKernel kernel) {
  MoeArrays arrays(numbers, storage);
  OnGpu there(arrays, gpu, *stream);
  there.options().kernel = kernel;
  moe(there.options(), *stream);
  there.fetch();
  EXPECT_EQ(wrong(arrays.out(), expected(numbers, arrays.present())), "");
  return bits_of(arrays);
}

void MoeCallsGpu::expect_parts_are_the_whole(const MoeNumbers& numbers, MoeStorage storage,
                                             MoeKernel kernel, std::mt19937& random) {
  constexpr std::int64_t slots = 4;
  const std::vector<std::uint8_t> whole = bits(numbers, storage, kernel);
  std::vector<std::int32_t> order(static_cast<std::size_t>(numbers.shape.experts));
  std::iota(order.begin(), order.end(), 0);
  std::shuffle(order.begin(), order.end(), random);
  storage.slots.assign(order.size(), -1);
  storage.slot_count = slots;
  MoeArrays parts(numbers, storage);
  OnGpu all(parts, gpu, *stream);
  all.options().kernel = kernel;
  moe_plan(all.options(), *stream);
  std::vector<std::unique_ptr<MoeArrays>> arrays;
  std::vector<std::unique_ptr<OnGpu>> calls;
  for (std::size_t done = 0; done < order.size();) {
    arrays.push_back(std::make_unique<MoeArrays>(numbers, storage));
    const std::size_t now = std::min<std::size_t>(1 + random() % slots, order.size() - done);
    for (std::size_t i = 0; i < now; ++i) {
      arrays.back()->put(order[done + i], static_cast<std::int64_t>(i));
    }
    done += now;
    calls.push_back(std::make_unique<OnGpu>(*arrays.back(), gpu, *stream));
    const MoeOptions& held = calls.back()->options();
    MoeOptions part = all.options();
    part.gate_up = held.gate_up;
    part.down = held.down;
    part.gate_up_bias = held.gate_up_bias;
    part.down_bias = held.down_bias;
    part.slots = held.slots;
    moe_experts(part, *stream);
  }
  moe_combine(all.options(), *stream);
  all.fetch();
  EXPECT_TRUE(bits_of(parts) == whole) << "the bits differ";
  EXPECT_TRUE(all.surroundings_untouched());
}

void MoeCallsGpu::expect_replays(const MoeNumbers& numbers, MoeKernel kernel) {
  MoeArrays arrays(numbers);
  OnGpu there(arrays, gpu, *stream);
  there.options().kernel = kernel;
  moe(there.options(), *stream);  // loads the kernels
  there.fetch();
  const std::vector<std::uint8_t> first = bits_of(arrays);
  there.poison_results();
  stream->synchronize();
  Recording recording(cuda_stream(*stream));
  moe(there.options(), *stream);
  for (int replay = 0; replay < 2; ++replay) recording.replay(cuda_stream(*stream));
  there.fetch();
  EXPECT_EQ(bits_of(arrays), first);
}

void MoeCallsGpu::expect_tokens_are_independent(MoeKernel kernel) {
  std::mt19937 random(9);
  const MoeShape shape{.tokens = 300, .choices = 2, .hidden = 200, .width = 136, .experts = 3};
  const MoeNumbers all(shape, random);
  const auto compute = [&](MoeArrays& arrays) {
    OnGpu there(arrays, gpu, *stream);
    there.options().kernel = kernel;
    there.options().batch_invariant = true;
    moe(there.options(), *stream);
    there.fetch();
  };
  MoeArrays together(all);
  compute(together);
  for (const std::int64_t token : {0, 7, 299}) {
    MoeNumbers one = all;
    one.shape.tokens = 1;
    one.x.assign(all.x.begin() + token * shape.hidden, all.x.begin() + (token + 1) * shape.hidden);
    one.ids.assign(all.ids.begin() + token * 2, all.ids.begin() + token * 2 + 2);
    one.weights.assign(all.weights.begin() + token * 2, all.weights.begin() + token * 2 + 2);
    MoeArrays alone(one);
    compute(alone);
    for (std::int64_t i = 0; i < shape.hidden; ++i) {
      ASSERT_EQ(alone.out().bits({0, i}), together.out().bits({token, i})) << token << ", " << i;
    }
  }
}

void MoeCallsGpu::expect_nan_stays_in_its_token(DType type, const MoeStorage& storage,
                                                MoeKernel kernel) {
  constexpr std::int64_t tokens = 200, hidden = 72, token = 77;
  std::mt19937 random(16);
  MoeNumbers numbers({.tokens = tokens, .choices = 2, .hidden = hidden, .width = 40, .type = type},
                     random);
  const MoeExpected right = expected(numbers);
  std::fill_n(numbers.x.begin() + token * hidden, hidden, std::nanf(""));
  MoeArrays arrays(numbers, storage);
  OnGpu there(arrays, gpu, *stream);
  there.options().kernel = kernel;
  moe(there.options(), *stream);
  there.fetch();
  for (std::int64_t i = 0; i < tokens * hidden; ++i) {
    const double got =
        decoded(static_cast<std::uint32_t>(arrays.out().bits({i / hidden, i % hidden})), type);
    if (i / hidden == token) {
      ASSERT_TRUE(std::isnan(got)) << i;
    } else {
      ASSERT_LE(std::abs(got - right.out[static_cast<std::size_t>(i)]), right.tolerance) << i;
    }
  }
}

}  // namespace ps::test
