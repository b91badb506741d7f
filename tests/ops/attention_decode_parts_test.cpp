// How the work of the decode kernels is cut, against the definition of the mask.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <random>
#include <tuple>
#include <vector>

#include "ops/attention/decode_parts.h"

namespace ps::test {
namespace {

using detail::DecodeRun;
using detail::DecodeSequence;
using detail::DecodeShape;
using detail::DecodeWalk;

struct Lengths {
  std::vector<std::int32_t> cu_q, ends, first;
};

DecodeShape shape_of(const Lengths& lengths, std::int32_t rows, std::mt19937& random) {
  const auto reach = [&] {
    return random() % 2 == 0 ? detail::attention_unlimited
                             : static_cast<std::int32_t>(random() % 300);
  };
  DecodeShape shape;
  shape.sequences.count = static_cast<std::int32_t>(lengths.ends.size());
  shape.sequences.q_rows = shape.sequences.max_q = lengths.cu_q.back();
  shape.sequences.k_rows = shape.sequences.max_k = rows;
  shape.sequences.cu_q = lengths.cu_q.data();
  shape.sequences.lengths_k = lengths.ends.data();
  shape.sequences.first_k = lengths.first.data();
  shape.reach = {reach(), reach()};
  shape.heads_k = 1 + static_cast<std::int32_t>(random() % 3);
  shape.group = 1 + static_cast<std::int32_t>(random() % 9);
  shape.keys = 32 << random() % 3;
  shape.most_row_tiles = 1 << random() % 3;
  shape.aligned = random() % 2 == 0;
  shape.chunked = random() % 2 == 0;
  return shape;
}

Lengths random_lengths(std::int32_t rows, std::mt19937& random) {
  Lengths lengths{.cu_q = {0}, .ends = {}, .first = {}};
  for (auto b = 1 + random() % 6; b > 0; --b) {
    lengths.cu_q.push_back(lengths.cu_q.back() + static_cast<std::int32_t>(random() % 18));
    const auto end = random() % (static_cast<std::uint32_t>(rows) + 1);
    lengths.ends.push_back(static_cast<std::int32_t>(end));
    lengths.first.push_back(random() % 2 == 0 ? 0
                                              : static_cast<std::int32_t>(random() % (end + 1)));
  }
  return lengths;
}

std::int64_t total_of(const DecodeShape& shape) {
  std::int64_t total = 0;
  for (std::int32_t b = 0; b < shape.sequences.count; ++b) total += shape.pieces(shape(b));
  return total;
}

DecodeWalk walk_of(const DecodeShape& shape, std::int64_t begin, std::int64_t end) {
  std::int32_t b = 0;
  for (; b + 1 < shape.sequences.count && begin >= shape.pieces(shape(b)); ++b) {
    begin -= shape.pieces(shape(b));
    end -= shape.pieces(shape(b));
  }
  return {shape, b, begin, end - begin};
}

TEST(DecodeParts, CutsAreEven) {
  for (std::int64_t total = 1; total < 90; ++total) {
    for (std::int32_t parts = 1; parts <= total && parts < 20; ++parts) {
      EXPECT_EQ(detail::decode_cut(total, parts, 0), 0);
      EXPECT_EQ(detail::decode_cut(total, parts, parts), total);
      for (std::int32_t part = 0; part < parts; ++part) {
        const std::int64_t begin = detail::decode_cut(total, parts, part);
        const std::int64_t end = detail::decode_cut(total, parts, part + 1);
        EXPECT_GE(end - begin, total / parts);
        EXPECT_LE(end - begin, (total + parts - 1) / parts);
        for (std::int64_t piece = begin; piece < end; ++piece) {
          EXPECT_EQ(detail::decode_part_of(total, parts, piece), part);
        }
      }
    }
  }
  // 2^24 sequences of 2^22 blocks.
  constexpr std::int64_t most = std::int64_t{1} << 46;
  EXPECT_EQ(detail::decode_cut(most, 512, 511), most / 512 * 511);
  EXPECT_EQ(detail::decode_part_of(most, 512, most - 1), 511);
}

// Every query has each of its keys in exactly one run of its item.
TEST(DecodeParts, RunsHaveEveryKeyOnce) {
  for (std::uint32_t seed = 1; seed <= 150; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    const std::int32_t rows = seed % 5 == 0 ? 40000 : 700;
    const Lengths lengths = random_lengths(rows, random);
    const DecodeShape shape = shape_of(lengths, rows, random);
    const std::int64_t total = total_of(shape);
    if (total == 0) continue;
    const auto parts = static_cast<std::int32_t>(
        std::min<std::int64_t>(total, 1 + static_cast<std::int64_t>(random() % 40)));
    // Blocks of every item so far, which come in order.
    std::map<std::tuple<std::int32_t, std::int32_t, std::int32_t>, std::int32_t> reached;
    for (std::int32_t part = 0; part < parts; ++part) {
      const std::int64_t begin = detail::decode_cut(total, parts, part);
      DecodeWalk walk = walk_of(shape, begin, detail::decode_cut(total, parts, part + 1));
      DecodeRun run;
      while (walk.next(run)) {
        const DecodeSequence& sequence = walk.sequence();
        ASSERT_LT(run.head, shape.heads_k);
        ASSERT_LT(run.tile, sequence.tiles);
        ASSERT_LT(run.begin, run.end);
        const auto [item, is_new] =
            reached.try_emplace({run.sequence, run.head, run.tile}, sequence.first_block);
        ASSERT_EQ(run.is_first, is_new);
        ASSERT_EQ(run.begin, item->second);
        item->second = run.end;
        ASSERT_EQ(run.is_last, run.end == sequence.first_block + sequence.blocks);
        if (shape.chunked) {
          ASSERT_LT(run.piece, detail::attention_decode_chunks);
          continue;
        }
        // Only the last run of a part may leave an item to others.
        ASSERT_TRUE(run.is_last || walk.left() == 0);
      }
    }
    for (std::int32_t b = 0; b < shape.sequences.count; ++b) {
      const DecodeSequence sequence = shape(b);
      const std::int32_t queries = sequence.at.q_length;
      EXPECT_GE(sequence.tiles * sequence.tile_rows(), queries * shape.group);
      for (std::int32_t head = 0; head < shape.heads_k; ++head) {
        for (std::int32_t tile = 0; tile < sequence.tiles; ++tile) {
          EXPECT_EQ(reached.at({b, head, tile}), sequence.first_block + sequence.blocks);
        }
      }
      for (std::int32_t i = 0; i < queries; ++i) {
        const detail::AttentionKeys own =
            detail::attention_keys(i, queries, sequence.at.k_length, shape.reach);
        if (own.begin >= own.end) continue;
        EXPECT_GE(own.begin + sequence.shift, sequence.first_block * shape.keys);
        EXPECT_LE(own.end + sequence.shift, (sequence.first_block + sequence.blocks) * shape.keys);
      }
      EXPECT_TRUE(!shape.aligned || (sequence.at.k_begin - sequence.shift) % shape.keys == 0);
    }
  }
}

// Computes the sums of the numbers of the keys that every row attends to, as the kernels compute
// theirs: each part on its own, with the workspace in which the combination finds the rest.
class SumsOfKeys {
 public:
  SumsOfKeys(const DecodeShape& shape, std::int32_t parts) : shape_(shape), parts_(parts) {
    const std::int64_t queries = shape.sequences.q_rows, group = shape.group;
    const auto space = detail::attention_decode_space(queries * shape.heads_k * group, group,
                                                      shape.sequences.max_q, shape.sequences.max_k,
                                                      8, shape.chunked);
    rows_ = {.tile_rows = space.tile_rows, .chunks = space.chunks};
    partials_.resize((space.sums - space.stats) / 8, NAN);
    results_.resize(static_cast<std::size_t>(queries * shape.heads_k * group), NAN);
  }

