// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// Activations in digits and their products with quantized weights: within the bound of their rounding, and the
// same bits on every instruction set.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "llm/matmul_kernels.h"
#include "llm/weight_matrix.h"
#include "tests/support/guard_pages.h"
#include "tests/support/guarded_array.h"
#include "tests/support/random_matrix.h"
#include "tests/support/seed.h"

namespace kvant {
namespace {

using test::Edge;
using test::FillNormal;
using test::GuardedArray;
using test::RandomMatrix;
using test::WholeBlocks;

constexpr std::size_t kTwoPanels = 2 * kPanelRows;

std::uint32_t Bits(float x) { return std::bit_cast<std::uint32_t>(x); }

struct Case {
  WeightType type;
  Isa isa;
};

std::vector<Case> QuantizedCases() {
  std::vector<Case> cases;
  for (const WeightTypeInfo& info : WeightTypes()) {
    if (info.block_values == 1) continue;
    for (const Isa isa : AllIsas()) cases.push_back({info.type, isa});
  }
  return cases;
}

class DigitProductTest : public testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    if (!IsaSupported(GetParam().isa)) {
      GTEST_SKIP() << "this processor has no " << IsaName(GetParam().isa);
    }
    kernels_ = &MatmulKernelsOf(GetParam().isa);
  }

  const WeightType type_ = GetParam().type;
  const MatmulKernels* kernels_ = nullptr;
  test::GuardPages guard_;  // weights end at guard pages
  SplitMix64 rng_ = test::TestRng();
};

