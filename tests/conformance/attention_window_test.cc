// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// Sliding windows (AttendArgs::window) against the double reference: every codec family, form and
// kernel, both paths, windows around the size of a block.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <span>

#include "tests/support/guard_pages.h"
#include "tests/support/kv_fixture.h"
#include "tests/support/open_step.h"
#include "tests/support/seed.h"

namespace kvant {
namespace {

using test::OpenStep;
using test::RandomSequence;

const CacheGeometry kGeometry = {
    .n_layer = 1, .n_kv_head = 2, .heads_per_kv = 3, .head_dim = 32, .rope = test::PartialRope()};
constexpr std::size_t kRow = 2 * 3 * 32;
constexpr std::size_t kStep = 67;  // tokens of the last step: more than a block, not aligned
// At 202 a window of 200 ends within the sinks; at 400 block 0 lies outside of it.
constexpr std::size_t kLengths[] = {202, 400};
constexpr std::size_t kWindows[] = {1, 63, 64, 65, 200, 1000};

class AttentionWindowTest : public testing::TestWithParam<const char*> {
 protected:
  AttentionWindowTest() : sequence_(kGeometry, 400, test::TestSeed()) {}

  std::string spec() const { return GetParam(); }
  // Codecs without loss: both paths compute the same bits.
  bool identity() const { return spec() == "fp16" || spec() == "bf16"; }

  // Which blocks are read is no matter of the kernel: the slow one need not say so too.
  static std::span<const Isa> VectorIsas() {
    const std::span<const Isa> isas = SupportedIsas();
    return isas.size() > 1 ? isas.subspan(1) : isas;
  }

  RandomSequence sequence_;
};

TEST_P(AttentionWindowTest, ShowsTheNewestTokensAlone) {
  const test::GuardPages guard;
  for (const Isa isa : SupportedIsas()) {
    for (const std::size_t end : kLengths) {
      if (isa == Isa::kScalar && end > 202) continue;  // slow, and no other arithmetic
      OpenStep step(spec(), isa, 2, sequence_, end - kStep, end);
      KvCache whole = step.rig.NewCache();
      step.rig.Run(whole, sequence_, end, 64);
      test::RowsRead rows(whole, sequence_);
      // As for attention without a window (packed_method_test.cc); that covers all rows.
      const double half = step.rig.method->layer(0).dequantize ? 3000 : 4;
      const double tile_tolerance = test::OutputTolerance(sequence_, 0, end - 1) * half;
      const double byte_tolerance = test::ByteTolerance(sequence_, 0, end - 1);
      for (const std::size_t window : kWindows) {
        const std::vector<float> tile = step.Attend(end - kStep, kStep, window);
        for (const std::size_t t : {end - kStep, (end - 2) / 64 * 64, end - 1}) {
          SCOPED_TRACE(testing::Message()
                       << IsaName(isa) << ", position " << t << ", window " << window);
          const std::vector<double> want = rows.Attend(t, window);
          const std::vector<float> decoded = step.Attend(t, 1, window);
          for (std::size_t i = 0; i < kRow; ++i) {
            ASSERT_NEAR(tile[(t + kStep - end) * kRow + i], want[i], tile_tolerance) << i;
            ASSERT_NEAR(decoded[i], want[i], tile_tolerance + (identity() ? 0 : byte_tolerance))
                << i;
          }
        }
      }
    }
  }
}

TEST_P(AttentionWindowTest, IsTheSameBitForBitInEveryChunkingAndThreadCount) {
  for (const std::size_t end : kLengths) {
    OpenStep one(spec(), SupportedIsas().back(), 1, sequence_, end - kStep, end);
    OpenStep three(spec(), SupportedIsas().back(), 3, sequence_, end - kStep, end);
    for (const std::size_t window : kWindows) {
      SCOPED_TRACE(testing::Message() << "length " << end << ", window " << window);
      const std::vector<float> tile = one.Attend(end - kStep, kStep, window);
      EXPECT_TRUE(three.Attend(end - kStep, kStep, window) == tile);
      for (std::size_t t = end - kStep; t < end; t += 6) {  // the first and the last are among them
        const float* row = tile.data() + (t + kStep - end) * kRow;
        const std::vector<float> exact = one.Attend(t, 1, window, /*exact=*/true);
        EXPECT_TRUE(std::equal(exact.begin(), exact.end(), row)) << t;
        const std::vector<float> decoded = one.Attend(t, 1, window);
        EXPECT_TRUE(!identity() || decoded == exact) << t;
        EXPECT_TRUE(three.Attend(t, 1, window) == decoded) << t;
      }
    }
  }
}

TEST_P(AttentionWindowTest, WiderThanTheContextIsTheSameAsNone) {
  for (const Isa isa : VectorIsas()) {
    OpenStep step(spec(), isa, 2, sequence_, 400 - kStep, 400);
    for (const std::size_t n : {std::size_t{1}, kStep}) {
      const std::vector<float> none = step.Attend(400 - n, n, 0);
      for (const std::size_t window : {std::size_t{400}, std::size_t{401}, SIZE_MAX}) {
        EXPECT_TRUE(step.Attend(400 - n, n, window) == none) << IsaName(isa) << ", " << window;
      }
      EXPECT_FALSE(step.Attend(400 - n, n, 200) == none) << IsaName(isa);
    }
  }
}

TEST_P(AttentionWindowTest, DoesNotReadBlocksOutside) {
  for (const Isa isa : VectorIsas()) {
    for (const std::size_t n : {std::size_t{1}, kStep}) {
      // The widest first: what one window skips, narrower ones skip too.
      OpenStep step(spec(), isa, 2, sequence_, 400 - kStep, 400);
      const std::vector<float> none = step.Attend(400 - n, n, 0);
      for (const std::size_t window : {200, 65, 64, 63, 1}) {
        const std::size_t first = 400 - n;
        const std::vector<float> want = step.Attend(first, n, window);
        step.Poison(first + 1 - window);
        EXPECT_TRUE(step.Attend(first, n, window) == want)
            << IsaName(isa) << ", " << n << " queries, window " << window;
      }
      EXPECT_FALSE(step.Attend(400 - n, n, 0) == none) << "the poison works";
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Specs, AttentionWindowTest,
                         testing::ValuesIn(test::kAttentionSpecs));

}  // namespace
}  // namespace kvant