  void compute() {
    const std::int64_t total = total_of(shape_);
    std::vector<detail::DecodeJoint> joints;
    for (std::int32_t part = 0; part < parts_; ++part) {
      const std::int64_t begin = detail::decode_cut(total, parts_, part);
      const std::int64_t end = detail::decode_cut(total, parts_, part + 1);
      DecodeWalk walk = walk_of(shape_, begin, end);
      DecodeRun run;
      while (walk.next(run)) compute(part, walk.sequence(), run);
      joints.push_back(detail::decode_joint(total, parts_, end, run));
    }
    if (shape_.chunked) return combine_chunks();
    for (std::int32_t part = 0; part < parts_; ++part) {
      const detail::DecodeJoint& joint = joints[static_cast<std::size_t>(part)];
      if (joint.sequence < 0) continue;
      const DecodeSequence sequence = shape_(joint.sequence);
      for (std::int32_t row = 0; row < sequence.rows_of(joint.tile, shape_.group); ++row) {
        double& result = result_of(sequence, joint.head, sequence.first_row(joint.tile) + row);
        ASSERT_TRUE(std::isnan(result)) << "stored twice";
        result = 0;
        for (std::int32_t i = 0; i <= joint.last_part - part; ++i) {
          result += partial(rows_.of_part(part + i, i == 0, row));
        }
      }
    }
  }

