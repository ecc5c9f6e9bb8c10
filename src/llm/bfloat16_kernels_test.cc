// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// Rounding to bfloat16 and the order of pairs, against the conversion of base/half.h, bit for bit.
#include "llm/bfloat16_kernels.h"

#include <gtest/gtest.h>

#include <bit>
#include <vector>

#include "base/half.h"
#include "base/rng.h"
#include "llm/weight_layout.h"
#include "tests/support/guarded_array.h"
#include "tests/support/seed.h"

namespace kvant {
namespace {

using test::Edge;
using test::GuardedArray;

// Any bits: normal, subnormal, infinite and NaN.
float AnyFloat(SplitMix64& rng) {
  const auto bits = static_cast<std::uint32_t>(rng.Next());
  return std::bit_cast<float>(rng.Below(8) == 0 ? bits | 0x7f800000u : bits);
}

class BFloat16KernelsTest : public testing::TestWithParam<Isa> {
 protected:
  void SetUp() override {
    if (!IsaSupported(GetParam())) {
      GTEST_SKIP() << "this processor has no " << IsaName(GetParam());
    }
  }
  SplitMix64 rng_ = test::TestRng();
};

TEST_P(BFloat16KernelsTest, RoundsEveryNumberToTheNearest) {
  for (const std::size_t n : {1, 2, 15, 16, 17, 33, 4096}) {
    GuardedArray<float> x(n, Edge::kEnd);
    GuardedArray<std::uint16_t> out(n, Edge::kEnd);
    for (float& value : x) value = AnyFloat(rng_);
    BFloat16KernelsOf(GetParam()).round(x.data(), n, out.data());
    for (std::size_t i = 0; i < n; ++i) {
      ASSERT_EQ(out[i], FloatToBFloat16(x[i]).bits) << std::bit_cast<std::uint32_t>(x[i]);
    }
  }
}

TEST_P(BFloat16KernelsTest, PutsNeighbouringColumnsOfARowSideBySide) {
  constexpr std::size_t kStride = 2 * 64;
  for (const std::size_t n_cols : {2, 32, 256}) {
    GuardedArray<float> columns(n_cols * kPanelRows, Edge::kEnd);
    GuardedArray<std::uint16_t> out((n_cols / 2 - 1) * kStride + 2 * kPanelRows, Edge::kEnd);
    for (float& value : columns) value = AnyFloat(rng_);
    for (std::uint16_t& value : out) value = 0x1234;
    BFloat16KernelsOf(GetParam()).pack_pairs(columns.data(), n_cols, out.data(), kStride);
    for (std::size_t i = 0; i < out.size(); ++i) {
      const std::size_t pair = i / kStride, within = i % kStride;
      std::uint16_t want = 0x1234;
      if (within < 2 * kPanelRows) {
        want = FloatToBFloat16(columns[(pair * 2 + within % 2) * kPanelRows + within / 2]).bits;
      }
      ASSERT_EQ(out[i], want) << "pair " << pair << ", place " << within;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Kernels, BFloat16KernelsTest, testing::ValuesIn(AllIsas()),
                         [](const auto& info) { return std::string(IsaName(info.param)); });

}  // namespace
}  // namespace kvant
