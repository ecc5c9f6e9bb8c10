// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

#include "apps/kvant/eval_metrics.h"

#include <algorithm>
#include <cmath>

namespace kvant::cli {

double LogSumExp(std::span<const float> logits) {
  const double max = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float logit : logits) sum += std::exp(static_cast<double>(logit) - max);
  return max + std::log(sum);
}

TokenId ArgMax(std::span<const float> logits) {
  return static_cast<TokenId>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

double KlDivergence(std::span<const float> p_logits, std::span<const float> q_logits) {
  const double p_norm = LogSumExp(p_logits);
  const double q_norm = LogSumExp(q_logits);
  double divergence = 0;
  for (std::size_t i = 0; i < p_logits.size(); ++i) {
    const double log_p = static_cast<double>(p_logits[i]) - p_norm;
    const double log_q = static_cast<double>(q_logits[i]) - q_norm;
    divergence += std::exp(log_p) * (log_p - log_q);
  }
  return std::max(divergence, 0.0);  // rounding may leave -1e-17
}

Distribution Summarize(std::vector<double> values) {
  if (values.empty()) return {};
  std::sort(values.begin(), values.end());
  double sum = 0;
  for (const double value : values) sum += value;
  const auto rank = [&values](double share) {
    const auto index = static_cast<std::size_t>(std::ceil(share * static_cast<double>(values.size())));
    return values[std::clamp<std::size_t>(index, 1, values.size()) - 1];
  };
  return {.mean = sum / static_cast<double>(values.size()),
          .median = rank(0.5),
          .p95 = rank(0.95),
          .p99 = rank(0.99),
          .p999 = rank(0.999)};
}

Perplexity PerplexityOf(std::span<const double> nll) {
  if (nll.empty()) return {};
  const double n = static_cast<double>(nll.size());
  double sum = 0;
  for (const double value : nll) sum += value;
  const double mean = sum / n;
  double squares = 0;
  for (const double value : nll) squares += (value - mean) * (value - mean);
  const double deviation = nll.size() > 1 ? std::sqrt(squares / (n - 1)) : 0;
  return {.mean_nll = mean, .ppl = std::exp(mean), .ppl_se = std::exp(mean) * deviation / std::sqrt(n)};
}

}  // namespace kvant::cli
