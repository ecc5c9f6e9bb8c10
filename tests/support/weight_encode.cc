// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// The encoders declared in weight_decode.h.
#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "tests/support/weight_decode.h"

namespace kvant::test {
namespace {

constexpr std::size_t kBlock = 32;
constexpr std::size_t kSuperBlock = 256;

void PutWord(std::vector<std::byte>& out, std::uint16_t word) {
  out.push_back(static_cast<std::byte>(word & 0xffu));
  out.push_back(static_cast<std::byte>(word >> 8));
}

// The code in [low, high] nearest to value / scale; 0 where the scale is 0.
int NearestCode(double value, double scale, int low, int high) {
  if (scale == 0) return std::clamp(0, low, high);
  return std::clamp(static_cast<int>(std::nearbyint(value / scale)), low, high);
}

// Nibbles of 16 bytes; codes [kBlock].
void PutNibbles(std::vector<std::byte>& out, const int* codes) {
  for (std::size_t i = 0; i < kBlock / 2; ++i) {
    out.push_back(static_cast<std::byte>(codes[i] % 16 | codes[i + kBlock / 2] % 16 << 4));
  }
}

// The fifth bits of 32 codes, the first in the lowest bit.
void PutFifthBits(std::vector<std::byte>& out, const int* codes) {
  for (std::size_t at = 0; at < kBlock; at += 8) {
    int byte = 0;
    for (std::size_t i = 0; i < 8; ++i) byte |= codes[at + i] / 16 << i;
    out.push_back(static_cast<std::byte>(byte));
  }
}

double LargestMagnitude(std::span<const double> values) {
  double largest = 0;
  for (const double value : values) {
    if (std::abs(value) > std::abs(largest)) largest = value;
  }
  return largest;
}

// Q4_0 and Q5_0: the largest magnitude becomes the code -half.
void EncodeSigned(std::span<const double> values, int half, std::vector<std::byte>& out) {
  const std::uint16_t d_bits = EncodeHalf(LargestMagnitude(values) / -half);
  int codes[kBlock];
  for (std::size_t i = 0; i < kBlock; ++i) {
    codes[i] = NearestCode(values[i], DecodeHalf(d_bits), -half, half - 1) + half;
  }
  PutWord(out, d_bits);
  if (half == 16) PutFifthBits(out, codes);
  PutNibbles(out, codes);
}

// Q4_1 and Q5_1: minimum and maximum become the codes 0 and `top`.
void EncodeRange(std::span<const double> values, int top, std::vector<std::byte>& out) {
  const auto [low, high] = std::minmax_element(values.begin(), values.end());
  const std::uint16_t d_bits = EncodeHalf((*high - *low) / top);
  const std::uint16_t m_bits = EncodeHalf(*low);
  int codes[kBlock];
  for (std::size_t i = 0; i < kBlock; ++i) {
    codes[i] = NearestCode(values[i] - DecodeHalf(m_bits), DecodeHalf(d_bits), 0, top);
  }
  PutWord(out, d_bits);
  PutWord(out, m_bits);
  if (top == 31) PutFifthBits(out, codes);
  PutNibbles(out, codes);
}

void EncodeQ8_0(std::span<const double> values, std::vector<std::byte>& out) {
  const std::uint16_t d_bits = EncodeHalf(std::abs(LargestMagnitude(values)) / 127);
  PutWord(out, d_bits);
  for (const double value : values) {
    out.push_back(static_cast<std::byte>(NearestCode(value, DecodeHalf(d_bits), -127, 127)));
  }
}

// The nearest entry of the table, asked from the decoder: the codes 0 to 15 with d = 1.
void EncodeTable(std::span<const double> values, std::vector<std::byte>& out) {
  static const std::vector<double> table = [] {
    std::vector<std::byte> block;
    PutWord(block, EncodeHalf(1));
    int codes[kBlock];
    for (int i = 0; i < static_cast<int>(kBlock); ++i) codes[i] = i % 16;
    PutNibbles(block, codes);
    std::vector<double> decoded = DecodeWeights(WeightType::kIQ4_NL, block);
    decoded.resize(16);
    return decoded;
  }();
  const std::uint16_t d_bits = EncodeHalf(LargestMagnitude(values) / -127);
  const double d = DecodeHalf(d_bits);
  int codes[kBlock];
  for (std::size_t i = 0; i < kBlock; ++i) {
    const auto nearest = std::min_element(table.begin(), table.end(), [&](double a, double b) {
      return std::abs(a * d - values[i]) < std::abs(b * d - values[i]);
    });
    codes[i] = static_cast<int>(nearest - table.begin());
  }
  PutWord(out, d_bits);
  PutNibbles(out, codes);
}

// A super-block: one half for the scales and, where there are minima, one for those.
struct SuperBlock {
  std::uint16_t d_bits = 0, dmin_bits = 0;
  int scales[16] = {}, minima[16] = {};  // of the sub-blocks
  int codes[kSuperBlock] = {};
};

// The smallest code whose multiple of `step` is not below `value`.
int CodeAbove(double value, double step, int top) {
  return step == 0 ? 0 : std::clamp(static_cast<int>(std::ceil(value / step)), 0, top);
}

// Q6_K and Q3_K: x = d s (q - half). Every sub-block's largest magnitude becomes the code -half or, where
// its scale is rounded up, nearly that.
SuperBlock FitSigned(std::span<const double> values, int half, int top_scale) {
  SuperBlock block;
  double largest = std::abs(LargestMagnitude(values)) / half;
  block.d_bits = EncodeHalf(largest / top_scale);
  const double d = DecodeHalf(block.d_bits);
  for (std::size_t s = 0; s < 16; ++s) {
    const auto sub = values.subspan(16 * s, 16);
    const double peak = LargestMagnitude(sub);
    block.scales[s] = CodeAbove(std::abs(peak) / half, d, top_scale) * (peak > 0 ? -1 : 1);
    for (std::size_t i = 0; i < 16; ++i) {
      block.codes[16 * s + i] = NearestCode(sub[i], d * block.scales[s], -half, half - 1) + half;
    }
  }
  return block;
}

// Q2_K, Q4_K and Q5_K: x = d s q - dmin m. The minima are rounded up first, then the scales, so that the
// codes 0 to `top` reach over every sub-block.
SuperBlock FitRange(std::span<const double> values, std::size_t sub_size, int top, int top_scale) {
  SuperBlock block;
  const std::size_t n_sub = kSuperBlock / sub_size;
  const auto lowest = [&](std::size_t s) {
    const auto sub = values.subspan(s * sub_size, sub_size);
    return std::max(0.0, -*std::min_element(sub.begin(), sub.end()));
  };
  double deepest = 0;
  for (std::size_t s = 0; s < n_sub; ++s) deepest = std::max(deepest, lowest(s));
  block.dmin_bits = EncodeHalf(deepest / top_scale);
  const double dmin = DecodeHalf(block.dmin_bits);
  double steps[16] = {};
  for (std::size_t s = 0; s < n_sub; ++s) {
    const auto sub = values.subspan(s * sub_size, sub_size);
    block.minima[s] = CodeAbove(lowest(s), dmin, top_scale);
    const double high = *std::max_element(sub.begin(), sub.end());
    steps[s] = std::max(0.0, high + dmin * block.minima[s]) / top;
  }
  block.d_bits = EncodeHalf(*std::max_element(steps, steps + n_sub) / top_scale);
  const double d = DecodeHalf(block.d_bits);
  for (std::size_t s = 0; s < n_sub; ++s) {
    block.scales[s] = CodeAbove(steps[s], d, top_scale);
    for (std::size_t i = s * sub_size; i < (s + 1) * sub_size; ++i) {
      block.codes[i] =
          NearestCode(values[i] + dmin * block.minima[s], d * block.scales[s], 0, top);
    }
  }
  return block;
}

// For every run of `span` codes `span / per_byte` bytes: byte j holds bits [shift, shift + bits) of the
// codes j, j + span / per_byte, ..., the first in its lowest bits.
void PutInterleaved(const SuperBlock& block, int shift, int bits, std::size_t span,
                    std::size_t per_byte, std::vector<std::byte>& out) {
  const std::size_t stride = span / per_byte;
  for (std::size_t at = 0; at < kSuperBlock; at += span) {
    for (std::size_t j = 0; j < stride; ++j) {
      int byte = 0;
      for (std::size_t k = 0; k < per_byte; ++k) {
        const int field = block.codes[at + k * stride + j] >> shift & ((1 << bits) - 1);
        byte |= field << (static_cast<std::size_t>(bits) * k);
      }
      out.push_back(static_cast<std::byte>(byte));
    }
  }
}

void EncodeQ2K(std::span<const double> values, std::vector<std::byte>& out) {
  const SuperBlock block = FitRange(values, 16, 3, 15);
  for (std::size_t s = 0; s < 16; ++s) {
    out.push_back(static_cast<std::byte>(block.scales[s] | block.minima[s] << 4));
  }
  PutInterleaved(block, 0, 2, 128, 4, out);
  PutWord(out, block.d_bits);
  PutWord(out, block.dmin_bits);
}

void EncodeQ3K(std::span<const double> values, std::vector<std::byte>& out) {
  const SuperBlock block = FitSigned(values, 4, 31);
  PutInterleaved(block, 2, 1, 256, 8, out);
  PutInterleaved(block, 0, 2, 128, 4, out);
  const auto scale = [&](std::size_t s) { return block.scales[s] + 32; };
  for (std::size_t j = 0; j < 8; ++j) {
    out.push_back(static_cast<std::byte>(scale(j) % 16 | scale(j + 8) % 16 << 4));
  }
  for (std::size_t j = 0; j < 4; ++j) {
    out.push_back(static_cast<std::byte>(scale(j) / 16 | scale(j + 4) / 16 << 2 |
                                         scale(j + 8) / 16 << 4 | scale(j + 12) / 16 << 6));
  }
  PutWord(out, block.d_bits);
}

void EncodeQ4KOrQ5K(std::span<const double> values, bool five, std::vector<std::byte>& out) {
  const SuperBlock block = FitRange(values, 32, five ? 31 : 15, 63);
  PutWord(out, block.d_bits);
  PutWord(out, block.dmin_bits);
  for (const int* parts : {block.scales, block.minima}) {
    for (std::size_t j = 0; j < 4; ++j) {
      out.push_back(static_cast<std::byte>(parts[j] | parts[j + 4] / 16 << 6));
    }
  }
  for (std::size_t j = 4; j < 8; ++j) {
    out.push_back(static_cast<std::byte>(block.scales[j] % 16 | block.minima[j] % 16 << 4));
  }
  if (five) PutInterleaved(block, 4, 1, 256, 8, out);
  PutInterleaved(block, 0, 4, 64, 2, out);
}

void EncodeQ6K(std::span<const double> values, std::vector<std::byte>& out) {
  const SuperBlock block = FitSigned(values, 32, 127);
  PutInterleaved(block, 0, 4, 128, 2, out);
  PutInterleaved(block, 4, 2, 128, 4, out);
  for (const int scale : block.scales) out.push_back(static_cast<std::byte>(scale));
  PutWord(out, block.d_bits);
}

// Sign, exponent and mantissa of a format with `mantissa` stored bits and smallest normal exponent
// `min_exponent`, rounded to nearest even. Overflow runs into the bits of infinity by itself.
std::uint32_t RoundToBits(double value, int mantissa, int min_exponent) {
  const double magnitude = std::abs(value);
  if (magnitude == 0) return 0;
  const int exponent = std::max(std::ilogb(magnitude), min_exponent);
  const double steps = std::nearbyint(std::ldexp(magnitude, mantissa - exponent));
  // A normal number has steps in [2^mantissa, 2^(mantissa + 1)], and its implicit leading bit
  // counts as one exponent; a subnormal has fewer steps and the exponent field 0.
  return (static_cast<std::uint32_t>(exponent - min_exponent) << mantissa) +
         static_cast<std::uint32_t>(steps);
}

void EncodeBlock(WeightType type, std::span<const double> values, std::vector<std::byte>& out) {
  switch (type) {
    case WeightType::kF32: {
      const auto value = static_cast<float>(values[0]);
      const auto bytes = std::as_bytes(std::span(&value, 1));
      out.insert(out.end(), bytes.begin(), bytes.end());
      return;
    }
    case WeightType::kF16: return PutWord(out, EncodeHalf(values[0]));
    case WeightType::kBF16: {
      const std::uint32_t sign = std::signbit(values[0]) ? 0x8000u : 0u;
      return PutWord(out, static_cast<std::uint16_t>(sign | RoundToBits(values[0], 7, -126)));
    }
    case WeightType::kQ4_0: return EncodeSigned(values, 8, out);
    case WeightType::kQ4_1: return EncodeRange(values, 15, out);
    case WeightType::kQ5_0: return EncodeSigned(values, 16, out);
    case WeightType::kQ5_1: return EncodeRange(values, 31, out);
    case WeightType::kQ8_0: return EncodeQ8_0(values, out);
    case WeightType::kQ2_K: return EncodeQ2K(values, out);
    case WeightType::kQ3_K: return EncodeQ3K(values, out);
    case WeightType::kQ4_K: return EncodeQ4KOrQ5K(values, false, out);
    case WeightType::kQ5_K: return EncodeQ4KOrQ5K(values, true, out);
    case WeightType::kQ6_K: return EncodeQ6K(values, out);
    case WeightType::kIQ4_NL: return EncodeTable(values, out);
  }
  KVANT_CHECK(false && "unknown weight type");
}

}  // namespace

std::uint16_t EncodeHalf(double value) {
  KVANT_CHECK(std::isfinite(value));
  const std::uint32_t sign = std::signbit(value) ? 0x8000u : 0u;
  const std::uint32_t magnitude = std::abs(value) >= 65520 ? 0x7c00u : RoundToBits(value, 10, -14);
  return static_cast<std::uint16_t>(sign | magnitude);
}

std::vector<std::byte> EncodeWeights(WeightType type, std::span<const double> values) {
  const WeightTypeInfo& info = InfoOf(type);
  KVANT_CHECK(values.size() % info.block_values == 0);
  std::vector<std::byte> bytes;
  bytes.reserve(values.size() / info.block_values * info.block_bytes);
  for (std::size_t at = 0; at < values.size(); at += info.block_values) {
    EncodeBlock(type, values.subspan(at, info.block_values), bytes);
  }
  KVANT_CHECK(bytes.size() == values.size() / info.block_values * info.block_bytes);
  return bytes;
}

}  // namespace kvant::test