  // Of a query of a query head of a head of k.
  double result(const DecodeSequence& sequence, std::int32_t head, std::int32_t row) {
    return result_of(sequence, head, row);
  }

 private:
  void compute(std::int32_t part, const DecodeSequence& sequence, const DecodeRun& run) {
    for (std::int32_t row = 0; row < sequence.rows_of(run.tile, shape_.group); ++row) {
      const std::int32_t index = sequence.first_row(run.tile) + row;
      const detail::AttentionKeys own = detail::attention_keys(
          index / shape_.group, sequence.at.q_length, sequence.at.k_length, shape_.reach);
      double sum = 0;
      for (std::int32_t block = run.begin; block < run.end; ++block) {
        const std::int32_t first = sequence.first_key(block, shape_.keys);
        for (std::int32_t key = first; key < first + shape_.keys; ++key) {
          if (key >= own.begin && key < own.end) sum += key + 1;
        }
      }
      double& to =
          run.is_whole()
              ? result_of(sequence, run.head, index)
              : partial(rows_.of_run(part, run, row, number_of(sequence, run.head, index)));
      ASSERT_TRUE(std::isnan(to)) << "stored twice";
      to = sum;
    }
  }

  void combine_chunks() {
    for (std::int32_t b = 0; b < shape_.sequences.count; ++b) {
      const DecodeSequence sequence = shape_(b);
      if (sequence.pieces == 1) continue;
      for (std::int32_t head = 0; head < shape_.heads_k; ++head) {
        for (std::int32_t row = 0; row < sequence.at.q_length * shape_.group; ++row) {
          double& result = result_of(sequence, head, row);
          ASSERT_TRUE(std::isnan(result)) << "stored twice";
          result = 0;
          for (std::int32_t i = 0; i < sequence.pieces; ++i) {
            result += partial(rows_.of_chunk(number_of(sequence, head, row), i));
          }
        }
      }
    }
  }

  // Of a row of a sequence and a head of k, among all rows of the result.
  std::int64_t number_of(const DecodeSequence& sequence, std::int32_t head,
                         std::int32_t row) const {
    const std::int32_t query = row / shape_.group;
    const std::int64_t query_head = std::int64_t{head} * shape_.group + row % shape_.group;
    return query_head * shape_.sequences.q_rows + sequence.at.q_begin + query;
  }
  double& result_of(const DecodeSequence& sequence, std::int32_t head, std::int32_t row) {
    return results_.at(static_cast<std::size_t>(number_of(sequence, head, row)));
  }
  double& partial(std::int64_t row) { return partials_.at(static_cast<std::size_t>(row)); }

