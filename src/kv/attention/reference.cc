// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

#include "kv/attention/reference.h"

#include <algorithm>
#include <cmath>

namespace kvant {

std::vector<double> ReferenceAttention(const ReferenceShape& shape, std::size_t position,
                                       const float* query, double scale, const ReferenceRow& key,
                                       const ReferenceRow& value, std::size_t window,
                                       std::vector<double>* mass) {
  const std::size_t n_q_head = shape.n_kv_head * shape.heads_per_kv;
  const std::size_t first = window == 0 || window > position ? 0 : position - window + 1;
  std::vector<double> output(n_q_head * shape.head_dim, 0.0);
  if (mass != nullptr) mass->assign(shape.n_kv_head * (position + 1), 0.0);
  for (std::size_t q_head = 0; q_head < n_q_head; ++q_head) {
    const std::size_t kv_head = q_head / shape.heads_per_kv;
    const float* q = query + q_head * shape.head_dim;
    std::vector<double> score(position + 1, -INFINITY);
    for (std::size_t t = first; t <= position; ++t) {
      const float* k = key(kv_head, position, t);
      score[t] = 0;
      for (std::size_t d = 0; d < shape.head_dim; ++d) {
        score[t] += scale * static_cast<double>(q[d]) * static_cast<double>(k[d]);
      }
    }
    const double max = *std::max_element(score.begin(), score.end());
    double sum = 0;
    for (double& s : score) sum += s = std::exp(s - max);
    for (std::size_t t = first; t <= position; ++t) {
      if (mass != nullptr) (*mass)[kv_head * (position + 1) + t] += score[t] / sum;
      const float* v = value(kv_head, position, t);
      for (std::size_t d = 0; d < shape.head_dim; ++d) {
        output[q_head * shape.head_dim + d] += score[t] / sum * static_cast<double>(v[d]);
      }
    }
  }
  return output;
}

}  // namespace kvant
