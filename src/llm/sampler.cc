// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

#include "llm/sampler.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace kvant {
namespace {

// Candidates that top-p sorts at first; most choices need no more.
constexpr std::size_t kFirstPrefix = 64;
// Up to so many, a heap of the best while passing over the rest beats partitioning.
constexpr std::size_t kHeapPrefix = 256;

void CheckRange(bool allowed, std::string_view option, double value, std::string_view range) {
  if (!allowed) {
    Fail(ErrorCode::kInvalidArgument, "{} is {}; allowed: {}", option, value, range);
  }
}

// The largest number of a block; -infinity where there is none. In independent lanes, which compilers turn into
// vectors: a vocabulary of 262,144 would else take a good part of a small model's step.
float LargestOf(std::span<const float> block) {
  constexpr std::size_t kLanes = 16;
  float largest[kLanes];
  std::fill_n(largest, kLanes, -INFINITY);
  std::size_t i = 0;
  for (; i + kLanes <= block.size(); i += kLanes) {
    for (std::size_t lane = 0; lane < kLanes; ++lane) {
      const float x = block[i + lane];
      largest[lane] = x > largest[lane] ? x : largest[lane];
    }
  }
  for (; i < block.size(); ++i) largest[0] = block[i] > largest[0] ? block[i] : largest[0];
  return *std::max_element(largest, largest + kLanes);
}

// The lowest id among the largest logits; -1 where none is a number above -infinity.
TokenId Greedy(std::span<const float> logits) {
  constexpr std::size_t kBlock = 1024;
  float best = -INFINITY;
  std::size_t best_block = 0;
  for (std::size_t begin = 0; begin < logits.size(); begin += kBlock) {
    const float largest = LargestOf(logits.subspan(begin, std::min(kBlock, logits.size() - begin)));
    if (largest > best) {
      best = largest;
      best_block = begin;
    }
  }
  if (best == -INFINITY) return -1;
  const auto at = std::find(logits.begin() + static_cast<std::ptrdiff_t>(best_block), logits.end(), best);
  return static_cast<TokenId>(at - logits.begin());
}

// A seen token gets less likely: positive logits are divided, negative ones multiplied.
void Penalize(std::span<float> logits, std::span<const TokenId> recent, float penalty) {
  std::vector<TokenId> seen(recent.begin(), recent.end());
  std::sort(seen.begin(), seen.end());
  seen.erase(std::unique(seen.begin(), seen.end()), seen.end());
  for (const TokenId id : seen) {
    if (id < 0 || static_cast<std::size_t>(id) >= logits.size()) continue;
    float& logit = logits[static_cast<std::size_t>(id)];
    logit = logit > 0 ? logit / penalty : logit * penalty;
  }
}

}  // namespace

Sampler::Sampler(const SamplerOptions& options) : options_(options), rng_(options.seed) {
  const SamplerOptions& o = options;
  CheckRange(o.temperature >= 0 && std::isfinite(o.temperature), "temperature", o.temperature,
             "0 (greedy) or more");
  CheckRange(o.top_p > 0 && o.top_p <= 1, "top-p", o.top_p, "above 0, at most 1");
  CheckRange(o.min_p >= 0 && o.min_p <= 1, "min-p", o.min_p, "0 to 1");
  CheckRange(o.repeat_penalty > 0 && std::isfinite(o.repeat_penalty), "repeat-penalty",
             o.repeat_penalty, "above 0 (1: off)");
}

TokenId Sampler::Sample(std::span<const float> logits, std::span<const TokenId> history) {
  std::span<const float> used = logits;
  if (options_.repeat_penalty != 1.0f) {
    penalized_.assign(logits.begin(), logits.end());
    const std::size_t n = std::min(options_.repeat_last_n, history.size());
    Penalize(penalized_, history.last(n), options_.repeat_penalty);
    used = penalized_;
  }
  const TokenId best = Greedy(used);
  if (best < 0)
    Fail(ErrorCode::kInternal, "the model gave no finite logit; its weights are damaged");
  // An infinite logit has all the probability.
  if (options_.temperature == 0.0f || std::isinf(used[static_cast<std::size_t>(best)])) return best;
  Collect(used, best);
  KeepTopK();
  Weigh(used[static_cast<std::size_t>(best)]);
  KeepTopP();
  return Draw();
}

void Sampler::Collect(std::span<const float> logits, TokenId best) {
  const double max = logits[static_cast<std::size_t>(best)];
  const double temperature = options_.temperature;
  // p >= min_p * p_best is, in logits: logit >= max + temperature * ln(min_p).
  const double floor = options_.min_p > 0
                           ? max + temperature * std::log(static_cast<double>(options_.min_p))
                           : -INFINITY;
  candidates_.clear();
  for (std::size_t i = 0; i < logits.size(); ++i) {
    if (!(logits[i] > -INFINITY && logits[i] >= floor)) continue;
    candidates_.push_back({0, logits[i], static_cast<TokenId>(i)});
  }
}

// Puts the candidates of ranks [first, last) there, in order: by falling logit, ties by rising id.
// Those before `first` are in place.
void Sampler::SortPrefix(std::size_t first, std::size_t last) {
  const auto before = [](const Candidate& a, const Candidate& b) {
    return a.logit != b.logit ? a.logit > b.logit : a.id < b.id;
  };
  const auto at = [this](std::size_t i) {
    return candidates_.begin() + static_cast<std::ptrdiff_t>(i);
  };
  if (last - first <= kHeapPrefix) {
    std::partial_sort(at(first), at(last), candidates_.end(), before);
    return;
  }
  std::nth_element(at(first), at(last - 1), candidates_.end(), before);
  std::sort(at(first), at(last), before);
}

void Sampler::KeepTopK() {
  if (options_.top_k == 0 || options_.top_k >= candidates_.size()) return;
  SortPrefix(0, options_.top_k);
  candidates_.resize(options_.top_k);
}

void Sampler::Weigh(float best_logit) {
  const double max = best_logit;
  const double temperature = options_.temperature;
  for (Candidate& candidate : candidates_) {
    candidate.weight = std::exp((candidate.logit - max) / temperature);
  }
}

// The shortest prefix of the sorted candidates whose probabilities sum to top_p or more.
void Sampler::KeepTopP() {
  if (options_.top_p >= 1.0f) return;
  const double wanted = static_cast<double>(options_.top_p) * TotalWeight();
  double sum = 0;
  std::size_t n = 0;
  std::size_t sorted = 0;
  while (n < candidates_.size() && sum < wanted) {
    if (n == sorted) {
      const std::size_t next = std::min(candidates_.size(), std::max(kFirstPrefix, 4 * sorted));
      SortPrefix(sorted, next);
      sorted = next;
    }
    sum += candidates_[n++].weight;
  }
  candidates_.resize(n);
}

double Sampler::TotalWeight() const {
  double total = 0;
  for (const Candidate& candidate : candidates_) total += candidate.weight;
  return total;
}

TokenId Sampler::Draw() {
  double rest = rng_.Uniform() * TotalWeight();
  TokenId chosen = -1;
  for (const Candidate& candidate : candidates_) {
    if (candidate.weight == 0) continue;
    chosen = candidate.id;
    rest -= candidate.weight;
    if (rest < 0) break;
  }
  return chosen;  // the last one where rounding leaves a rest
}

}  // namespace kvant
