// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// Teacher-forced quality figures from logits, one position at a time. Logarithms are natural; sums are in
// double.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "llm/tokenizer.h"

namespace kvant::cli {

/// log sum exp of the logits.
double LogSumExp(std::span<const float> logits);
/// Lowest id among the largest logits.
TokenId ArgMax(std::span<const float> logits);
/// KL(p || q) in nats, p = softmax(p_logits): exactly 0 for equal logits.
double KlDivergence(std::span<const float> p_logits, std::span<const float> q_logits);

struct Distribution {
  double mean = 0, median = 0, p95 = 0, p99 = 0, p999 = 0;
};
/// Nearest-rank percentiles. Zeros for an empty list.
Distribution Summarize(std::vector<double> values);

/// Perplexity exp(mean nll) and its standard error by the delta method, ppl * sd / sqrt(n).
struct Perplexity {
  double mean_nll = 0, ppl = 0, ppl_se = 0;
};
Perplexity PerplexityOf(std::span<const double> nll);

}  // namespace kvant::cli