// An activation in digits is off by half a step of its group at most. Sums of integers are exact and become
// floats with 24 bits; so do scales of weights, scales times scales and both terms of a group, whose
// magnitudes are below those of the group's products by absolute value, with the zero code's counted (`offset`).
// One more rounding for each term that is added to the row's sum.
TEST_P(DigitProductTest, IsWithinTheRoundingOfActivations) {
  ThreadPool threads(1);
  for (const std::size_t at_least : {32, 96, 576}) {
    const std::size_t n_cols = WholeBlocks(type_, at_least), n_groups = n_cols / 32;
    const RandomMatrix source(type_, kTwoPanels, n_cols, rng_.Next());
    const WeightMatrix matrix = WeightMatrix::Load(source.file(), source.tensor(), threads);
    GuardedArray<float> x(n_cols, Edge::kEnd), y(kTwoPanels, Edge::kEnd);
    GuardedArray<ActivationGroup> digits(n_groups, Edge::kEnd);
    for (int round = 0; round < 4; ++round) {
      FillNormal(x.span(), rng_);
      for (std::size_t g = 0; g < n_groups && round > 0; ++g) {  // groups of all sizes, some with an outlier
        for (std::size_t i = 0; i < 32; ++i) x[32 * g + i] *= std::exp2(static_cast<float>(g % 30));
        x[32 * g + rng_.Below(32)] *= 100;
      }
      kernels_->to_digits(x.data(), n_groups, digits.data());
      kernels_->mat_vec_digits(matrix.type(), matrix.panel(0), 2, n_cols, digits.data(), y.data());
      std::vector<float> same(kTwoPanels);
      MatmulKernelsOf(Isa::kScalar)
          .mat_vec_digits(matrix.type(), matrix.panel(0), 2, n_cols, digits.data(), same.data());
      for (std::size_t row = 0; row < kTwoPanels; ++row) {
        ASSERT_EQ(Bits(y[row]), Bits(same[row])) << "row " << row << " in the scalar kernel";
        double want = 0, step = 0, size = 0;
        for (std::size_t g = 0; g < n_groups; ++g) {
          double largest_weight = 0;
          for (std::size_t c = 32 * g; c < 32 * g + 32; ++c) {
            const double w = static_cast<double>(source.value(row, c));
            const double value = static_cast<double>(x[c]);
            want += w * value;
            step += std::abs(w) * static_cast<double>(digits[g].scale) / 2;
            largest_weight = std::max(largest_weight, std::abs(w));
            size += std::abs(w * value);
          }
          // Minimum or zero code and code each weigh at most 64 times what the largest weight may be short of.
          for (std::size_t c = 32 * g; c < 32 * g + 32; ++c) {
            size += 64 * largest_weight * static_cast<double>(std::abs(x[c]));
          }
        }
        const double tolerance = 1.0001 * step + static_cast<double>(n_groups + 6) * size * 0x1p-24;
        ASSERT_LE(std::abs(static_cast<double>(y[row]) - want), tolerance)
            << "row " << row << " of " << n_cols << " columns: got " << y[row] << ", want " << want;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(TypesAndKernels, DigitProductTest, testing::ValuesIn(QuantizedCases()),
                         [](const auto& info) {
                           return std::string(InfoOf(info.param.type).name) + "_" +
                                  std::string(IsaName(info.param.isa));
                         });

class DigitsTest : public testing::TestWithParam<Isa> {
 protected:
  void SetUp() override {
    if (!IsaSupported(GetParam())) GTEST_SKIP() << "this processor has no " << IsaName(GetParam());
    kernels_ = &MatmulKernelsOf(GetParam());
  }
  const MatmulKernels* kernels_ = nullptr;
};

TEST_P(DigitsTest, AreTheNearestOfTheirGrid) {
  SplitMix64 rng = test::TestRng();
  for (int round = 0; round < 2000; ++round) {
    GuardedArray<float> x(32, Edge::kEnd);
    FillNormal(x.span(), rng);
    const float size = std::exp2(static_cast<float>(rng.Below(160)) - 80);
    for (float& value : x) value *= size;
    if (round % 3 == 0) x[rng.Below(32)] *= -1000;
    ActivationGroup group;
    kernels_->to_digits(x.data(), 1, &group);
    double largest = 0;
    for (const float value : x) largest = std::max(largest, std::abs(static_cast<double>(value)));
    ASSERT_NEAR(static_cast<double>(group.scale), largest / 16256, largest * 0x1p-37);
    int sums[2] = {0, 0};
    for (std::size_t i = 0; i < 32; ++i) {
      const int whole = 128 * group.high[i] + group.low[i];
      sums[i / 16] += whole;
      ASSERT_LE(std::abs(group.low[i]), 64);
      ASSERT_LE(std::abs(static_cast<double>(x[i]) - whole * static_cast<double>(group.scale)),
                0.5001 * static_cast<double>(group.scale) + largest * 0x1p-22)
          << x[i] << " became " << whole << " times " << group.scale;
    }
    ASSERT_EQ(group.sum[0], sums[0]);
    ASSERT_EQ(group.sum[1], sums[1]);
    ActivationGroup same;
    MatmulKernelsOf(Isa::kScalar).to_digits(x.data(), 1, &same);
    ASSERT_EQ(Bits(group.scale), Bits(same.scale));
    for (std::size_t i = 0; i < 32; ++i) {
      ASSERT_EQ(group.high[i], same.high[i]);
      ASSERT_EQ(group.low[i], same.low[i]);
    }
  }
}

TEST_P(DigitsTest, WhatIsNotFiniteMakesItsGroupNan) {
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
                          -std::numeric_limits<float>::infinity()}) {
    for (std::size_t at = 0; at < 32; ++at) {
      std::vector<float> x(64, 1.0f);
      x[at] = bad;
      ActivationGroup groups[2];
      kernels_->to_digits(x.data(), 2, groups);
      EXPECT_TRUE(std::isnan(groups[0].scale)) << bad << " at " << at;
      EXPECT_EQ(groups[1].scale, 1.0f / 16256) << "its neighbour keeps its numbers";
    }
  }
}

TEST_P(DigitsTest, NothingAndNearlyNothingAreZero) {
  for (const float tiny : {0.0f, -0.0f, 1e-45f, 1e-38f, 1e-31f}) {
    const std::vector<float> x(32, tiny);
    ActivationGroup group;
    kernels_->to_digits(x.data(), 1, &group);
    EXPECT_EQ(group.scale, 0.0f);
    for (const std::int8_t digit : group.high) EXPECT_EQ(digit, 0);
    for (const std::int8_t digit : group.low) EXPECT_EQ(digit, 0);
  }
}

INSTANTIATE_TEST_SUITE_P(Kernels, DigitsTest, testing::ValuesIn(AllIsas()),
                         [](const auto& info) { return std::string(IsaName(info.param)); });

}  // namespace
}  // namespace kvant
