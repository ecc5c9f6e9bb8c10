// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// The decoders that other tests take for the truth are themselves checked against blocks written
// out by hand, every half, and the bound that rounding to the nearest code must keep.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>
#include <vector>

#include "base/half.h"
#include "tests/support/seed.h"
#include "tests/support/weight_decode.h"

namespace kvant::test {
namespace {

std::vector<std::byte> Bytes(std::initializer_list<unsigned> values) {
  std::vector<std::byte> bytes;
  for (const unsigned value : values) bytes.push_back(static_cast<std::byte>(value));
  return bytes;
}

TEST(WeightDecode, EveryHalfDecodesAndComesBack) {
  for (std::uint32_t bits = 0; bits < 0x10000u; ++bits) {
    const double value = DecodeHalf(static_cast<std::uint16_t>(bits));
    const float product = HalfToFloat(Half{static_cast<std::uint16_t>(bits)});
    if (std::isnan(value)) {
      EXPECT_TRUE(std::isnan(product)) << bits;
      continue;
    }
    ASSERT_EQ(value, product) << bits;
    ASSERT_EQ(std::signbit(value), std::signbit(product)) << bits;
    if (std::isfinite(value)) {
      ASSERT_EQ(EncodeHalf(value), bits);
    }
  }
}

TEST(WeightDecode, HalfAndBFloat16RoundToNearestEven) {
  EXPECT_EQ(EncodeHalf(1.0 + 0x1p-11), 0x3c00u);      // tie, to even
  EXPECT_EQ(EncodeHalf(1.0 + 3 * 0x1p-11), 0x3c02u);  // tie, to even
  EXPECT_EQ(EncodeHalf(1.0 + 1.01 * 0x1p-11), 0x3c01u);
  EXPECT_EQ(EncodeHalf(65519.9), 0x7bffu);
  EXPECT_EQ(EncodeHalf(-65520), 0xfc00u);
  EXPECT_EQ(EncodeHalf(0x1p-25), 0u);
  EXPECT_EQ(EncodeHalf(0x1.8p-25), 1u);
  EXPECT_EQ(EncodeHalf(0x1.fffp-15), 0x0400u);  // up into the smallest normal
  SplitMix64 rng = TestRng();
  for (int i = 0; i < 20000; ++i) {
    const float value =
        static_cast<float>(std::ldexp(rng.Normal(), static_cast<int>(rng.Below(40)) - 26));
    ASSERT_EQ(EncodeHalf(value), FloatToHalf(value).bits) << value;
    const double values[] = {value};
    const auto bf16 = EncodeWeights(WeightType::kBF16, values);
    const auto bits = static_cast<std::uint16_t>(std::to_integer<unsigned>(bf16[0]) |
                                                 std::to_integer<unsigned>(bf16[1]) << 8);
    ASSERT_EQ(bits, FloatToBFloat16(value).bits) << value;
  }
}

TEST(WeightDecode, PlainTypesByHand) {
  EXPECT_EQ(DecodeWeights(WeightType::kF32, Bytes({0, 0, 0x80, 0x3f, 0, 0, 0x20, 0xc1})),
            (std::vector<double>{1.0, -10.0}));
  EXPECT_EQ(DecodeWeights(WeightType::kF16, Bytes({0x00, 0x3c, 0x00, 0xc9})),
            (std::vector<double>{1.0, -10.0}));
  EXPECT_EQ(DecodeWeights(WeightType::kBF16, Bytes({0x80, 0x3f, 0x20, 0xc1})),
            (std::vector<double>{1.0, -10.0}));
}

TEST(WeightDecode, BlocksByHand) {
  std::vector<std::byte> q4_0 = Bytes({0x00, 0x38});              // d = 0.5
  std::vector<std::byte> q4_1 = Bytes({0x00, 0x38, 0x00, 0xc0});  // d = 0.5, m = -2
  for (unsigned i = 0; i < 16; ++i) {  // value i is i, value 16 + i is 15 - i
    q4_0.push_back(static_cast<std::byte>(i | (15 - i) << 4));
    q4_1.push_back(static_cast<std::byte>(i | (15 - i) << 4));
  }
  std::vector<std::byte> q8_0 = Bytes({0x00, 0x34});  // d = 0.25
  for (int i = 0; i < 32; ++i) q8_0.push_back(static_cast<std::byte>(i * 8 - 128));
  const std::vector<double> got_q4_0 = DecodeWeights(WeightType::kQ4_0, q4_0);
  const std::vector<double> got_q4_1 = DecodeWeights(WeightType::kQ4_1, q4_1);
  const std::vector<double> got_q8_0 = DecodeWeights(WeightType::kQ8_0, q8_0);
  ASSERT_EQ(got_q4_0.size(), 32u);
  ASSERT_EQ(got_q4_1.size(), 32u);
  ASSERT_EQ(got_q8_0.size(), 32u);
  for (int i = 0; i < 32; ++i) {
    const int q = i < 16 ? i : 31 - i;
    EXPECT_EQ(got_q4_0[i], (q - 8) * 0.5) << i;
    EXPECT_EQ(got_q4_1[i], q * 0.5 - 2) << i;
    EXPECT_EQ(got_q8_0[i], (i * 8 - 128) * 0.25) << i;
  }
}

// How far the nearest code may be from a value, where low and high are the ends of the values that share a
// scale (of a whole block of 256), `largest` the greater magnitude: half a step and what rounding the scales
// to half (2^-11 of the largest value that they can reach) adds.
double BoundOf(WeightType type, double value, double low, double high) {
  const double largest = std::max(-low, high);
  constexpr double kHalfUnit = 0x1p-11;
  // Steps of blocks with minima: the minimum is rounded up by less than one part in `parts` of the deepest,
  // the scale likewise.
  const auto range_bound = [&](int top, int parts) {
    const double reach = (high + largest * (1 + 1.0 / parts)) / top;
    return reach * (1 + 1.0 / parts) / 2 + 4 * largest * kHalfUnit;
  };
  // The opposite end would need the code +half, one beyond the last.
  const auto signed_bound = [&](int half, int parts) {
    return largest / half * (1 + 1.0 / parts) * (1 + half * kHalfUnit);
  };
  switch (type) {
    case WeightType::kF32: return std::abs(value) * 0x1p-24;
    case WeightType::kF16: return std::abs(value) * 0x1p-11 + 0x1p-25;
    case WeightType::kBF16: return std::abs(value) * 0x1p-8;
    case WeightType::kQ4_0: return largest / 8 * (1 + 7.1 * kHalfUnit);
    case WeightType::kQ5_0: return largest / 16 * (1 + 15.1 * kHalfUnit);
    case WeightType::kQ4_1: return (high - low) / 15 * 0.5 + 16 * largest * kHalfUnit;
    case WeightType::kQ5_1: return (high - low) / 31 * 0.5 + 32 * largest * kHalfUnit;
    case WeightType::kQ8_0: return largest / 127 * 0.5 + 128 * largest / 127 * kHalfUnit;
    // The table ends at 113, where -127 stands for the largest; its widest gap is 24.
    case WeightType::kIQ4_NL: return largest / 127 * 14 + largest * kHalfUnit;
    case WeightType::kQ2_K: return range_bound(3, 15);
    case WeightType::kQ3_K: return signed_bound(4, 31);
    case WeightType::kQ4_K: return range_bound(15, 63);
    case WeightType::kQ5_K: return range_bound(31, 63);
    case WeightType::kQ6_K: return signed_bound(32, 127);
  }
  return 0;
}

TEST(WeightDecode, EncodingStaysWithinTheStep) {
  SplitMix64 rng = TestRng();
  for (const WeightTypeInfo& info : WeightTypes()) {
    SCOPED_TRACE(info.name);
    const std::size_t block = std::max<std::size_t>(32, info.block_values);
    std::vector<double> values(block * 50);
    for (double& value : values) value = rng.Normal();
    std::fill_n(values.begin(), block, 0.0);
    const std::vector<std::byte> bytes = EncodeWeights(info.type, values);
    ASSERT_EQ(bytes.size(), values.size() / info.block_values * info.block_bytes);
    const std::vector<double> decoded = DecodeWeights(info.type, bytes);
    for (std::size_t at = 0; at < values.size(); at += block) {
      const auto first = values.begin() + static_cast<std::ptrdiff_t>(at);
      const auto [low, high] =
          std::minmax_element(first, first + static_cast<std::ptrdiff_t>(block));
      for (std::size_t i = at; i < at + block; ++i) {
        EXPECT_LE(std::abs(decoded[i] - values[i]), BoundOf(info.type, values[i], *low, *high))
            << i;
      }
    }
  }
}

TEST(WeightDecode, ARowIsItsPartOfTheTensor) {
  SplitMix64 rng = TestRng();
  std::vector<double> values(std::size_t{256} * 3);
  for (double& value : values) value = rng.Normal();
  for (const WeightTypeInfo& info : WeightTypes()) {
    const std::vector<std::byte> bytes = EncodeWeights(info.type, values);
    const GgufTensor tensor{.name = "t", .type = info.type, .dims = {256, 3}, .bytes = bytes};
    const std::vector<double> all = DecodeWeights(info.type, bytes);
    for (std::size_t row = 0; row < 3; ++row) {
      const std::vector<double> got = DecodeRow(tensor, row);
      ASSERT_EQ(got.size(), 256u);
      EXPECT_TRUE(
          std::equal(got.begin(), got.end(), all.begin() + static_cast<std::ptrdiff_t>(256 * row)));
    }
  }
}

}  // namespace
}  // namespace kvant::test
