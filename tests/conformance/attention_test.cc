// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// Whole attention against the double reference: every head size, group size and length, every kernel,
// both paths, with every buffer against guard pages.
#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"
#include "tests/support/guard_pages.h"
#include "tests/support/kv_fixture.h"
#include "tests/support/seed.h"

namespace kvant {
namespace {

using test::ExpectedOutput;
using test::GuardPages;
using test::KvRig;
using test::OutputTolerance;
using test::RandomSequence;

// The thread sanitizer looks at how threads share memory, which no shape changes: it gets a few.
#if defined(__SANITIZE_THREAD__)
constexpr bool kFewShapes = true;
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
constexpr bool kFewShapes = true;
#else
constexpr bool kFewShapes = false;
#endif
#else
constexpr bool kFewShapes = false;
#endif

constexpr std::size_t kLengths[] = {1, 63, 64, 65, 1000};

void ExpectOutput(const Method& method, const RandomSequence& sequence, std::size_t layer,
                  std::size_t position, const float* got) {
  const std::vector<double> want = ExpectedOutput(method, sequence, layer, position);
  const double tolerance = OutputTolerance(sequence, layer, position);
  double worst = 0;
  std::size_t worst_index = 0;
  for (std::size_t i = 0; i < want.size(); ++i) {
    const double error = std::abs(static_cast<double>(got[i]) - want[i]);
    if (!(error <= worst)) {  // NaN counts as worst
      worst = error;
      worst_index = i;
    }
  }
  EXPECT_LE(worst, tolerance) << "position " << position << ", element " << worst_index << ": got "
                              << got[worst_index] << ", want " << want[worst_index];
}

struct Case {
  std::size_t head_dim;
  std::size_t heads_per_kv;
};

class AttentionTest : public testing::TestWithParam<Case> {
 protected:
  CacheGeometry Geometry() const {
    // Two KV heads where that is cheap; one more head is no new case for the wide shapes.
    const bool wide = GetParam().head_dim * GetParam().heads_per_kv > 512;
    return {.n_layer = 1,
            .n_kv_head = wide ? std::size_t{1} : std::size_t{2},
            .heads_per_kv = GetParam().heads_per_kv,
            .head_dim = GetParam().head_dim};
  }
};

TEST_P(AttentionTest, MatchesTheReferenceOnEveryKernelAndPath) {
  const GuardPages guard;
  const RandomSequence sequence(Geometry(), 1000, test::TestSeed());
  const std::size_t row = Geometry().n_kv_head * Geometry().heads_per_kv * Geometry().head_dim;
  for (const Isa isa : SupportedIsas()) {
    // The scalar kernel gives the same bits (tested below); here it runs the short lengths only.
    for (const std::size_t length : kLengths) {
      if (isa == Isa::kScalar && length > 65) continue;
      SCOPED_TRACE(testing::Message() << IsaName(isa) << ", length " << length);
      KvRig rig("fp16", Geometry(), isa, 2);
      KvCache cache = rig.NewCache();
      // Fill up to the last token by tiles, then one decode step.
      const std::vector<float> prefill = rig.Run(cache, sequence, length - 1, 512);
      const std::vector<float> decoded = rig.Run(cache, sequence, length, 1);
      ExpectOutput(*rig.method, sequence, 0, length - 1, decoded.data());
      if (length > 1) {
        ExpectOutput(*rig.method, sequence, 0, length - 2, prefill.data() + (length - 2) * row);
        ExpectOutput(*rig.method, sequence, 0, (length - 1) / 2,
                     prefill.data() + (length - 1) / 2 * row);
      }
    }
  }
}

TEST_P(AttentionTest, IsTheSameBitForBitInEveryChunkingThreadCountAndKernel) {
  const RandomSequence sequence(Geometry(), 148, test::TestSeed());
  KvRig base("fp16", Geometry(), SupportedIsas().back(), 1);
  KvCache base_cache = base.NewCache();
  const std::vector<float> want = base.Run(base_cache, sequence, 148, 1);
  for (const Isa isa : SupportedIsas()) {
    for (const std::size_t chunk : {std::size_t{1}, std::size_t{7}, std::size_t{64}, std::size_t{150}}) {
      // The scalar twin is slow: one chunking that takes both paths (148 = 21 * 7 + 1) is enough.
      if (isa == Isa::kScalar && chunk != 7) continue;
      for (const std::size_t n_threads : {std::size_t{1}, std::size_t{3}}) {
        if (isa == Isa::kScalar && n_threads == 1) continue;
        KvRig rig("fp16", Geometry(), isa, n_threads);
        KvCache cache = rig.NewCache();
        EXPECT_TRUE(rig.Run(cache, sequence, 148, chunk) == want)
            << IsaName(isa) << ", chunk " << chunk << ", " << n_threads << " threads";
      }
    }
  }
}

std::vector<Case> AllCases() {
  std::vector<Case> cases;
  if (kFewShapes) return {{64, 3}, {80, 1}};
  for (const std::size_t head_dim : {64, 80, 96, 128, 256}) {
    for (const std::size_t heads : {1, 2, 3, 4, 5, 6, 7, 8, 16}) cases.push_back({head_dim, heads});
  }
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Shapes, AttentionTest, testing::ValuesIn(AllCases()), [](const auto& info) {
  return "d" + std::to_string(info.param.head_dim) + "_g" + std::to_string(info.param.heads_per_kv);
});

// The reading rule on a cache whose packed form differs from its exact one: fp16 rows packed as bf16.
class ReadingRuleTest : public testing::TestWithParam<const char*> {};

TEST_P(ReadingRuleTest, EveryQueryReadsEveryRowInTheFormOfTheRule) {
  const CacheGeometry geometry = {.n_layer = 2, .n_kv_head = 2, .heads_per_kv = 3, .head_dim = 32};
  const RandomSequence sequence(geometry, 400, test::TestSeed());
  const std::size_t row = geometry.n_kv_head * geometry.heads_per_kv * geometry.head_dim;
  for (const std::size_t chunk : {std::size_t{1}, std::size_t{7}, std::size_t{64}, std::size_t{400}}) {
    for (const bool exact : {false, true}) {
      SCOPED_TRACE(testing::Message() << "chunk " << chunk << ", exact " << exact);
      KvRig rig(GetParam(), geometry, SupportedIsas().back(), 2);
      KvCache cache = rig.NewCache();
      const std::vector<float> got = rig.Run(cache, sequence, 400, chunk, exact);
      for (const std::size_t position : {0, 3, 63, 64, 127, 128, 129, 191, 192, 193, 255, 256, 320, 399}) {
        for (std::size_t layer = 0; layer < 2; ++layer) {
          ExpectOutput(*rig.method, sequence, layer, position,
                       got.data() + (position * 2 + layer) * row);
        }
      }
    }
  }
}

TEST_P(ReadingRuleTest, ExactModeIsTheSameBitForBitInEveryChunking) {
  const CacheGeometry geometry = {.n_layer = 2, .n_kv_head = 2, .heads_per_kv = 3, .head_dim = 32};
  const RandomSequence sequence(geometry, 400, test::TestSeed());
  KvRig base(GetParam(), geometry, SupportedIsas().back(), 1);
  KvCache base_cache = base.NewCache();
  const std::vector<float> want = base.Run(base_cache, sequence, 400, 1, true);
  for (const std::size_t chunk : {std::size_t{7}, std::size_t{64}, std::size_t{65}, std::size_t{400}}) {
    KvRig rig(GetParam(), geometry, SupportedIsas().back(), 2);
    KvCache cache = rig.NewCache();
    EXPECT_TRUE(rig.Run(cache, sequence, 400, chunk, true) == want) << "chunk " << chunk;
  }
}

INSTANTIATE_TEST_SUITE_P(Specs, ReadingRuleTest,
                         testing::Values("k=bf16,v=bf16", "k=bf16,v=fp16,window=64",
                                         "k=bf16,v=bf16,window=128,sink=4",
                                         "k=fp16,v=bf16,sink=64", "fp16,layers=1:k=bf16",
                                         "bf16", "k=bf16,v=bf16,sink=1,window=64"));

TEST(AttentionScratch, DoesNotGrowWithTheContext) {
  const CacheGeometry geometry = {.n_layer = 1, .n_kv_head = 1, .heads_per_kv = 4, .head_dim = 64};
  const RandomSequence sequence(geometry, 3000, test::TestSeed());
  KvRig rig("fp16", geometry, SupportedIsas().back(), 1);
  KvCache cache = rig.NewCache();
  rig.Run(cache, sequence, 100, 100);
  const std::uint64_t before = MemoryCountOf(MemoryTag::kScratch).peak_bytes;
  rig.Run(cache, sequence, 2999, 512);
  rig.Run(cache, sequence, 3000, 1);
  EXPECT_EQ(MemoryCountOf(MemoryTag::kScratch).peak_bytes, before);
}

TEST(AttentionSplits, DependOnThePositionAloneAndAreBounded) {
  for (std::size_t n_blocks = 1; n_blocks < 5000; ++n_blocks) {
    const std::size_t per_split = SplitBlocks(n_blocks);
    EXPECT_GE(per_split, 4u);
    EXPECT_LE((n_blocks + per_split - 1) / per_split, kMaxSplits);
  }
}

// Scores far beyond what exp can take: the running maximum must carry them.
TEST(AttentionExtremes, LargeScoresStayFinite) {
  const CacheGeometry geometry = {.n_layer = 1, .n_kv_head = 1, .heads_per_kv = 1, .head_dim = 16};
  KvRig rig("fp16", geometry, SupportedIsas().back(), 1);
  KvCache cache = rig.NewCache();
  const std::size_t n = 200;
  std::vector<float> keys(n * 16), values(n * 16), queries(n * 16, 300.0f), output(n * 16);
  for (std::size_t t = 0; t < n; ++t) {
    for (std::size_t d = 0; d < 16; ++d) {
      keys[t * 16 + d] = t == 70 ? 60000.0f : -60000.0f;
      values[t * 16 + d] = static_cast<float>(t);
    }
  }
  cache.Append(0, n, keys.data(), values.data());
  rig.attention.Attend({.cache = &cache,
                        .layer = 0,
                        .first_position = 0,
                        .n_query = n,
                        .query = queries.data(),
                        .softmax_scale = 1.0f,
                        .output = output.data()},
                       rig.threads);
  EXPECT_EQ(output[199 * 16], 70.0f);     // one token outweighs all others by e^(10^9)
  EXPECT_EQ(output[10 * 16 + 3], 5.0f);  // eleven equal tokens: the mean of 0 to 10
}

}  // namespace
}  // namespace kvant
