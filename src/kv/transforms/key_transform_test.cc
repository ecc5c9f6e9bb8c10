// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// The key transform against its formulas (key_transform.h) in double, written from the definitions: every row
// turned back by its own position, block means averaged over 64 positions one by one.
#include "kv/transforms/key_transform.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "kv/attention/attention_kernels.h"
#include "kvant/error.h"
#include "tests/support/key_reference.h"
#include "tests/support/seed.h"

namespace kvant {
namespace {

using test::KeyReference;
using test::KeyRows;
using Row = std::vector<double>;
using Shape = test::RopeShape;

constexpr double u = 0x1p-24;  // half a unit in the last place of a float
const Shape kShapes[] = {{"adjacent", 32, 16, true},
                         {"split", 32, 16, false},
                         {"partial_adjacent", 48, 10, true},
                         {"partial_split", 48, 10, false},
                         {"no_pairs", 16, 0, true}};

RopeGeometry RopeOf(const Shape& shape) {
  RopeGeometry rope;
  rope.adjacent_pairs = shape.adjacent;
  for (std::size_t i = 0; i < shape.n_pair; ++i) rope.frequency.push_back(shape.frequency(i));
  return rope;
}

struct Case {
  Shape shape;
  KeyTransformSpec spec;
};

std::vector<Case> AllCases() {
  std::vector<Case> cases;
  for (const Shape& shape : kShapes) {
    for (const KeyMean mean : {KeyMean::kOff, KeyMean::kBlock0, KeyMean::kRefreeze, KeyMean::kRope}) {
      for (const KeySmooth smooth : {KeySmooth::kOff, KeySmooth::kBalanced, KeySmooth::kBalancedPair,
                                     KeySmooth::kSigma, KeySmooth::kMax}) {
        if (mean == KeyMean::kOff && smooth == KeySmooth::kOff) continue;
        KeyTransformSpec spec;
        spec.mean = mean;
        spec.refreeze_tokens = mean == KeyMean::kRefreeze ? 256 : 0;
        spec.smooth = smooth;
        cases.push_back({shape, spec});
      }
    }
  }
  return cases;
}

class KeyTransformTest : public testing::TestWithParam<Case> {
 protected:
  KeyTransformTest()
      : shape_(GetParam().shape),
        d_(shape_.head_dim),
        transform_(GetParam().spec, d_, std::make_shared<const RopeGeometry>(RopeOf(shape_))) {}

  std::vector<float> Energy(const KeyRows& data) const {
    std::vector<float> energy(d_, 0.0f);
    transform_.AddQueries(data.queries.data(), data.n_rows, energy.data());
    return energy;
  }
  std::vector<float> Frozen(const KeyRows& data) const {
    const std::vector<float> energy = Energy(data);
    std::vector<float> version(2 * d_, NAN);
    transform_.Freeze({.rows = data.keys.data(),
                       .n_rows = data.n_rows,
                       .position = data.position,
                       .energy = transform_.needs_queries() ? energy.data() : nullptr},
                      version.data());
    return version;
  }
  std::vector<float> BlockMean(const std::vector<float>& version, std::size_t block) const {
    std::vector<float> mean(d_);
    transform_.BlockMean(version.data(), block, mean.data());
    return mean;
  }
  void BlockBias(const std::vector<float>& version, const std::vector<float>& queries, std::size_t n,
                 std::size_t first, std::size_t n_blocks, std::vector<float>& bias) const {
    std::vector<float> products(n * transform_.product_floats());
    transform_.Products(version.data(), queries.data(), n, products.data());
    for (const Isa isa : SupportedIsas()) {
      const std::vector<float> before = bias;
      AttentionKernelsOf(isa).block_bias({.phases = transform_.phases(),
                                          .products = products.data(),
                                          .product_floats = transform_.product_floats(),
                                          .n_rows = n,
                                          .first = first,
                                          .n_blocks = n_blocks,
                                          .bias = bias.data()});
      EXPECT_TRUE(isa == SupportedIsas()[0] || bias == before) << IsaName(isa);
    }
  }
  // The length of the pair that a channel belongs to (itself, where it does not turn).
  double PairLength(const std::vector<float>& x, std::size_t c) const {
    for (std::size_t i = 0; i < shape_.n_pair; ++i) {
      const std::size_t a = shape_.first(i), b = shape_.second(i);
      if (c == a || c == b) return std::hypot(double(x[a]), double(x[b]));
    }
    return std::abs(double(x[c]));
  }
  // |sum of turned pairs| that rounding acts on.
  double PairProducts(const std::vector<float>& q, const std::vector<float>& center) const {
    double sum = 0;
    for (std::size_t c = 0; c < d_; ++c) sum += PairLength(q, c) * PairLength(center, c);
    return sum;
  }

