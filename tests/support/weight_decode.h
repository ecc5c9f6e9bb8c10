// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// Plain decoders and encoders of the weight types, for tests: the truth that the repacked weights
// and their kernels are checked against. They share no code with src (not even the half
// conversion), take one value at a time and compute in double, so that decoding is exact.
//
// A block (all numbers little-endian; q are unsigned nibbles or signed bytes):
//   Q4_0  32 values, 18 bytes: half d | 16 bytes, byte i = q[i] | q[i + 16] << 4     x = (q - 8) d
//   Q4_1  32 values, 20 bytes: half d | half m | 16 bytes as above                    x = q d + m
//   Q8_0  32 values, 34 bytes: half d | 32 signed bytes                               x = q d
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "llm/gguf.h"

namespace kvant::test {

/// The value of binary16 bits; infinities and NaN included.
double DecodeHalf(std::uint16_t bits);
/// Nearest binary16, ties to even, for finite values; beyond 65504 (rounded) infinity.
std::uint16_t EncodeHalf(double value);

/// All values of whole blocks, in order.
std::vector<double> DecodeWeights(WeightType type, std::span<const std::byte> bytes);
/// Row `row` of a tensor: dims[0] values.
std::vector<double> DecodeRow(const GgufTensor& tensor, std::size_t row);

/// Encodes values.size() finite values (whole blocks; KVANT_CHECKed) to the nearest codes of a
/// simple scale choice: Q4_0 maps the largest magnitude to -8, Q4_1 minimum and maximum to 0 and
/// 15, Q8_0 the largest magnitude to 127.
std::vector<std::byte> EncodeWeights(WeightType type, std::span<const double> values);

}  // namespace kvant::test
