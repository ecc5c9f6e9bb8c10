// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// The codecs of rotated rows in plain loops and doubles, written from the formulas: sign sequence, matrices
// entry by entry, search over all levels. Shares no code with the kernels; reads canonical bytes only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace kvant::test {

/// The orthogonal matrix that rotates rows, [head_dim, head_dim], row = output (kv/transforms/rotation.h).
std::vector<double> RotationMatrix(std::size_t head_dim, std::uint64_t seed, std::size_t layer, bool value);

/// matrix * row.
std::vector<double> Times(const std::vector<double>& matrix, std::span<const double> row);
/// transposed matrix * row.
std::vector<double> TransposedTimes(const std::vector<double>& matrix, std::span<const double> row);

/// Codes [64, head_dim] of `bits` bits and scalars [64] from the canonical bytes of one side.
struct CanonicalSide {
  std::vector<std::uint32_t> codes;
  std::vector<double> scalars;
};
CanonicalSide ReadCanonical(std::span<const std::byte> bytes, std::size_t head_dim, unsigned bits);

}  // namespace kvant::test