  Shape shape_;
  std::size_t d_;
  KeyTransform transform_;
  SplitMix64 rng_ = test::TestRng();
};

TEST_P(KeyTransformTest, EnergyIsTheSumOfSquares) {
  const KeyRows data(shape_, 4, 188, rng_);
  const std::vector<float> energy = Energy(data);
  for (std::size_t c = 0; c < d_; ++c) {
    double want = 0;
    for (std::size_t t = 0; t < data.n_rows; ++t) want += std::pow(double(data.queries[t * d_ + c]), 2);
    EXPECT_NEAR(energy[c], want, (double(data.n_rows) + 1) * u * want);
  }
  // One after the other: two portions are the same bits as one.
  std::vector<float> portions(d_, 0.0f);
  transform_.AddQueries(data.queries.data(), 50, portions.data());
  transform_.AddQueries(data.queries.data() + 50 * d_, data.n_rows - 50, portions.data());
  EXPECT_TRUE(portions == energy);
}

// A turn is two products by rounded cosines and sines with a sum: 4 u of a pair's length; two of them, and the
// center's own rounding: 9 u.
TEST_P(KeyTransformTest, MeansOfBlocksNearAndFar) {
  for (const auto& [position, n_rows] : {std::pair{4, 188}, std::pair{0, 64}, std::pair{63, 1},
                                         std::pair{640, 320}, std::pair{100, 200}}) {
    const KeyRows data(shape_, static_cast<std::size_t>(position), static_cast<std::size_t>(n_rows), rng_);
    const KeyReference reference{data, GetParam().spec};
    const std::vector<float> version = Frozen(data);
    for (const std::size_t block : {0, 1, 2, 63, 64, 65, 1000, 5000, 16383}) {
      const std::vector<float> got = BlockMean(version, block);
      const Row want = reference.MeanOfBlock(block);
      for (std::size_t c = 0; c < d_; ++c) {
        ASSERT_NEAR(got[c], want[c], 9 * u * PairLength(version, c) + 1e-9)
            << "rows from " << position << ", block " << block << ", channel " << c;
      }
    }
  }
}

// sigma is off by the rounding of the mean (9 u |mean| / sigma, below 1000 u here); lambda by half of that, of
// r's sum of squares (n u / 2), and its own rounding.
TEST_P(KeyTransformTest, LambdaIsTheFormulas) {
  for (const auto& [position, n_rows] : {std::pair{4, 188}, std::pair{0, 64}, std::pair{640, 128}}) {
    const KeyRows data(shape_, static_cast<std::size_t>(position), static_cast<std::size_t>(n_rows), rng_);
    const std::vector<float> version = Frozen(data);
    const Row want = KeyReference{data, GetParam().spec}.Lambda();
    double log_mean = 0;
    for (std::size_t c = 0; c < d_; ++c) {
      ASSERT_NEAR(version[d_ + c], want[c], (double(n_rows) / 2 + 500) * u * want[c]) << "channel " << c;
      log_mean += std::log(double(version[d_ + c])) / double(d_);
    }
    EXPECT_NEAR(log_mean, 0, 2 * u) << "geometric mean";
  }
}

// A channel without keys or without queries counts for a thousandth of the largest, not for nothing.
TEST_P(KeyTransformTest, DeadChannelsAreRaisedToTheFloor) {
  KeyRows data(shape_, 4, 188, rng_);
  for (std::size_t t = 0; t < data.n_rows; ++t) {
    data.queries[t * d_ + 3] = 0;
    data.keys[t * d_ + 5] = 0;
    data.queries[t * d_ + 9] *= 1e6f;
    data.keys[t * d_ + 12] *= 1e6f;
  }
  const std::vector<float> version = Frozen(data);
  const Row want = KeyReference{data, GetParam().spec}.Lambda();
  for (std::size_t c = 0; c < d_; ++c) ASSERT_NEAR(version[d_ + c], want[c], 1e-3 * want[c]) << c;
}

TEST_P(KeyTransformTest, DegenerateRowsGiveFiniteStates) {
  for (const float key : {0.0f, 0.25f, 65504.0f, 1e-40f}) {
    for (const float query : {0.0f, 1.0f, 1e-30f, 1e19f}) {
      for (const std::size_t n_rows : {0, 1, 60, 188}) {
        KeyRows data(shape_, 4, n_rows, rng_);
        std::fill(data.keys.begin(), data.keys.end(), key);
        std::fill(data.queries.begin(), data.queries.end(), query);
        for (const float x : Frozen(data)) ASSERT_TRUE(std::isfinite(x)) << key << ", " << query;
        const std::vector<float> version = Frozen(data);
        double log_mean = 0;
        for (std::size_t c = 0; c < d_; ++c) {
          ASSERT_GT(version[d_ + c], 0) << key << ", " << query << ", rows " << n_rows;
          log_mean += std::log(double(version[d_ + c])) / double(d_);
        }
        EXPECT_NEAR(log_mean, 0, 1e-6);
      }
    }
  }
}

// (k - m) / lambda and back: three roundings of k - m and one of k.
TEST_P(KeyTransformTest, UndoIsTheInverseOfApply) {
  const KeyRows data(shape_, 4, 188, rng_);
  const std::vector<float> version = Frozen(data);
  for (const std::size_t block : {0, 1, 70, 5000}) {
    const KeyRows fresh(shape_, 64 * block, kBlockTokens, rng_);
    std::vector<float> rows = fresh.keys;
    transform_.Apply(version.data(), block, rows.data());
    const std::vector<float> mean = BlockMean(version, block);
    std::vector<float> tile(rows.size());
    for (std::size_t t = 0; t < kBlockTokens; ++t) {
      for (std::size_t c = 0; c < d_; ++c) {
        const double want = (double(fresh.keys[t * d_ + c]) - double(mean[c])) / double(version[d_ + c]);
        ASSERT_NEAR(rows[t * d_ + c], want, 2.01 * u * std::abs(want));
        tile[c * kBlockTokens + t] = rows[t * d_ + c];
      }
    }
    transform_.Undo(version.data(), block, tile.data());
    for (std::size_t t = 0; t < kBlockTokens; ++t) {
      for (std::size_t c = 0; c < d_; ++c) {
        const double key = double(fresh.keys[t * d_ + c]);
        ASSERT_NEAR(tile[c * kBlockTokens + t], key,
                    (3.01 * std::abs(key - double(mean[c])) + 1.01 * std::abs(key)) * u)
            << "block " << block << ", token " << t << ", channel " << c;
      }
    }
  }
}

// q . k = q' . k' + bias. Roundings: q' and k' three of |q k'| lambda; the bias a chain of d additions, of
// products of pairs with 8 u of their own, the mean in k' another 9 u.
TEST_P(KeyTransformTest, ScoresArePreserved) {
  constexpr std::size_t kQueries = 3;
  const KeyRows data(shape_, 4, 188, rng_);
  const std::vector<float> version = Frozen(data);
  const std::vector<float> center(version.begin(), version.begin() + static_cast<std::ptrdiff_t>(d_));
  for (const std::size_t block : {0, 1, 63, 64, 5000, 16383}) {
    const KeyRows fresh(shape_, 64 * block, kBlockTokens, rng_);
    std::vector<float> rows = fresh.keys, scaled(kQueries * d_), bias(kQueries);
    transform_.Apply(version.data(), block, rows.data());
    transform_.TransformQueries(version.data(), fresh.queries.data(), kQueries, scaled.data());
    BlockBias(version, fresh.queries, kQueries, block, 1, bias);
    for (std::size_t r = 0; r < kQueries; ++r) {
      const std::vector<float> query(fresh.queries.begin() + static_cast<std::ptrdiff_t>(r * d_),
                                     fresh.queries.begin() + static_cast<std::ptrdiff_t>((r + 1) * d_));
      for (std::size_t t = 0; t < kBlockTokens; ++t) {
        double want = 0, got = double(bias[r]), products = 0;
        for (std::size_t c = 0; c < d_; ++c) {
          const double product = double(scaled[r * d_ + c]) * double(rows[t * d_ + c]);
          want += double(query[c]) * double(fresh.keys[t * d_ + c]);
          got += product;
          products += std::abs(product);
        }
        const double tolerance = (3 * products + (double(d_) + 17) * PairProducts(query, center)) * u;
        ASSERT_NEAR(got, want, 1.01 * tolerance) << "block " << block << ", token " << t;
      }
    }
  }
}

// Any run of up to 16 blocks, over the borders of the tables too: q . mean of each block.
TEST_P(KeyTransformTest, BiasOfRunsOfBlocks) {
  const KeyRows data(shape_, 4, 188, rng_);
  const std::vector<float> version = Frozen(data);
  const std::vector<float> center(version.begin(), version.begin() + static_cast<std::ptrdiff_t>(d_));
  for (const auto& [first, n_blocks] : {std::pair{0, 1}, std::pair{0, 16}, std::pair{60, 16}, std::pair{63, 1},
                                        std::pair{63, 2}, std::pair{64, 16}, std::pair{120, 9},
                                        std::pair{4992, 16}, std::pair{5000, 7}, std::pair{16368, 16}}) {
    constexpr std::size_t kQueries = 3;
    const auto n = static_cast<std::size_t>(n_blocks);
    std::vector<float> bias(kQueries * n, NAN);
    BlockBias(version, data.queries, kQueries, static_cast<std::size_t>(first), n, bias);
    for (std::size_t r = 0; r < kQueries; ++r) {
      const std::vector<float> query(data.queries.begin() + static_cast<std::ptrdiff_t>(r * d_),
                                     data.queries.begin() + static_cast<std::ptrdiff_t>((r + 1) * d_));
      for (std::size_t b = 0; b < n; ++b) {
        const std::vector<float> mean = BlockMean(version, static_cast<std::size_t>(first) + b);
        double want = 0;
        for (std::size_t c = 0; c < d_; ++c) want += double(query[c]) * double(mean[c]);
        ASSERT_NEAR(bias[r * n + b], want, (double(d_) + 17) * u * PairProducts(query, center) * 1.01)
            << "blocks from " << first << ", number " << b;
      }
    }
  }
}

// The transform of a finite key is one that a half scalar can say: shortened where it is longer, or untouched.
TEST_P(KeyTransformTest, LongRowsKeepTheirDirection) {
  const KeyRows data(shape_, 4, 188, rng_);
  const std::vector<float> version = Frozen(data);
  const std::vector<float> mean = BlockMean(version, 3);
  for (const float size : {1.0f, 1000.0f, 65504.0f, 1e30f}) {
    std::vector<float> rows(kBlockTokens * d_);
    for (float& x : rows) x = rng_.Below(2) == 0 ? size : -size;
    const std::vector<float> keys = rows;
    transform_.Apply(version.data(), 3, rows.data());
    for (std::size_t t = 0; t < kBlockTokens; ++t) {
      Row want(d_);
      double got2 = 0, want2 = 0, dot = 0;
      for (std::size_t c = 0; c < d_; ++c) {
        want[c] = (double(keys[t * d_ + c]) - double(mean[c])) / double(version[d_ + c]);
        const double got = double(rows[t * d_ + c]);
        got2 += got * got, want2 += want[c] * want[c], dot += got * want[c];
      }
      EXPECT_NEAR(dot / std::sqrt(got2 * want2), 1, 1e-6);
      EXPECT_LE(std::sqrt(got2 / double(d_)), 65504);
      const bool fits = std::sqrt(want2 / double(d_)) < 65000;
      EXPECT_TRUE(!fits || std::abs(got2 - want2) <= 8 * u * want2) << size;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Formulas, KeyTransformTest, testing::ValuesIn(AllCases()), [](const auto& info) {
  std::string name = info.param.shape.name + "_" + KeyMeanText(info.param.spec) + "_" +
                     KeySmoothText(info.param.spec.smooth);
  for (char& c : name) {
    if (std::isalnum(static_cast<unsigned char>(c)) == 0) c = '_';
  }
  return name;
});

}  // namespace
}  // namespace kvant
