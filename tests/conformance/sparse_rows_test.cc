// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// Errors of rows made of few equal numbers, which one round of signs and Hadamard does not turn into random
// ones: how far from the codebooks' table they are, and that outlier channels, which real keys have, are not.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <vector>

#include "kv/registry.h"
#include "tests/support/seed.h"

namespace kvant {
namespace {

// Layers have signs of their own. Sanitizer builds look at fewer, whose mean scatters more.
#ifdef NDEBUG
constexpr std::size_t kLayers = 60;
constexpr double kScatter = 1;
#else
constexpr std::size_t kLayers = 6;
constexpr double kScatter = 1.1;
#endif

using Fill = std::function<void(float* row, SplitMix64& rng)>;

// Mean of |x - x^|^2 / |x|^2 over rows [head_dim] that `fill` makes out of zeros.
double Distortion(std::string_view options, std::size_t head_dim, const Fill& fill) {
  const CodecRecord& codec = *FindCodec("turboquant_rvq");
  const KernelSet& set = KernelSetOf(codec, SupportedIsas().back());
  SplitMix64 rng(test::TestSeed());
  double sum = 0;
  for (std::size_t layer = 0; layer < kLayers; ++layer) {
    const auto config = BindCodec(codec, options, {.side = Side::kKey, .layer = layer, .head_dim = head_dim});
    std::vector<float> rows(64 * head_dim, 0.0f), tile(64 * head_dim);
    for (std::size_t t = 0; t < 64; ++t) fill(rows.data() + t * head_dim, rng);
    std::vector<std::byte> block(codec.geometry(Side::kKey, head_dim, *config).bytes);
    set.encode(Side::kKey, {.config = config.get(),
                            .head_dim = head_dim,
                            .rows = rows.data(),
                            .row_stride = head_dim,
                            .n_rows = 64,
                            .first = 0,
                            .block = block.data()});
    set.decode(Side::kKey, {.config = config.get(),
                            .head_dim = head_dim,
                            .block = block.data(),
                            .tile = tile.data()});
    for (std::size_t t = 0; t < 64; ++t) {
      double error = 0, length = 0;
      for (std::size_t d = 0; d < head_dim; ++d) {
        const double x = double(rows[t * head_dim + d]);
        const double difference = x - double(tile[d * 64 + t]);
        error += difference * difference;
        length += x * x;
      }
      sum += error / length / 64 / kLayers;
    }
  }
  return sum;
}

Fill Hot(std::size_t head_dim, int n) {
  return [=](float* row, SplitMix64& rng) {
    for (int left = n; left > 0;) {
      float& x = row[rng.Below(head_dim)];
      if (x != 0) continue;
      x = 1;
      --left;
    }
  };
}

Fill Constant(std::size_t head_dim) {
  return [=](float* row, SplitMix64&) { std::fill_n(row, head_dim, 0.25f); };
}

Fill Outlier(std::size_t head_dim, float factor) {
  return [=](float* row, SplitMix64& rng) {
    for (std::size_t d = 0; d < head_dim; ++d) row[d] = static_cast<float>(rng.Normal());
    row[3] *= factor;
  };
}

struct Limits {
  std::string_view options;
  double few;      // rows of few equal numbers, and constant ones, over random rows
  double outlier;  // one channel 3 to 1000 times the others, over random rows
};

// A row of few equal numbers is turned into few different coordinates (one hot: all are +-1 rms). The error is
// then that of a few points of the codebook's cells instead of their average: nothing where a scalar fits the
// one magnitude, up to a cell's edge otherwise. Uniform error within cells would be 1; a nested 4-bit table
// has at most (half a cell)^2 = 3 times the mean of uniform (a cell^2 / 12), the published one more.
TEST(SparseRows, AreWithinTheWorstPlaceOfACell) {
  for (const Limits& limits : {Limits{"", 1.30, 1.02}, Limits{"scalar=matched", 1.30, 1.02},
                               Limits{"scalar=norm", 3.0, 1.02},
                               Limits{"codebook=upstream:scalar=norm", 3.0, 2.5}}) {
    for (const std::size_t head_dim : {64, 80, 128, 256}) {
      const double random = Distortion(limits.options, head_dim, Outlier(head_dim, 1));
      const auto expect = [&](const Fill& fill, double limit, const std::string& what) {
        const double ratio = Distortion(limits.options, head_dim, fill) / random;
        EXPECT_LE(ratio, limit * kScatter) << "'" << limits.options << "', head_dim " << head_dim << ", " << what;
      };
      for (const int n : {1, 2, 3, 4, 8}) {
        expect(Hot(head_dim, n), limits.few, fmt::format("{} equal numbers", n));
      }
      expect(Constant(head_dim), limits.few, "constant");
      for (const float factor : {3.0f, 10.0f, 30.0f, 100.0f, 1000.0f}) {
        expect(Outlier(head_dim, factor), limits.outlier, fmt::format("one channel times {}", factor));
      }
    }
  }
}

}  // namespace
}  // namespace kvant
