// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

#include "tests/support/row_reference.h"

#include <bit>
#include <cmath>
#include <numbers>

#include "base/half.h"

namespace kvant::test {
namespace {

// SplitMix64 by its published constants.
std::uint64_t NextRandom(std::uint64_t& state) {
  state += 0x9e3779b97f4a7c15u;
  std::uint64_t z = state;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

}  // namespace

std::vector<double> RotationMatrix(std::size_t head_dim, std::uint64_t seed, std::size_t layer,
                                   bool value) {
  std::size_t chunk = 1;
  while (head_dim % (2 * chunk) == 0) chunk *= 2;
  const std::size_t n_chunk = head_dim / chunk;
  std::vector<double> signs;
  std::uint64_t state = seed + 2 * layer + (value ? 1 : 0);
  for (std::size_t word = 0; word * 64 < head_dim; ++word) {
    const std::uint64_t bits = NextRandom(state);
    for (std::size_t i = 0; i < 64; ++i) signs.push_back((bits >> i & 1) != 0 ? -1 : 1);
  }
  std::vector<double> matrix(head_dim * head_dim);
  for (std::size_t out = 0; out < head_dim; ++out) {
    for (std::size_t in = 0; in < head_dim; ++in) {
      // Hadamard entry (j, j') is (-1)^(bits that j and j' share); DCT-II entry (k, i) across chunks.
      const std::size_t shared = (out % chunk) & (in % chunk);
      const double hadamard = (std::popcount(shared) % 2 == 0 ? 1.0 : -1.0) / std::sqrt(double(chunk));
      const double k = static_cast<double>(out / chunk);
      const double i = static_cast<double>(in / chunk);
      const double n = static_cast<double>(n_chunk);
      const double dct = std::sqrt((k == 0 ? 1.0 : 2.0) / n) *
                         std::cos(std::numbers::pi * k * (2 * i + 1) / (2 * n));
      matrix[out * head_dim + in] = dct * hadamard * signs[in];
    }
  }
  return matrix;
}

std::vector<double> Times(const std::vector<double>& matrix, std::span<const double> row) {
  std::vector<double> out(row.size(), 0.0);
  for (std::size_t i = 0; i < row.size(); ++i) {
    for (std::size_t j = 0; j < row.size(); ++j) out[i] += matrix[i * row.size() + j] * row[j];
  }
  return out;
}

std::vector<double> TransposedTimes(const std::vector<double>& matrix, std::span<const double> row) {
  std::vector<double> out(row.size(), 0.0);
  for (std::size_t i = 0; i < row.size(); ++i) {
    for (std::size_t j = 0; j < row.size(); ++j) out[i] += matrix[j * row.size() + i] * row[j];
  }
  return out;
}

CanonicalSide ReadCanonical(std::span<const std::byte> bytes, std::size_t head_dim, unsigned bits) {
  CanonicalSide side;
  const std::size_t row_bytes = (head_dim * bits + 7) / 8;
  for (std::size_t token = 0; token < 64; ++token) {
    for (std::size_t dim = 0; dim < head_dim; ++dim) {
      std::uint32_t code = 0;
      for (unsigned b = 0; b < bits; ++b) {
        const std::size_t at = token * row_bytes * 8 + dim * bits + b;
        code |= (std::to_integer<std::uint32_t>(bytes[at / 8]) >> at % 8 & 1) << b;
      }
      side.codes.push_back(code);
    }
  }
  for (std::size_t token = 0; token < 64; ++token) {
    const std::size_t at = 64 * row_bytes + 2 * token;
    const auto low = std::to_integer<std::uint16_t>(bytes[at]);
    const auto high = std::to_integer<std::uint16_t>(bytes[at + 1]);
    side.scalars.push_back(
        static_cast<double>(HalfToFloat(Half{static_cast<std::uint16_t>(low | high << 8)})));
  }
  return side;
}

}  // namespace kvant::test
