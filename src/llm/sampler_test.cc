// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

#include "llm/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <vector>

#include "base/error.h"
#include "tests/support/seed.h"

namespace kvant {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

TokenId Choose(const SamplerOptions& options, const std::vector<float>& logits,
               const std::vector<TokenId>& history = {}) {
  return Sampler(options).Sample(logits, history);
}

std::vector<float> RandomLogits(SplitMix64& rng, std::size_t n, double scale) {
  std::vector<float> logits(n);
  for (float& logit : logits) logit = static_cast<float>(scale * rng.Normal());
  return logits;
}

// The probabilities that SamplerOptions describe, written from its words: a full sort, no
// shortcuts.
std::vector<double> Probabilities(const SamplerOptions& options, const std::vector<float>& logits) {
  std::vector<double> p(logits.size());
  const double max = *std::max_element(logits.begin(), logits.end());
  for (std::size_t i = 0; i < p.size(); ++i)
    p[i] = std::exp((logits[i] - max) / options.temperature);
  std::vector<std::size_t> order(p.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return logits[a] > logits[b]; });
  for (std::size_t rank = 0; rank < order.size(); ++rank) {
    const bool below_min = options.min_p > 0 && p[order[rank]] < options.min_p;
    if (below_min || (options.top_k > 0 && rank >= options.top_k)) p[order[rank]] = 0;
  }
  const double rest = std::accumulate(p.begin(), p.end(), 0.0);
  double sum = 0;
  for (const std::size_t id : order) {
    if (options.top_p < 1 && sum >= options.top_p * rest) p[id] = 0;
    sum += p[id];
  }
  const double total = std::accumulate(p.begin(), p.end(), 0.0);
  for (double& probability : p) probability /= total;
  return p;
}

// Draws n tokens and compares their counts with the probabilities by Pearson's statistic. For d
// degrees of freedom it exceeds d + 2 sqrt(20 d) + 40 with probability e^-20 at most (Laurent and
// Massart 2000, lemma 1). Rare tokens share one cell, so that each cell expects 20 draws or more.
void ExpectFrequencies(const SamplerOptions& options, const std::vector<float>& logits, int n) {
  const std::vector<double> p = Probabilities(options, logits);
  std::vector<int> counts(logits.size());
  Sampler sampler(options);
  for (int i = 0; i < n; ++i) ++counts[static_cast<std::size_t>(sampler.Sample(logits, {}))];
  double statistic = 0;
  int cells = 0;
  double rare_expected = 0;
  int rare_count = 0;
  const auto add_cell = [&](double expected, int count) {
    statistic += (count - expected) * (count - expected) / expected;
    ++cells;
  };
  for (std::size_t i = 0; i < p.size(); ++i) {
    if (p[i] == 0) {
      EXPECT_EQ(counts[i], 0) << "token " << i << " was excluded";
    } else if (p[i] * n >= 20) {
      add_cell(p[i] * n, counts[i]);
    } else {
      rare_expected += p[i] * n;
      rare_count += counts[i];
    }
  }
  if (rare_expected >= 20) add_cell(rare_expected, rare_count);
  ASSERT_GE(cells, 1);
  const double d = cells - 1;
  EXPECT_LE(statistic, d + 2 * std::sqrt(20 * d) + 40) << "cells " << cells;
}

TEST(Sampler, GreedyTakesTheLowestIdOfTheBest) {
  EXPECT_EQ(Choose({}, {1, 3, 2, 3}), 1);
  EXPECT_EQ(Choose({}, {-5, -5, -5}), 0);
  EXPECT_EQ(Choose({}, {-kInfinity, -kInfinity, -3}), 2);
}

