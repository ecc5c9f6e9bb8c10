// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// The 16-bit types against arithmetic in double: every bit pattern, and rounding at every boundary.
// (The processor's own conversions are compared in src/backend/cpu/vec_test.cc.)
#include "base/half.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "tests/support/seed.h"

namespace kvant {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// The value that the format's definition gives to bits: n_exponent + n_mantissa + 1 = 16.
double Value(std::uint32_t bits, int n_exponent, int n_mantissa) {
  const int bias = (1 << (n_exponent - 1)) - 1;
  const int exponent = static_cast<int>(bits >> n_mantissa) & ((1 << n_exponent) - 1);
  const int mantissa = static_cast<int>(bits) & ((1 << n_mantissa) - 1);
  const double sign = (bits & 0x8000u) != 0 ? -1.0 : 1.0;
  if (exponent == (1 << n_exponent) - 1) {
    return mantissa == 0 ? sign * std::numeric_limits<double>::infinity() : std::nan("");
  }
  if (exponent == 0) return sign * std::ldexp(mantissa, 1 - bias - n_mantissa);
  return sign * std::ldexp((1 << n_mantissa) + mantissa, exponent - bias - n_mantissa);
}

double HalfValue(std::uint32_t bits) { return Value(bits, 5, 10); }
double BFloat16Value(std::uint32_t bits) { return Value(bits, 8, 7); }

// Nearest number of a 16-bit format by search among the magnitudes in order; ties to the even
// pattern. `infinity` is the pattern of infinity, which stands for the next power of two in the
// search.
std::uint32_t Nearest(float x, double (*value)(std::uint32_t), std::uint32_t infinity) {
  const double magnitude = std::abs(static_cast<double>(x));
  std::uint32_t low = 0, high = infinity;  // value(low) <= magnitude < value(high)
  while (high - low > 1) {
    const std::uint32_t middle = (low + high) / 2;
    (value(middle) <= magnitude ? low : high) = middle;
  }
  const double step = value(low) - value(low - (low > 0 ? 1 : 0));
  const double above = high == infinity ? value(low) + step : value(high);
  const double to_low = magnitude - value(low), to_high = above - magnitude;
  const bool up = to_high < to_low || (to_high == to_low && low % 2 == 1);
  return (std::signbit(x) ? 0x8000u : 0u) | (up ? high : low);
}

void ExpectRounded(float x) {
  const std::uint32_t half = FloatToHalf(x).bits;
  const std::uint32_t bfloat = FloatToBFloat16(x).bits;
  if (std::isnan(x)) {
    EXPECT_TRUE(std::isnan(HalfValue(half)) && std::isnan(BFloat16Value(bfloat)));
    return;
  }
  ASSERT_EQ(half, Nearest(x, HalfValue, 0x7c00u))
      << "half of " << x << ", bits " << std::bit_cast<std::uint32_t>(x);
  ASSERT_EQ(bfloat, Nearest(x, BFloat16Value, 0x7f80u))
      << "bfloat16 of " << x << ", bits " << std::bit_cast<std::uint32_t>(x);
}

TEST(Half, EveryPatternHasItsValueAndComesBack) {
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto pattern = static_cast<std::uint16_t>(bits);
    const float got = HalfToFloat(Half{pattern});
    if (std::isnan(HalfValue(bits))) {
      ASSERT_TRUE(std::isnan(got)) << bits;
      // Quiet, sign and payload kept.
      ASSERT_EQ(FloatToHalf(got).bits, bits | 0x200u);
      continue;
    }
    ASSERT_EQ(static_cast<double>(got), HalfValue(bits)) << bits;
    ASSERT_EQ(std::signbit(got), bits >= 0x8000u) << bits;
    ASSERT_EQ(FloatToHalf(got).bits, bits);
  }
}

TEST(BFloat16, EveryPatternHasItsValueAndComesBack) {
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto pattern = static_cast<std::uint16_t>(bits);
    const float got = BFloat16ToFloat(BFloat16{pattern});
    if (std::isnan(BFloat16Value(bits))) {
      ASSERT_TRUE(std::isnan(got)) << bits;
      ASSERT_EQ(FloatToBFloat16(got).bits, bits | 0x40u);
      continue;
    }
    ASSERT_EQ(static_cast<double>(got), BFloat16Value(bits)) << bits;
    ASSERT_EQ(std::signbit(got), bits >= 0x8000u) << bits;
    ASSERT_EQ(FloatToBFloat16(got).bits, bits);
  }
}

TEST(Half, RoundsToNearestEvenAtEveryBoundary) {
  for (std::uint32_t bits = 0; bits < 0x7c00u && !HasFatalFailure(); ++bits) {
    const float x = HalfToFloat(Half{static_cast<std::uint16_t>(bits)});
    const float next =
        bits == 0x7bffu ? 65536.0f : HalfToFloat(Half{static_cast<std::uint16_t>(bits + 1)});
    const float middle = (x + next) / 2;
    for (const float y : {x, middle}) {
      for (const float sign : {1.0f, -1.0f}) {
        ExpectRounded(sign * y);
        ExpectRounded(sign * std::nextafter(y, kInfinity));
        ExpectRounded(sign * std::nextafter(y, -kInfinity));
      }
    }
  }
}

TEST(BFloat16, RoundsToNearestEvenAtEveryBoundary) {
  for (std::uint32_t bits = 0; bits < 0x7f80u && !HasFatalFailure(); ++bits) {
    const std::uint32_t x = bits << 16;
    for (const std::uint32_t rest : {0u, 1u, 0x7fffu, 0x8000u, 0x8001u, 0xffffu}) {
      ExpectRounded(std::bit_cast<float>(x | rest));
      ExpectRounded(std::bit_cast<float>(x | rest | 0x80000000u));
    }
  }
}

TEST(Half, RoundsRandomFloats) {
  SplitMix64 rng = test::TestRng();
  for (int i = 0; i < 200000 && !HasFatalFailure(); ++i) {
    ExpectRounded(std::bit_cast<float>(static_cast<std::uint32_t>(rng.Next())));
    ExpectRounded(static_cast<float>(rng.Normal() * std::exp2(8 * rng.Normal())));
  }
}

TEST(Half, TheLargestNumbersGoToInfinityWhereTheFormatSays) {
  EXPECT_EQ(FloatToHalf(65504.0f).bits, 0x7bffu);
  EXPECT_EQ(FloatToHalf(std::nextafter(65520.0f, 0.0f)).bits, 0x7bffu);
  EXPECT_EQ(FloatToHalf(65520.0f).bits, 0x7c00u);
  EXPECT_EQ(FloatToHalf(-kInfinity).bits, 0xfc00u);
  EXPECT_EQ(FloatToBFloat16(std::numeric_limits<float>::max()).bits, 0x7f80u);
  EXPECT_EQ(FloatToBFloat16(3.3895314e38f).bits, 0x7f7fu);
  EXPECT_EQ(FloatToBFloat16(kInfinity).bits, 0x7f80u);
}

}  // namespace
}  // namespace kvant
