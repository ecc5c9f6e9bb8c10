// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

#include "llm/sampler.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace kvant {
namespace {

void CheckRange(bool allowed, std::string_view option, double value, std::string_view range) {
  if (!allowed) {
    Fail(ErrorCode::kInvalidArgument, "{} is {}; allowed: {}", option, value, range);
  }
}

// The lowest id among the largest logits; -1 where none is a number above -infinity.
TokenId Greedy(std::span<const float> logits) {
  TokenId best = -1;
  float best_logit = -INFINITY;
  for (std::size_t i = 0; i < logits.size(); ++i) {
    if (logits[i] > best_logit) {
      best_logit = logits[i];
      best = static_cast<TokenId>(i);
    }
  }
  return best;
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
    scaled_.assign(logits.begin(), logits.end());
    const std::size_t n = std::min(options_.repeat_last_n, history.size());
    Penalize(scaled_, history.last(n), options_.repeat_penalty);
    used = scaled_;
  }
  const TokenId best = Greedy(used);
  if (best < 0) Fail(ErrorCode::kInternal, "the model gave no finite logit; its weights are damaged");
  if (options_.temperature == 0.0f) return best;

  // Candidates by falling logit, ties by rising id: only as many as can be chosen are sorted.
  const double max = used[static_cast<std::size_t>(best)];
  const double temperature = options_.temperature;
  order_.clear();
  // min-p keeps p >= min_p * p_best, that is logit >= max + temperature * ln(min_p).
  const double floor =
      options_.min_p > 0 ? max + temperature * std::log(static_cast<double>(options_.min_p)) : -INFINITY;
  for (std::size_t i = 0; i < used.size(); ++i) {
    if (used[i] > -INFINITY && used[i] >= floor) order_.push_back(static_cast<TokenId>(i));
  }
  const auto before = [&used](TokenId a, TokenId b) {
    const float x = used[static_cast<std::size_t>(a)];
    const float y = used[static_cast<std::size_t>(b)];
    return x != y ? x > y : a < b;
  };
  std::size_t keep = order_.size();
  if (options_.top_k > 0) keep = std::min(keep, options_.top_k);
  if (options_.top_p < 1.0f || keep < order_.size()) {
    std::partial_sort(order_.begin(), order_.begin() + static_cast<std::ptrdiff_t>(keep), order_.end(),
                      before);
    order_.resize(keep);
  }
  double total = 0;
  for (const TokenId id : order_) {
    total += std::exp((used[static_cast<std::size_t>(id)] - max) / temperature);
  }
  if (options_.top_p < 1.0f) {
    double sum = 0;
    std::size_t n = 0;
    while (n < order_.size() && sum < static_cast<double>(options_.top_p) * total) {
      sum += std::exp((used[static_cast<std::size_t>(order_[n++])] - max) / temperature);
    }
    order_.resize(n);
    total = sum;
  }
  double target = rng_.Uniform() * total;
  for (const TokenId id : order_) {
    target -= std::exp((used[static_cast<std::size_t>(id)] - max) / temperature);
    if (target < 0) return id;
  }
  return order_.back();  // rounding may leave a rest of the last bit
}

}  // namespace kvant