  const DecodeShape& shape_;
  std::int32_t parts_;
  detail::DecodeRows rows_;
  std::vector<double> partials_, results_;  // NaN: not stored
};

// Whatever the cuts, parts and combination give every row all of its keys once.
TEST(DecodeParts, PartsAddUpToTheWhole) {
  for (std::uint32_t seed = 1; seed <= 200; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    const std::int32_t rows = seed % 5 == 0 ? 20000 : 700;
    const Lengths lengths = random_lengths(rows, random);
    const DecodeShape shape = shape_of(lengths, rows, random);
    const std::int64_t total = total_of(shape);
    if (total == 0) continue;
    const auto parts = static_cast<std::int32_t>(
        std::min<std::int64_t>(total, 1 + static_cast<std::int64_t>(random() % 40)));
    SumsOfKeys sums(shape, parts);
    ASSERT_NO_FATAL_FAILURE(sums.compute());
    for (std::int32_t b = 0; b < shape.sequences.count; ++b) {
      const DecodeSequence sequence = shape(b);
      for (std::int32_t row = 0; row < sequence.at.q_length * shape.group; ++row) {
        const detail::AttentionKeys own = detail::attention_keys(
            row / shape.group, sequence.at.q_length, sequence.at.k_length, shape.reach);
        const double first = own.begin + 1, last = std::max(own.begin, own.end);
        const double wanted = own.begin < own.end ? (first + last) * (last - first + 1) / 2 : 0;
        for (std::int32_t head = 0; head < shape.heads_k; ++head) {
          ASSERT_EQ(sums.result(sequence, head, row), wanted)
              << "sequence " << b << ", head " << head << ", row " << row;
        }
      }
    }
  }
}

TEST(DecodeParts, ChunksDependOnNoOtherSequence) {
  for (std::uint32_t seed = 1; seed <= 60; ++seed) {
    std::mt19937 random(seed);
    const Lengths lengths = random_lengths(30000, random);
    DecodeShape shape = shape_of(lengths, 30000, random);
    shape.chunked = true;
    for (std::size_t b = 0; b < lengths.ends.size(); ++b) {
      const Lengths alone{
          {0, lengths.cu_q[b + 1] - lengths.cu_q[b]}, {lengths.ends[b]}, {lengths.first[b]}};
      DecodeShape other = shape;
      other.sequences.count = 1;
      other.sequences.cu_q = alone.cu_q.data();
      other.sequences.lengths_k = alone.ends.data();
      other.sequences.first_k = alone.first.data();
      const DecodeSequence in = shape(static_cast<std::int32_t>(b)), out = other(0);
      EXPECT_EQ(in.blocks, out.blocks);
      EXPECT_EQ(in.piece_blocks, out.piece_blocks);
      EXPECT_EQ(in.row_tiles, out.row_tiles);
    }
  }
}

// The workspace has a row for every chunk.
TEST(DecodeParts, TheWorkspaceHoldsAllChunks) {
  for (std::int32_t length = 0; length < 70000; length += 61) {
    for (const std::int32_t first : {0, 1, 127}) {
      for (const std::int32_t keys : {32, 64, 128}) {
        if (first > length) continue;
        const std::vector<std::int32_t> begins{first};
        DecodeShape shape;
        shape.sequences = {.count = 1,
                           .q_rows = 1,
                           .k_rows = length,
                           .max_q = 1,
                           .max_k = length,
                           .cu_q = nullptr,
                           .cu_k = nullptr,
                           .first_k = begins.data(),
                           .lengths_k = nullptr};
        shape.keys = keys;
        shape.aligned = shape.chunked = true;
        const auto space = detail::attention_decode_space(1, 1, 1, length, 64, true);
        EXPECT_LE(shape(0).pieces, space.chunks) << length << " from " << first;
      }
    }
  }
}

TEST(DecodeParts, EndWhereItemsDoIfThatCostsFewParts) {
  EXPECT_EQ(detail::decode_parts(128, 264), 256);  // two parts per item
  EXPECT_EQ(detail::decode_parts(8, 264), 264);
  EXPECT_EQ(detail::decode_parts(512, 264), 256);  // two items per part
  EXPECT_EQ(detail::decode_parts(200, 264), 264);  // 200 parts would leave too much of the GPU idle
  EXPECT_EQ(detail::decode_parts(0, 264), 264);
  for (std::int32_t most = 1; most < 600; ++most) {
    for (std::int64_t items = 1; items < 1000; items += 7) {
      const std::int32_t parts = detail::decode_parts(items, most);
      EXPECT_LE(parts, most);
      EXPECT_GE(parts, most - most / 16);
    }
  }
}

TEST(DecodeParts, BlocksOfThreadsAreAtLeastOneAndAtMostAsManyAsFit) {
  const std::vector<std::int32_t> ends{3, 40};
  DecodeShape shape;
  shape.sequences = {.count = 2, .q_rows = 1, .k_rows = 40, .max_q = 1, .max_k = 40};
  for (const bool several_lengths : {false, true}) {
    shape.sequences.lengths_k = several_lengths ? ends.data() : nullptr;
    EXPECT_EQ(detail::decode_blocks(shape, 0), 1) << "the launch is refused, and says why";
    EXPECT_EQ(detail::decode_blocks(shape, 264), 264);
    EXPECT_EQ(detail::decode_blocks(shape, 5000), detail::attention_decode_parts);
  }
  shape.heads_k = 64;
  shape.sequences.lengths_k = nullptr;
  EXPECT_EQ(detail::decode_blocks(shape, 264), 256) << "two parts per item";
}

TEST(DecodeParts, SlotsOfAnItem) {
  // Parts of 5 pieces in items of 12: the second item begins in part 2 and ends in part 4.
  EXPECT_EQ(detail::decode_slot(2, true), 5);
  EXPECT_EQ(detail::decode_slot(3, false), 6);
  EXPECT_EQ(detail::decode_part_of(60, 12, 12), 2);
  EXPECT_EQ(detail::decode_part_of(60, 12, 23), 4);
}

}  // namespace
}  // namespace ps::test
