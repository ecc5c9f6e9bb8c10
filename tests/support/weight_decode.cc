// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

#include "tests/support/weight_decode.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/error.h"

namespace kvant::test {
namespace {

constexpr std::size_t kBlock = 32;

std::uint16_t Word(const std::byte* at) {
  return static_cast<std::uint16_t>(std::to_integer<unsigned>(at[0]) |
                                    std::to_integer<unsigned>(at[1]) << 8);
}

void PutWord(std::vector<std::byte>& out, std::uint16_t word) {
  out.push_back(static_cast<std::byte>(word & 0xffu));
  out.push_back(static_cast<std::byte>(word >> 8));
}

// Value i of the 32 nibbles in 16 bytes.
double Nibble(const std::byte* bytes, std::size_t i) {
  const auto byte = std::to_integer<unsigned>(bytes[i % 16]);
  return i < 16 ? byte & 15u : byte >> 4;
}

// Writes block_values values.
void DecodeBlock(WeightType type, const std::byte* block, double* out) {
  switch (type) {
    case WeightType::kF32: {
      float value;
      std::memcpy(&value, block, sizeof(value));
      out[0] = value;
      return;
    }
    case WeightType::kF16:
      out[0] = DecodeHalf(Word(block));
      return;
    case WeightType::kBF16: {
      const std::uint32_t bits = std::uint32_t{Word(block)} << 16;
      float value;
      std::memcpy(&value, &bits, sizeof(value));
      out[0] = value;
      return;
    }
    case WeightType::kQ4_0: {
      const double d = DecodeHalf(Word(block));
      for (std::size_t i = 0; i < kBlock; ++i) out[i] = (Nibble(block + 2, i) - 8) * d;
      return;
    }
    case WeightType::kQ4_1: {
      const double d = DecodeHalf(Word(block));
      const double m = DecodeHalf(Word(block + 2));
      for (std::size_t i = 0; i < kBlock; ++i) out[i] = Nibble(block + 4, i) * d + m;
      return;
    }
    case WeightType::kQ8_0: {
      const double d = DecodeHalf(Word(block));
      for (std::size_t i = 0; i < kBlock; ++i) {
        out[i] = static_cast<std::int8_t>(std::to_integer<std::uint8_t>(block[2 + i])) * d;
      }
      return;
    }
  }
  KVANT_CHECK(false && "unknown weight type");
}

// The code in [low, high] nearest to value / scale; 0 where the scale is 0.
int NearestCode(double value, double scale, int low, int high) {
  if (scale == 0) return std::clamp(0, low, high);
  return std::clamp(static_cast<int>(std::nearbyint(value / scale)), low, high);
}

void PutNibbles(std::vector<std::byte>& out, const int (&codes)[kBlock]) {
  for (std::size_t i = 0; i < kBlock / 2; ++i) {
    out.push_back(static_cast<std::byte>(codes[i] | codes[i + kBlock / 2] << 4));
  }
}

double LargestMagnitude(std::span<const double> values) {
  double largest = 0;
  for (const double value : values) {
    if (std::abs(value) > std::abs(largest)) largest = value;
  }
  return largest;
}

void EncodeQ4_0(std::span<const double> values, std::vector<std::byte>& out) {
  const std::uint16_t d_bits = EncodeHalf(LargestMagnitude(values) / -8);
  int codes[kBlock];
  for (std::size_t i = 0; i < kBlock; ++i) {
    codes[i] = NearestCode(values[i], DecodeHalf(d_bits), -8, 7) + 8;
  }
  PutWord(out, d_bits);
  PutNibbles(out, codes);
}

void EncodeQ4_1(std::span<const double> values, std::vector<std::byte>& out) {
  const auto [low, high] = std::minmax_element(values.begin(), values.end());
  const std::uint16_t d_bits = EncodeHalf((*high - *low) / 15);
  const std::uint16_t m_bits = EncodeHalf(*low);
  int codes[kBlock];
  for (std::size_t i = 0; i < kBlock; ++i) {
    codes[i] = NearestCode(values[i] - DecodeHalf(m_bits), DecodeHalf(d_bits), 0, 15);
  }
  PutWord(out, d_bits);
  PutWord(out, m_bits);
  PutNibbles(out, codes);
}

void EncodeQ8_0(std::span<const double> values, std::vector<std::byte>& out) {
  const std::uint16_t d_bits = EncodeHalf(std::abs(LargestMagnitude(values)) / 127);
  PutWord(out, d_bits);
  for (const double value : values) {
    out.push_back(static_cast<std::byte>(NearestCode(value, DecodeHalf(d_bits), -127, 127)));
  }
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
    case WeightType::kF16:
      return PutWord(out, EncodeHalf(values[0]));
    case WeightType::kBF16: {
      const std::uint32_t sign = std::signbit(values[0]) ? 0x8000u : 0u;
      return PutWord(out, static_cast<std::uint16_t>(sign | RoundToBits(values[0], 7, -126)));
    }
    case WeightType::kQ4_0:
      return EncodeQ4_0(values, out);
    case WeightType::kQ4_1:
      return EncodeQ4_1(values, out);
    case WeightType::kQ8_0:
      return EncodeQ8_0(values, out);
  }
  KVANT_CHECK(false && "unknown weight type");
}

}  // namespace

double DecodeHalf(std::uint16_t bits) {
  const int exponent = bits >> 10 & 31;
  const int mantissa = bits & 1023;
  double magnitude = 0;
  if (exponent == 31) {
    magnitude = mantissa == 0 ? std::numeric_limits<double>::infinity()
                              : std::numeric_limits<double>::quiet_NaN();
  } else if (exponent == 0) {
    magnitude = std::ldexp(mantissa, -24);
  } else {
    magnitude = std::ldexp(1024 + mantissa, exponent - 25);
  }
  return (bits & 0x8000u) != 0 ? -magnitude : magnitude;
}

std::uint16_t EncodeHalf(double value) {
  KVANT_CHECK(std::isfinite(value));
  const std::uint32_t sign = std::signbit(value) ? 0x8000u : 0u;
  const std::uint32_t magnitude = std::abs(value) >= 65520 ? 0x7c00u : RoundToBits(value, 10, -14);
  return static_cast<std::uint16_t>(sign | magnitude);
}

std::vector<double> DecodeWeights(WeightType type, std::span<const std::byte> bytes) {
  const WeightTypeInfo& info = InfoOf(type);
  KVANT_CHECK(bytes.size() % info.block_bytes == 0);
  const std::size_t n_block = bytes.size() / info.block_bytes;
  std::vector<double> values(n_block * info.block_values);
  for (std::size_t block = 0; block < n_block; ++block) {
    DecodeBlock(type, bytes.data() + block * info.block_bytes,
                values.data() + block * info.block_values);
  }
  return values;
}

std::vector<double> DecodeRow(const GgufTensor& tensor, std::size_t row) {
  const WeightTypeInfo& info = InfoOf(tensor.type);
  const std::size_t row_bytes = tensor.dims[0] / info.block_values * info.block_bytes;
  KVANT_CHECK((row + 1) * row_bytes <= tensor.bytes.size());
  return DecodeWeights(tensor.type, tensor.bytes.subspan(row * row_bytes, row_bytes));
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
