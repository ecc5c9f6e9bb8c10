// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// How a model turns keys with their position (RoPE, arXiv 2104.09864), as far as a cache must know it: keys
// are cached after RoPE, and statistics of keys are only constant before it.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "kv/block.h"

namespace kvant {

/// Pair i of a row turns by position * frequency[i] radians. Channels beyond the pairs do not turn.
struct RopeGeometry {
  std::vector<double> frequency;  // [n_pair]
  bool adjacent_pairs = true;     // pair i is channels (2 i, 2 i + 1); else (i, i + n_pair)

  std::size_t n_pair() const { return frequency.size(); }
  std::size_t first(std::size_t pair) const { return adjacent_pairs ? 2 * pair : pair; }
  std::size_t second(std::size_t pair) const {
    return adjacent_pairs ? 2 * pair + 1 : pair + n_pair();
  }
};

/// Turns by whole blocks of tokens, from two small tables: block b = 64 * high + low turns by the product
/// of high[high] and low[low]. Constant in size, so that nothing grows with the context.
class RopePhases {
 public:
  static constexpr std::size_t kLow = 64;
  static constexpr std::size_t kHigh = 256;
  /// Positions from here on have no phase.
  static constexpr std::size_t kMaxTokens = kLow * kHigh * kBlockTokens;

  explicit RopePhases(const RopeGeometry& rope);

  /// Floats of one row of the tables by blocks: n_pair rounded up to 16, zeros behind.
  std::size_t stride() const { return stride_; }
  static constexpr std::size_t kMaxStride = 512;
  /// cos and sin of the turn by `low` blocks, for each pair: [stride].
  const float* low_cos(std::size_t low) const { return low_cos_.data() + low * stride_; }
  const float* low_sin(std::size_t low) const { return low_sin_.data() + low * stride_; }
  /// The turn by 64 * `high` blocks, for each pair: [stride].
  const float* high_cos(std::size_t high) const { return high_cos_.data() + high * stride_; }
  const float* high_sin(std::size_t high) const { return high_sin_.data() + high * stride_; }
  /// The turn by `token` tokens (0 to 63), for each pair: [n_pair].
  const double* token_cos(std::size_t token) const { return token_cos_.data() + token * n_pair_; }
  const double* token_sin(std::size_t token) const { return token_sin_.data() + token * n_pair_; }

 private:
  std::size_t n_pair_;
  std::size_t stride_;
  std::vector<float> low_cos_, low_sin_;       // [kLow, stride]
  std::vector<float> high_cos_, high_sin_;     // [kHigh, stride]
  std::vector<double> token_cos_, token_sin_;  // [kBlockTokens, n_pair]
};

}  // namespace kvant
