// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// Sliding windows (AttendArgs::window) against the double reference: every codec family, form and
// kernel, both paths, windows around the size of a block.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "tests/support/guard_pages.h"
#include "tests/support/kv_fixture.h"
#include "tests/support/seed.h"

namespace kvant {
namespace {

using test::RandomSequence;

const CacheGeometry kGeometry = {
    .n_layer = 1, .n_kv_head = 2, .heads_per_kv = 3, .head_dim = 32, .rope = test::PartialRope()};
constexpr std::size_t kRow = 2 * 3 * 32;
constexpr std::size_t kStep = 67;  // tokens of the last step: more than a block, not aligned
// At 202 a window of 200 ends within the sinks; at 400 block 0 lies outside of it.
constexpr std::size_t kLengths[] = {202, 400};
constexpr std::size_t kWindows[] = {1, 63, 64, 65, 200, 1000};

/// A cache whose last step of kStep tokens is appended and not finished, so every query of the step
/// can be attended, as often as one likes.
struct Filled {
  Filled(const std::string& spec, Isa isa, std::size_t n_threads, const RandomSequence& s,
         std::size_t end)
      : rig(spec, kGeometry, isa, n_threads), cache(rig.NewCache()), sequence(s) {
    const std::size_t first = end - kStep;
    rig.Run(cache, sequence, first, 64);
    cache.Append(0, kStep, sequence.keys(0, first), sequence.values(0, first),
                 sequence.queries(0, first), &rig.threads);
  }

  /// Output [n, kRow] of the queries at [first, first + n).
  std::vector<float> Attend(std::size_t first, std::size_t n, std::size_t window,
                            bool exact = false) {
    std::vector<float> output(n * kRow);
    rig.attention.Attend({.cache = &cache,
                          .layer = 0,
                          .first_position = first,
                          .n_query = n,
                          .query = sequence.queries(0, first),
                          .softmax_scale = 1 / std::sqrt(static_cast<float>(kGeometry.head_dim)),
                          .output = output.data(),
                          .exact = exact,
                          .window = window},
                         rig.threads);
    return output;
  }

  /// Every block before the one with position `t` gets bytes of NaN.
  void Poison(std::size_t t) {
    for (std::size_t head = 0; head < kGeometry.n_kv_head; ++head) {
      for (std::size_t block = 0; block < t / kBlockTokens; ++block) {
        const BlockEntry& entry = cache.head(0, head).blocks[block];
        for (const BlockRef* form : {&entry.packed, &entry.exact}) {
          if (*form) std::memset(form->data(), 0xFF, form->bytes());
        }
      }
    }
  }

  test::KvRig rig;
  KvCache cache;
  const RandomSequence& sequence;
};

class AttentionWindowTest : public testing::TestWithParam<const char*> {
 protected:
  AttentionWindowTest() : sequence_(kGeometry, 400, test::TestSeed()) {}

  std::string spec() const { return GetParam(); }
  // Codecs without loss: both paths compute the same bits.
  bool identity() const { return spec() == "fp16" || spec() == "bf16"; }

  RandomSequence sequence_;
};

TEST_P(AttentionWindowTest, ShowsTheNewestTokensAlone) {
  const test::GuardPages guard;
  for (const Isa isa : SupportedIsas()) {
    for (const std::size_t end : kLengths) {
      Filled filled(spec(), isa, 2, sequence_, end);
      KvCache whole = filled.rig.NewCache();
      filled.rig.Run(whole, sequence_, end, 64);
      test::RowsRead rows(whole, sequence_);
      // As for attention without a window (packed_method_test.cc), whose tolerance covers more rows.
      const double half = filled.rig.method->layer(0).dequantize ? 3000 : 4;
      const double tile_tolerance = test::OutputTolerance(sequence_, 0, end - 1) * half;
      const double byte_tolerance = test::ByteTolerance(sequence_, 0, end - 1);
      for (const std::size_t window : kWindows) {
        const std::vector<float> tile = filled.Attend(end - kStep, kStep, window);
        for (const std::size_t t : {end - kStep, (end - 2) / 64 * 64, end - 1}) {
          SCOPED_TRACE(testing::Message()
                       << IsaName(isa) << ", position " << t << ", window " << window);
          const std::vector<double> want = rows.Attend(t, window);
          const std::vector<float> decoded = filled.Attend(t, 1, window);
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
    Filled one(spec(), SupportedIsas().back(), 1, sequence_, end);
    Filled three(spec(), SupportedIsas().back(), 3, sequence_, end);
    for (const std::size_t window : kWindows) {
      SCOPED_TRACE(testing::Message() << "length " << end << ", window " << window);
      const std::vector<float> tile = one.Attend(end - kStep, kStep, window);
      EXPECT_TRUE(three.Attend(end - kStep, kStep, window) == tile);
      for (std::size_t t = end - kStep; t < end; ++t) {
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
  for (const Isa isa : SupportedIsas()) {
    Filled filled(spec(), isa, 2, sequence_, 400);
    for (const std::size_t n : {std::size_t{1}, kStep}) {
      const std::vector<float> none = filled.Attend(400 - n, n, 0);
      for (const std::size_t window : {std::size_t{400}, std::size_t{401}, SIZE_MAX}) {
        EXPECT_TRUE(filled.Attend(400 - n, n, window) == none) << IsaName(isa) << ", " << window;
      }
      EXPECT_FALSE(filled.Attend(400 - n, n, 200) == none) << IsaName(isa);
    }
  }
}

TEST_P(AttentionWindowTest, DoesNotReadBlocksOutside) {
  for (const Isa isa : SupportedIsas()) {
    for (const std::size_t n : {std::size_t{1}, kStep}) {
      // The widest first: what one window skips, narrower ones skip too.
      Filled filled(spec(), isa, 2, sequence_, 400);
      const std::vector<float> none = filled.Attend(400 - n, n, 0);
      for (const std::size_t window : {200, 65, 64, 63, 1}) {
        const std::size_t first = 400 - n;
        const std::vector<float> want = filled.Attend(first, n, window);
        filled.Poison(first + 1 - window);
        EXPECT_TRUE(filled.Attend(first, n, window) == want)
            << IsaName(isa) << ", " << n << " queries, window " << window;
      }
      EXPECT_FALSE(filled.Attend(400 - n, n, 0) == none) << "the poison works";
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Specs, AttentionWindowTest,
    testing::Values("fp16", "bf16", "fp16,tail=packed", "k=bf16,v=fp16,window=64",
                    "k=bf16,v=bf16,window=128,sink=4", "k=fp16,v=bf16,sink=64", "turboquant_rvq",
                    "turboquant_rvq,sink=64,window=64", "turboquant_rvq_published",
                    "turboquant_rvq_published,read=dequantize", "turboquant_rvq,read=dequantize",
                    "turboquant_mse:bits=3:window=0", "k=turboquant_mse:bits=2,v=fp16,sink=3",
                    "turboquant_rvq:bits=4+4,exact=bf16,k_mean=refreeze:128,smooth=balanced",
                    "turboquant_rvq,k_mean=refreeze:64,window=64",
                    "k=turboquant_mse:bits=8,v=bf16,smooth=balanced_pair",
                    "k=fp16,v=turboquant_rvq,window=64"));

}  // namespace
}  // namespace kvant
