// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

#include "kv/transforms/rope.h"

#include <cmath>

#include "base/error.h"

namespace kvant {

RopePhases::RopePhases(const RopeGeometry& rope)
    : n_pair_(rope.n_pair()),
      stride_((n_pair_ + 15) / 16 * 16),
      low_cos_(kLow * stride_),
      low_sin_(kLow * stride_),
      high_cos_(kHigh * stride_),
      high_sin_(kHigh * stride_),
      token_cos_(kBlockTokens * n_pair_),
      token_sin_(kBlockTokens * n_pair_) {
  KVANT_CHECK(stride_ <= kMaxStride);
  for (std::size_t pair = 0; pair < n_pair_; ++pair) {
    const double frequency = rope.frequency[pair];
    for (std::size_t low = 0; low < kLow; ++low) {
      const double angle = static_cast<double>(low * kBlockTokens) * frequency;
      low_cos_[low * stride_ + pair] = static_cast<float>(std::cos(angle));
      low_sin_[low * stride_ + pair] = static_cast<float>(std::sin(angle));
    }
    for (std::size_t high = 0; high < kHigh; ++high) {
      const double angle = static_cast<double>(high * kLow * kBlockTokens) * frequency;
      high_cos_[high * stride_ + pair] = static_cast<float>(std::cos(angle));
      high_sin_[high * stride_ + pair] = static_cast<float>(std::sin(angle));
    }
    for (std::size_t token = 0; token < kBlockTokens; ++token) {
      const double angle = static_cast<double>(token) * frequency;
      token_cos_[token * n_pair_ + pair] = std::cos(angle);
      token_sin_[token * n_pair_ + pair] = std::sin(angle);
    }
  }
}

}  // namespace kvant
