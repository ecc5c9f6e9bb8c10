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

// Encoding keeps every value within half a step (and what rounding the scales to half adds).
TEST(WeightDecode, EncodingStaysWithinTheStep) {
  SplitMix64 rng = TestRng();
  for (const WeightTypeInfo& info : WeightTypes()) {
    SCOPED_TRACE(info.name);
    std::vector<double> values(32 * 50);
    for (double& value : values) value = rng.Normal();
    std::fill(values.begin(), values.begin() + 32, 0.0);
    const std::vector<std::byte> bytes = EncodeWeights(info.type, values);
    ASSERT_EQ(bytes.size(), values.size() / info.block_values * info.block_bytes);
    const std::vector<double> decoded = DecodeWeights(info.type, bytes);
    for (std::size_t at = 0; at < values.size(); at += 32) {
      const auto [low, high] =
          std::minmax_element(values.begin() + static_cast<std::ptrdiff_t>(at),
                              values.begin() + static_cast<std::ptrdiff_t>(at) + 32);
      const double largest = std::max(-*low, *high);
      for (std::size_t i = at; i < at + 32; ++i) {
        double bound = 0;
        switch (info.type) {
          case WeightType::kF32:
            bound = std::abs(values[i]) * 0x1p-24;
            break;
          case WeightType::kF16:
            bound = std::abs(values[i]) * 0x1p-11 + 0x1p-25;
            break;
          case WeightType::kBF16:
            bound = std::abs(values[i]) * 0x1p-8;
            break;
          case WeightType::kQ4_0:  // a full step where the opposite sign would need code +8: 8 - 7
                                   // steps, which fp16 may have rounded down by 2^-11
            bound = largest / 8 * (1 + 7.1 * 0x1p-11);
            break;
          case WeightType::kQ4_1:
            bound = (*high - *low) / 15 * 0.5 + 16 * largest * 0x1p-11;
            break;
          case WeightType::kQ8_0:
            bound = largest / 127 * 0.5 + 128 * largest / 127 * 0x1p-11;
            break;
        }
        EXPECT_LE(std::abs(decoded[i] - values[i]), bound) << i;
      }
    }
  }
}

TEST(WeightDecode, ARowIsItsPartOfTheTensor) {
  SplitMix64 rng = TestRng();
  std::vector<double> values(64 * 3);
  for (double& value : values) value = rng.Normal();
  for (const WeightTypeInfo& info : WeightTypes()) {
    const std::vector<std::byte> bytes = EncodeWeights(info.type, values);
    const GgufTensor tensor{.name = "t", .type = info.type, .dims = {64, 3}, .bytes = bytes};
    const std::vector<double> all = DecodeWeights(info.type, bytes);
    for (std::size_t row = 0; row < 3; ++row) {
      const std::vector<double> got = DecodeRow(tensor, row);
      ASSERT_EQ(got.size(), 64u);
      EXPECT_TRUE(
          std::equal(got.begin(), got.end(), all.begin() + static_cast<std::ptrdiff_t>(64 * row)));
    }
  }
}

}  // namespace
}  // namespace kvant::test
