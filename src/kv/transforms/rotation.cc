// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

#include "kv/transforms/rotation.h"

#include <cmath>
#include <numbers>

#include "base/error.h"
#include "base/rng.h"

namespace kvant {

Rotation MakeRotation(std::size_t head_dim, std::uint64_t seed, std::size_t layer, Side side) {
  KVANT_CHECK(head_dim > 0 && head_dim % 16 == 0);
  Rotation rotation;
  rotation.head_dim = head_dim;
  rotation.chunk = head_dim & (~head_dim + 1);  // the lowest set bit
  rotation.n_chunk = head_dim / rotation.chunk;
  const auto scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(rotation.chunk)));
  SplitMix64 rng(seed + 2 * layer + (side == Side::kValue ? 1 : 0));
  std::uint64_t bits = 0;
  for (std::size_t i = 0; i < head_dim; ++i) {
    if (i % 64 == 0) bits = rng.Next();
    rotation.signs.push_back((bits >> (i % 64) & 1) != 0 ? -scale : scale);
  }
  if (rotation.n_chunk == 1) return rotation;
  const auto n = static_cast<double>(rotation.n_chunk);
  for (std::size_t k = 0; k < rotation.n_chunk; ++k) {
    const double norm = std::sqrt((k == 0 ? 1.0 : 2.0) / n);
    for (std::size_t i = 0; i < rotation.n_chunk; ++i) {
      const double angle =
          std::numbers::pi * static_cast<double>(k) * (static_cast<double>(i) + 0.5) / n;
      rotation.dct.push_back(static_cast<float>(norm * std::cos(angle)));
    }
  }
  return rotation;
}

}  // namespace kvant
