// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// Attention as the formula says it, in double precision, for tests: plain loops over rows, no blocks, no
// tiles, no running maximum. Shares no code with the kernels that it checks.
#pragma once

#include <cstddef>
#include <functional>
#include <vector>

namespace kvant {

struct ReferenceShape {
  std::size_t n_kv_head, heads_per_kv, head_dim;
};

/// The key and value that a query at q_position reads for kv_position, each [head_dim] for one KV head.
using ReferenceRow = std::function<const float*(std::size_t kv_head, std::size_t q_position,
                                                std::size_t kv_position)>;

/// Output [n_q_head, head_dim] of one query token at `position`: for each head
///   sum_t softmax_t(scale * q . k_t) v_t over t = 0..position (the last `window` of them where
/// that is not 0).
/// `query` is [n_q_head, head_dim]. `mass`, unless nullptr, becomes [n_kv_head, position + 1]: the
/// softmax of each token, summed over the heads of each KV head.
std::vector<double> ReferenceAttention(const ReferenceShape& shape, std::size_t position,
                                       const float* query, double scale, const ReferenceRow& key,
                                       const ReferenceRow& value, std::size_t window = 0,
                                       std::vector<double>* mass = nullptr);

}  // namespace kvant
