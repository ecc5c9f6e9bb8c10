// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// IEEE binary16 and bfloat16 as storage types: conversion only, no arithmetic.
//
// Half      1 sign, 5 exponent, 10 mantissa bits; largest finite 65504; subnormals kept.
// BFloat16  1 sign, 8 exponent,  7 mantissa bits; range of float.
// Both round to nearest, ties to even; NaN stays NaN (quiet); Half overflows to infinity at >= 65520.
// _Float16 is not used: clang 14 does not offer it on x86 (docs/design/001-toolchain.md).
#pragma once

#include <bit>
#include <cstdint>

namespace kvant {

struct Half {
  std::uint16_t bits = 0;
};

struct BFloat16 {
  std::uint16_t bits = 0;
};

inline float HalfToFloat(Half h) {
  const std::uint32_t sign = static_cast<std::uint32_t>(h.bits & 0x8000u) << 16;
  const std::uint32_t rest = h.bits & 0x7fffu;
  if (rest >= 0x7c00u) {  // infinity, NaN (made quiet, as the hardware conversion does)
    const std::uint32_t mantissa = (rest & 0x3ffu) << 13;
    return std::bit_cast<float>(sign | 0x7f800000u | mantissa | (mantissa != 0 ? 0x400000u : 0u));
  }
  if (rest >= 0x0400u) return std::bit_cast<float>(sign | ((rest << 13) + 0x38000000u));
  // Subnormal: the value is rest * 2^-24, exact in float.
  const float magnitude = static_cast<float>(rest) * 0x1p-24f;
  return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(magnitude));
}

inline Half FloatToHalf(float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  const std::uint16_t sign = static_cast<std::uint16_t>((bits >> 16) & 0x8000u);
  const std::uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) {
    return Half{static_cast<std::uint16_t>(sign | 0x7e00u | ((magnitude >> 13) & 0x1ffu))};
  }
  if (magnitude >= 0x477ff000u) return Half{static_cast<std::uint16_t>(sign | 0x7c00u)};
  if (magnitude < 0x38800000u) {
    // Below 2^-14: adding 0.5 makes the float adder round at 2^-24, the half subnormal step.
    const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
    return Half{static_cast<std::uint16_t>(
        sign | (std::bit_cast<std::uint32_t>(shifted) - std::bit_cast<std::uint32_t>(0.5f)))};
  }
  const std::uint32_t odd = (magnitude >> 13) & 1u;
  const std::uint32_t rounded = magnitude + 0xfffu + odd - 0x38000000u;
  return Half{static_cast<std::uint16_t>(sign | (rounded >> 13))};
}

inline float BFloat16ToFloat(BFloat16 b) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(b.bits) << 16);
}

inline BFloat16 FloatToBFloat16(float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) {
    return BFloat16{static_cast<std::uint16_t>((bits >> 16) | 0x40u)};
  }
  const std::uint32_t odd = (bits >> 16) & 1u;
  return BFloat16{static_cast<std::uint16_t>((bits + 0x7fffu + odd) >> 16)};
}

}  // namespace kvant
