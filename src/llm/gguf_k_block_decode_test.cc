// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// The tests' own decoders of 5-bit and table codes and of the blocks of 256 values, against blocks written
// out by hand. Every code and every position of a packed scale is in them.

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "tests/support/weight_decode.h"

namespace kvant::test {
namespace {

using Bytes = std::vector<std::byte>;

void Append(Bytes& bytes, std::initializer_list<unsigned> values) {
  for (const unsigned value : values) bytes.push_back(static_cast<std::byte>(value));
}

// Half 0.5 and half 0.25, little-endian.
constexpr unsigned kHalf[] = {0x00, 0x38}, kQuarter[] = {0x00, 0x34};

TEST(WeightDecodeByHand, FiveBitCodes) {
  Bytes q5_0, q5_1;
  Append(q5_0, {kHalf[0], kHalf[1]});
  Append(q5_1, {kHalf[0], kHalf[1], 0x00, 0xc0});  // m = -2
  for (Bytes* block : {&q5_0, &q5_1}) {
    // Fifth bits: set for the values 1, 3, 5, ... of the first half, 0, 2, 4, ... of the second.
    Append(*block, {0xaa, 0xaa, 0x55, 0x55});
    for (unsigned i = 0; i < 16; ++i) Append(*block, {i | (15 - i) << 4});
  }
  const std::vector<double> got_0 = DecodeWeights(WeightType::kQ5_0, q5_0);
  const std::vector<double> got_1 = DecodeWeights(WeightType::kQ5_1, q5_1);
  ASSERT_EQ(got_0.size(), 32u);
  ASSERT_EQ(got_1.size(), 32u);
  for (int i = 0; i < 32; ++i) {
    const int low = i < 16 ? i : 31 - i;
    const bool fifth = i < 16 ? i % 2 == 1 : i % 2 == 0;
    EXPECT_EQ(got_0[i], (low + (fifth ? 16 : 0) - 16) * 0.5) << i;
    EXPECT_EQ(got_1[i], (low + (fifth ? 16 : 0)) * 0.5 - 2) << i;
  }
}

TEST(WeightDecodeByHand, TableCodes) {
  Bytes block;
  Append(block, {kHalf[0], kHalf[1]});
  for (unsigned i = 0; i < 16; ++i) Append(block, {i | (15 - i) << 4});
  EXPECT_EQ(DecodeWeights(WeightType::kIQ4_NL, block),
            (std::vector<double>{-63.5, -52,   -41.5, -32.5, -24.5, -17.5, -11,   -5,
                                 0.5,   6.5,   12.5,  19,    26.5,  34.5,  44.5,  56.5,
                                 56.5,  44.5,  34.5,  26.5,  19,    12.5,  6.5,   0.5,
                                 -5,    -11,   -17.5, -24.5, -32.5, -41.5, -52,   -63.5}));
}

// Codes of 2 bits: byte k of 32 holds the values k, k + 32, k + 64, k + 96 of 128. Here byte k of run n has
// the fields k, k + 1, k + 2, k + 3 (each modulo 4), one more in the second run.
unsigned TwoBitByte(unsigned n, unsigned k) {
  const unsigned a = (k + n) % 4, b = (k + n + 1) % 4, c = (k + n + 2) % 4, d = (k + n + 3) % 4;
  return a | b << 2 | c << 4 | d << 6;
}
int TwoBitCode(int i) { return (i % 32 + i / 128 + i % 128 / 32) % 4; }

TEST(WeightDecodeByHand, Q2K) {
  Bytes block;
  for (unsigned s = 0; s < 16; ++s) Append(block, {s | (15 - s) << 4});  // scale s, minimum 15 - s
  for (unsigned n = 0; n < 2; ++n) {
    for (unsigned k = 0; k < 32; ++k) Append(block, {TwoBitByte(n, k)});
  }
  Append(block, {kHalf[0], kHalf[1], kQuarter[0], kQuarter[1]});
  const std::vector<double> got = DecodeWeights(WeightType::kQ2_K, block);
  ASSERT_EQ(got.size(), 256u);
  for (int i = 0; i < 256; ++i) {
    const int s = i / 16;
    EXPECT_EQ(got[i], 0.5 * s * TwoBitCode(i) - 0.25 * (15 - s)) << i;
  }
}

TEST(WeightDecodeByHand, Q3K) {
  Bytes block;
  // High bits: byte k, bit g belongs to value 32 g + k. Set where k + g is a multiple of 3.
  for (unsigned k = 0; k < 32; ++k) {
    unsigned byte = 0;
    for (unsigned g = 0; g < 8; ++g) byte |= ((k + g) % 3 == 0 ? 1u : 0u) << g;
    Append(block, {byte});
  }
  for (unsigned n = 0; n < 2; ++n) {
    for (unsigned k = 0; k < 32; ++k) Append(block, {TwoBitByte(n, k)});
  }
  // Bytes 0-7: low nibbles of the scales j and j + 8. Bytes 8-11: the upper two bits of j, j + 4, j + 8, j + 12.
  Append(block, {0x80, 0x91, 0xa2, 0xb3, 0xc4, 0xd5, 0xe6, 0xf7});
  Append(block, {0xe4, 0x39, 0x4e, 0x93});
  Append(block, {kHalf[0], kHalf[1]});
  constexpr int kStored[] = {0, 17, 34, 51, 20, 37, 54, 7, 40, 57, 10, 27, 60, 13, 30, 47};
  const std::vector<double> got = DecodeWeights(WeightType::kQ3_K, block);
  ASSERT_EQ(got.size(), 256u);
  for (int i = 0; i < 256; ++i) {
    const bool high = (i % 32 + i / 32) % 3 == 0;
    const int q = TwoBitCode(i) - (high ? 0 : 4);
    EXPECT_EQ(got[i], 0.5 * (kStored[i / 16] - 32) * q) << i;
  }
}

// Scales 1 2 3 63 17 34 51 48 and minima 0 5 63 1 16 33 2 62: the first four of each in bytes 0-3 and 4-7,
// below the upper two bits of the last four, whose low nibbles are in bytes 8-11.
constexpr int kScales[] = {1, 2, 3, 63, 17, 34, 51, 48}, kMinima[] = {0, 5, 63, 1, 16, 33, 2, 62};
void AppendPackedScales(Bytes& block) {
  Append(block, {0x41, 0x82, 0xc3, 0xff, 0x40, 0x85, 0x3f, 0xc1, 0x01, 0x12, 0x23, 0xe0});
}

// Nibbles of 64 values: byte k holds the values k and k + 32. In run n: (k + n) mod 16 and 15 minus that.
void AppendNibbleRuns(Bytes& block) {
  for (unsigned n = 0; n < 4; ++n) {
    for (unsigned k = 0; k < 32; ++k) Append(block, {(k + n) % 16 | (15 - (k + n) % 16) << 4});
  }
}
int NibbleOf(int i) {
  const int low = (i % 32 + i / 64) % 16;
  return i % 64 < 32 ? low : 15 - low;
}

TEST(WeightDecodeByHand, Q4K) {
  Bytes block;
  Append(block, {kHalf[0], kHalf[1], kQuarter[0], kQuarter[1]});
  AppendPackedScales(block);
  AppendNibbleRuns(block);
  const std::vector<double> got = DecodeWeights(WeightType::kQ4_K, block);
  ASSERT_EQ(got.size(), 256u);
  for (int i = 0; i < 256; ++i) {
    EXPECT_EQ(got[i], 0.5 * kScales[i / 32] * NibbleOf(i) - 0.25 * kMinima[i / 32]) << i;
  }
}

TEST(WeightDecodeByHand, Q5K) {
  Bytes block;
  Append(block, {kHalf[0], kHalf[1], kQuarter[0], kQuarter[1]});
  AppendPackedScales(block);
  // Fifth bits: byte k, bit g belongs to value 32 g + k. Byte k is k times 37, modulo 256.
  for (unsigned k = 0; k < 32; ++k) Append(block, {k * 37 % 256});
  AppendNibbleRuns(block);
  const std::vector<double> got = DecodeWeights(WeightType::kQ5_K, block);
  ASSERT_EQ(got.size(), 256u);
  for (int i = 0; i < 256; ++i) {
    const int fifth = i % 32 * 37 % 256 >> (i / 32) & 1;
    EXPECT_EQ(got[i], 0.5 * kScales[i / 32] * (NibbleOf(i) + 16 * fifth) - 0.25 * kMinima[i / 32])
        << i;
  }
}

TEST(WeightDecodeByHand, Q6K) {
  Bytes block;
  // Nibbles of 128 values: byte k of 64 holds the values k and k + 64.
  for (unsigned n = 0; n < 2; ++n) {
    for (unsigned k = 0; k < 64; ++k) Append(block, {(k + n) % 16 | (k * 3 + n) % 16 << 4});
  }
  // The two bits above them: byte k of 32 holds those of k, k + 32, k + 64, k + 96.
  for (unsigned n = 0; n < 2; ++n) {
    for (unsigned k = 0; k < 32; ++k) Append(block, {TwoBitByte(n, k)});
  }
  for (int s = 0; s < 16; ++s) {  // -128, -111, ..., 127
    block.push_back(static_cast<std::byte>(static_cast<std::uint8_t>(17 * s - 128)));
  }
  Append(block, {kHalf[0], kHalf[1]});
  const std::vector<double> got = DecodeWeights(WeightType::kQ6_K, block);
  ASSERT_EQ(got.size(), 256u);
  for (int i = 0; i < 256; ++i) {
    const int k = i % 64, n = i / 128;
    const int nibble = i % 128 < 64 ? (k + n) % 16 : (3 * k + n) % 16;
    const int q = nibble + 16 * TwoBitCode(i) - 32;
    EXPECT_EQ(got[i], 0.5 * (17 * (i / 16) - 128) * q) << i;
  }
}

}  // namespace
}  // namespace kvant::test
