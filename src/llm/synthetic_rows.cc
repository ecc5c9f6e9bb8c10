// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

#include "llm/synthetic_rows.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/error.h"
#include "base/half.h"
#include "base/rng.h"

namespace kvant {
namespace {

// Deviation of n whole numbers in a row, all as likely.
double UniformDeviation(double n) { return std::sqrt((n * n - 1) / 12); }
// Root of the mean square of the whole numbers from first on.
double RootMeanSquare(double first, double n) {
  const double mean = first + (n - 1) / 2;
  return std::sqrt(mean * mean + (n * n - 1) / 12);
}

void StoreHalf(double value, std::byte* to) {
  const Half half = FloatToHalf(static_cast<float>(value));
  std::memcpy(to, &half, sizeof(half));
}

// Scales of either sign cancel the mean of codes that reach one step further down than up.
double RandomSign(std::uint64_t bits) { return (bits & 1) != 0 ? -1.0 : 1.0; }

// Q4_K: d, dmin, then eight scales of 6 bits and eight minima in 12 bytes; see weight_repack.cc for their
// order. A minimum is 7.5 steps of its scale, the middle of the codes.
void SetQ4KScales(double deviation, std::uint64_t bits, std::byte* block) {
  const double d = deviation / (UniformDeviation(16) * RootMeanSquare(32, 32));
  StoreHalf(d, block);
  StoreHalf(7.5 * d, block + 2);
  for (unsigned j = 0; j < 4; ++j) {
    const unsigned near = 32 | (bits >> 10 * j & 31);
    const unsigned far = 32 | (bits >> (10 * j + 5) & 31);
    const auto upper = static_cast<std::byte>(near | (far >> 4) << 6);
    block[4 + j] = upper;
    block[8 + j] = upper;
    block[12 + j] = static_cast<std::byte>((far & 15) | (far & 15) << 4);
  }
}

// Q6_K: 128 + 64 bytes of codes, 16 scales of 8 bits, d.
void SetQ6KScales(double deviation, SplitMix64& rng, std::byte* block) {
  for (unsigned j = 0; j < 16; ++j) {
    const std::uint64_t bits = rng.Next();
    const int scale = 64 + static_cast<int>(bits >> 1 & 63);
    block[192 + j] = static_cast<std::byte>((bits & 1) != 0 ? -scale : scale);
  }
  StoreHalf(deviation / (UniformDeviation(64) * RootMeanSquare(64, 64)), block + 208);
}

void SetScales(WeightType type, double deviation, SplitMix64& rng, std::byte* block) {
  switch (type) {
    case WeightType::kQ4_0:
      return StoreHalf(RandomSign(rng.Next()) * deviation / UniformDeviation(16), block);
    case WeightType::kQ8_0:
      return StoreHalf(RandomSign(rng.Next()) * deviation / UniformDeviation(256), block);
    case WeightType::kQ4_1:
      StoreHalf(deviation / UniformDeviation(16), block);
      return StoreHalf(-7.5 * deviation / UniformDeviation(16), block + 2);
    case WeightType::kQ4_K: return SetQ4KScales(deviation, rng.Next(), block);
    case WeightType::kQ6_K: return SetQ6KScales(deviation, rng, block);
    default: KVANT_CHECK(false && "no random rows of this type");
  }
}

}  // namespace

void MakeRandomRow(WeightType type, double deviation, std::uint64_t seed, std::span<std::byte> out) {
  SplitMix64 rng(seed);
  for (std::size_t i = 0; i < out.size(); i += sizeof(std::uint64_t)) {
    const std::uint64_t bits = rng.Next();
    std::memcpy(out.data() + i, &bits, std::min(sizeof(bits), out.size() - i));
  }
  const std::size_t block = InfoOf(type).block_bytes;
  for (std::size_t i = 0; i < out.size(); i += block) {
    SetScales(type, deviation, rng, out.data() + i);
  }
}

}  // namespace kvant
