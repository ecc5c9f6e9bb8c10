// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// Reproducible random numbers: the same seed gives the same sequence on every compiler and machine
// (std::normal_distribution does not promise that). Not for cryptography.
#pragma once

#include <cmath>
#include <cstdint>
#include <numbers>

namespace kvant {

/// SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014): state is
/// one counter, so a seed of any value is good and streams are derived by hashing.
class SplitMix64 {
 public:
  explicit SplitMix64(std::uint64_t seed) : state_(seed) {}

  std::uint64_t Next() {
    state_ += 0x9e3779b97f4a7c15u;
    std::uint64_t z = state_;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  /// Uniform in [0, 1), 53 bits.
  double Uniform() { return static_cast<double>(Next() >> 11) * 0x1p-53; }
  /// Uniform integer in [0, n), n > 0. The bias is below n / 2^64.
  std::uint64_t Below(std::uint64_t n) {
    return static_cast<std::uint64_t>((static_cast<unsigned __int128>(Next()) * n) >> 64);
  }
  /// Standard normal (Box-Muller; one value per two draws, so that the sequence has no hidden state).
  double Normal() {
    const double u = 1.0 - Uniform();
    const double v = Uniform();
    return std::sqrt(-2.0 * std::log(u)) * std::cos(2.0 * std::numbers::pi * v);
  }

 private:
  std::uint64_t state_;
};

}  // namespace kvant