// Sizes around the lanes and blocks that it searches in; the best stands anywhere, and again behind.
TEST(Sampler, GreedyFindsTheBestOfAnyNumberOfLogits) {
  SplitMix64 rng = test::TestRng();
  Sampler sampler({});
  for (const std::size_t n : {1, 15, 16, 17, 1023, 1024, 1025, 5000}) {
    for (int round = 0; round < 50; ++round) {
      std::vector<float> logits(n);
      for (float& x : logits) x = static_cast<float>(rng.Normal());
      for (std::size_t i = 0; i < n; i += 7) logits[i] = std::numeric_limits<float>::quiet_NaN();
      const std::size_t at = rng.Below(n);
      logits[at] = 100;
      logits[at + rng.Below(n - at)] = 100;
      ASSERT_EQ(sampler.Sample(logits, {}), static_cast<TokenId>(at)) << "of " << n;
    }
  }
}

TEST(Sampler, FrequenciesFollowTheSoftmax) {
  SplitMix64 rng = test::TestRng();
  const std::vector<float> logits = RandomLogits(rng, 40, 1.5);
  for (const float temperature : {0.5f, 1.0f, 3.0f}) {
    SCOPED_TRACE(temperature);
    ExpectFrequencies({.temperature = temperature, .seed = 7}, logits, 100'000);
  }
}

TEST(Sampler, FrequenciesFollowTheFilters) {
  SplitMix64 rng = test::TestRng();
  const std::vector<float> logits = RandomLogits(rng, 40, 2.0);
  ExpectFrequencies({.temperature = 1, .top_k = 5}, logits, 50'000);
  ExpectFrequencies({.temperature = 1, .top_p = 0.7f}, logits, 50'000);
  ExpectFrequencies({.temperature = 2, .min_p = 0.1f}, logits, 50'000);
  ExpectFrequencies({.temperature = 1.5f, .top_k = 20, .top_p = 0.8f, .min_p = 0.02f}, logits,
                    50'000);
  ExpectFrequencies({.temperature = 1, .top_k = 1000, .top_p = 0.999999f}, logits, 50'000);
}

// Flat logits make top-p sort far beyond its first portion.
TEST(Sampler, TopPOverManyCandidates) {
  SplitMix64 rng = test::TestRng();
  const std::vector<float> logits = RandomLogits(rng, 5000, 0.1);
  const SamplerOptions options = {.temperature = 1, .top_p = 0.5f};
  const std::vector<double> p = Probabilities(options, logits);
  const auto kept = std::count_if(p.begin(), p.end(), [](double x) { return x > 0; });
  ASSERT_GT(kept, 2000);
  Sampler sampler(options);
  for (int i = 0; i < 3000; ++i) {
    ASSERT_GT(p[static_cast<std::size_t>(sampler.Sample(logits, {}))], 0);
  }
}

TEST(Sampler, NarrowFiltersEqualGreedy) {
  SplitMix64 rng = test::TestRng();
  for (int round = 0; round < 200; ++round) {
    std::vector<float> logits = RandomLogits(rng, 50, 3);
    for (float& logit : logits) logit = std::round(logit);  // ties
    const TokenId greedy = Choose({}, logits);
    const std::uint64_t seed = rng.Next();
    EXPECT_EQ(Choose({.temperature = 2, .top_k = 1, .seed = seed}, logits), greedy);
    EXPECT_EQ(Choose({.temperature = 2, .top_p = 1e-6f, .seed = seed}, logits), greedy);
    // min-p of 1 keeps all that are as good as the best.
    const TokenId best = Choose({.temperature = 2, .min_p = 1, .seed = seed}, logits);
    EXPECT_EQ(logits[static_cast<std::size_t>(best)], logits[static_cast<std::size_t>(greedy)]);
    const TokenId cold = Choose({.temperature = 1e-30f, .seed = seed}, logits);
    EXPECT_EQ(logits[static_cast<std::size_t>(cold)], logits[static_cast<std::size_t>(greedy)]);
  }
}

TEST(Sampler, SeedDecidesTheSequence) {
  SplitMix64 rng = test::TestRng();
  const std::vector<float> logits = RandomLogits(rng, 100, 1);
  const auto sequence = [&](std::uint64_t seed) {
    Sampler sampler({.temperature = 1, .seed = seed});
    std::vector<TokenId> ids;
    for (int i = 0; i < 50; ++i) ids.push_back(sampler.Sample(logits, {}));
    return ids;
  };
  EXPECT_EQ(sequence(1), sequence(1));
  EXPECT_NE(sequence(1), sequence(2));
}

TEST(Sampler, NoNumbersAreNeverChosen) {
  EXPECT_EQ(Choose({}, {kNan, 1, kNan, 2, kNan}), 3);
  Sampler sampler({.temperature = 5});
  std::map<TokenId, int> counts;
  for (int i = 0; i < 1000; ++i)
    ++counts[sampler.Sample(std::vector<float>{kNan, 1, -kInfinity, 2}, {})];
  EXPECT_EQ(counts.size(), 2u);
  EXPECT_EQ(counts.count(1) + counts.count(3), 2u);
  for (const float temperature : {0.0f, 1.0f}) {
    for (const std::vector<float>& logits :
         {std::vector<float>{kNan, kNan}, std::vector<float>{-kInfinity}, std::vector<float>{}}) {
      try {
        Choose({.temperature = temperature}, logits);
        ADD_FAILURE();
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::kInternal);
      }
    }
  }
}

TEST(Sampler, InfiniteLogitTakesAll) {
  for (const float temperature : {0.0f, 1.0f}) {
    EXPECT_EQ(Choose({.temperature = temperature, .top_p = 0.9f}, {1, kInfinity, 2, kInfinity}), 1);
  }
}

TEST(Sampler, RepetitionPenalty) {
  const SamplerOptions options = {.repeat_penalty = 2};
  // Positive logits are halved, negative ones doubled, zero stays.
  EXPECT_EQ(Choose(options, {3, 2, 0}, {0}), 1);
  EXPECT_EQ(Choose(options, {5, 2, 0}, {0}), 0);
  EXPECT_EQ(Choose(options, {-3, -2, -5}, {1}), 0);
  EXPECT_EQ(Choose(options, {-5, -2, -5}, {1}), 1);
  EXPECT_EQ(Choose(options, {0, -1, -2}, {0, 0}), 0);
  // Once, however often the token came; a penalty below 1 favours.
  EXPECT_EQ(Choose(options, {5, 2}, {0, 0, 0, 0}), 0);
  EXPECT_EQ(Choose({.repeat_penalty = 0.5f}, {3, 2}, {1}), 1);
  // Only the last tokens count, and ids outside the vocabulary do not.
  EXPECT_EQ(Choose({.repeat_penalty = 2, .repeat_last_n = 2}, {3, 2, 0}, {0, 2, 2}), 0);
  EXPECT_EQ(Choose({.repeat_penalty = 2, .repeat_last_n = 3}, {3, 2, 0}, {0, 2, 2}), 1);
  EXPECT_EQ(Choose({.repeat_penalty = 2, .repeat_last_n = 0}, {3, 2, 0}, {0, 2, 2}), 0);
  EXPECT_EQ(Choose(options, {3, 2}, {-1, 99}), 0);
  // It comes before the temperature.
  EXPECT_EQ(Choose({.temperature = 0.01f, .repeat_penalty = 2}, {3, 2}, {0}), 1);
}

TEST(Sampler, RefusesOptionsOutsideTheirRange) {
  const auto message = [](const SamplerOptions& options) -> std::string {
    try {
      Sampler sampler(options);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(message({.temperature = -1}), "temperature is -1; allowed: 0 (greedy) or more");
  EXPECT_EQ(message({.temperature = kNan}).substr(0, 14), "temperature is");
  EXPECT_EQ(message({.temperature = kInfinity}).substr(0, 14), "temperature is");
  EXPECT_EQ(message({.top_p = 0}), "top-p is 0; allowed: above 0, at most 1");
  EXPECT_EQ(message({.top_p = 1.5f}).substr(0, 8), "top-p is");
  EXPECT_EQ(message({.min_p = -0.5f}), "min-p is -0.5; allowed: 0 to 1");
  EXPECT_EQ(message({.min_p = kNan}).substr(0, 8), "min-p is");
  EXPECT_EQ(message({.repeat_penalty = 0}), "repeat-penalty is 0; allowed: above 0 (1: off)");
  EXPECT_EQ(message({}), "");
}

}  // namespace
}  // namespace kvant
