// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

#include "tests/support/weight_decode.h"

#include <cmath>
#include <cstring>
#include <limits>

#include "base/error.h"

namespace kvant::test {
namespace {

std::uint16_t Word(const std::byte* at) {
  return static_cast<std::uint16_t>(std::to_integer<unsigned>(at[0]) |
                                    std::to_integer<unsigned>(at[1]) << 8);
}

unsigned Byte(const std::byte* at) { return std::to_integer<unsigned>(*at); }

// Value i of the 32 nibbles in 16 bytes.
int Nibble(const std::byte* bytes, std::size_t i) {
  return static_cast<int>(i < 16 ? Byte(bytes + i) % 16 : Byte(bytes + i - 16) / 16);
}

// Bit i of a run of bytes.
int Bit(const std::byte* bytes, std::size_t i) {
  return static_cast<int>(Byte(bytes + i / 8) >> (i % 8)) & 1;
}

// Field number `field` of `bits` bits of a byte, from the lowest.
int Field(const std::byte* byte, int bits, std::size_t field) {
  return static_cast<int>(Byte(byte) >> (static_cast<std::size_t>(bits) * field)) & ((1 << bits) - 1);
}

constexpr int kTable4[] = {-127, -104, -83, -65, -49, -35, -22, -10,
                           1,    13,   25,  38,  53,  69,  89,  113};

double ValueOf32(WeightType type, const std::byte* block, std::size_t i) {
  const double d = DecodeHalf(Word(block));
  switch (type) {
    case WeightType::kQ4_0: return (Nibble(block + 2, i) - 8) * d;
    case WeightType::kQ4_1: return Nibble(block + 4, i) * d + DecodeHalf(Word(block + 2));
    case WeightType::kQ5_0: return (Nibble(block + 6, i) + 16 * Bit(block + 2, i) - 16) * d;
    case WeightType::kQ5_1:
      return (Nibble(block + 8, i) + 16 * Bit(block + 4, i)) * d + DecodeHalf(Word(block + 2));
    case WeightType::kQ8_0: return static_cast<std::int8_t>(Byte(block + 2 + i)) * d;
    case WeightType::kIQ4_NL: return kTable4[Nibble(block + 2, i)] * d;
    default: break;
  }
  KVANT_CHECK(false && "unknown weight type");
}

double ValueOfQ2K(const std::byte* block, std::size_t i) {
  const std::byte* scales = block;
  const std::byte* qs = block + 16;
  const double d = DecodeHalf(Word(block + 80)), dmin = DecodeHalf(Word(block + 82));
  const int q = Field(qs + i / 128 * 32 + i % 32, 2, i % 128 / 32);
  return q * (d * Field(scales + i / 16, 4, 0)) - dmin * Field(scales + i / 16, 4, 1);
}

double ValueOfQ3K(const std::byte* block, std::size_t i) {
  const std::byte* high = block;
  const std::byte* qs = block + 32;
  const std::byte* scales = block + 96;
  const double d = DecodeHalf(Word(block + 108));
  const std::size_t s = i / 16;
  const int scale = Field(scales + s % 8, 4, s / 8) + 16 * Field(scales + 8 + s % 4, 2, s / 4) - 32;
  // A high bit that is 0 takes 4 away.
  const int q = Field(qs + i / 128 * 32 + i % 32, 2, i % 128 / 32) -
                (Field(high + i % 32, 1, i / 32) == 0 ? 4 : 0);
  return d * scale * q;
}

// Scale j of 0 to 7, minimum j - 8 of 8 to 15, from the 12 bytes of Q4_K and Q5_K.
int PackedScale(const std::byte* bytes, std::size_t j) {
  const bool minimum = j >= 8;
  const std::size_t k = j % 8;
  if (k < 4) return static_cast<int>(Byte(bytes + k + (minimum ? 4 : 0)) % 64);
  return Field(bytes + 4 + k, 4, minimum ? 1 : 0) + 16 * Field(bytes + k - (minimum ? 0 : 4), 2, 3);
}

double ValueOfQ4KOrQ5K(const std::byte* block, bool five, std::size_t i) {
  const double d = DecodeHalf(Word(block)), dmin = DecodeHalf(Word(block + 2));
  const std::byte* qs = block + (five ? 48 : 16);
  int q = Field(qs + i / 64 * 32 + i % 32, 4, i % 64 / 32);
  if (five) q += 16 * Field(block + 16 + i % 32, 1, i / 32);
  return q * (d * PackedScale(block + 4, i / 32)) - dmin * PackedScale(block + 4, 8 + i / 32);
}

double ValueOfQ6K(const std::byte* block, std::size_t i) {
  const std::byte* low = block + i / 128 * 64;
  const std::byte* high = block + 128 + i / 128 * 32;
  const std::size_t k = i % 128;
  const int q = Field(low + k % 64, 4, k / 64) + 16 * Field(high + k % 32, 2, k / 32) - 32;
  const double scale = static_cast<std::int8_t>(Byte(block + 192 + i / 16));
  return DecodeHalf(Word(block + 208)) * scale * q;
}

// Value i of a block.
double ValueOf(WeightType type, const std::byte* block, std::size_t i) {
  switch (type) {
    case WeightType::kF32: {
      float value;
      std::memcpy(&value, block, sizeof(value));
      return value;
    }
    case WeightType::kF16: return DecodeHalf(Word(block));
    case WeightType::kBF16: {
      const std::uint32_t bits = std::uint32_t{Word(block)} << 16;
      float value;
      std::memcpy(&value, &bits, sizeof(value));
      return value;
    }
    case WeightType::kQ2_K: return ValueOfQ2K(block, i);
    case WeightType::kQ3_K: return ValueOfQ3K(block, i);
    case WeightType::kQ4_K: return ValueOfQ4KOrQ5K(block, false, i);
    case WeightType::kQ5_K: return ValueOfQ4KOrQ5K(block, true, i);
    case WeightType::kQ6_K: return ValueOfQ6K(block, i);
    default: return ValueOf32(type, block, i);
  }
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

std::vector<double> DecodeWeights(WeightType type, std::span<const std::byte> bytes) {
  const WeightTypeInfo& info = InfoOf(type);
  KVANT_CHECK(bytes.size() % info.block_bytes == 0);
  const std::size_t n_block = bytes.size() / info.block_bytes;
  std::vector<double> values(n_block * info.block_values);
  for (std::size_t block = 0; block < n_block; ++block) {
    for (std::size_t i = 0; i < info.block_values; ++i) {
      values[block * info.block_values + i] =
          ValueOf(type, bytes.data() + block * info.block_bytes, i);
    }
  }
  return values;
}

std::vector<double> DecodeRow(const GgufTensor& tensor, std::size_t row) {
  const WeightTypeInfo& info = InfoOf(tensor.type);
  const std::size_t row_bytes = tensor.dims[0] / info.block_values * info.block_bytes;
  KVANT_CHECK((row + 1) * row_bytes <= tensor.bytes.size());
  return DecodeWeights(tensor.type, tensor.bytes.subspan(row * row_bytes, row_bytes));
}

}  // namespace kvant::test
