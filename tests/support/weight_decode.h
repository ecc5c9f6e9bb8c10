// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// Plain decoders and encoders of the weight types, for tests: the truth that the repacked weights
// and their kernels are checked against. They share no code with src (not even the half
// conversion), take one value at a time and compute in double, so that decoding is exact.
//
// A block (all numbers little-endian; q are unsigned codes or signed bytes; nibbles [n] stands for n bytes whose
// low and high halves are values apart by n):
//   Q4_0   32 values, 18 bytes: half d | nibbles [16]                            x = (q - 8) d
//   Q4_1   32 values, 20 bytes: half d | half m | nibbles [16]                   x = q d + m
//   Q5_0   32 values, 22 bytes: half d | 32 fifth bits | nibbles [16]            x = (q - 16) d
//   Q5_1   32 values, 24 bytes: half d | half m | 32 fifth bits | nibbles [16]   x = q d + m
//   Q8_0   32 values, 34 bytes: half d | 32 signed bytes                         x = q d
//   IQ4_NL 32 values, 18 bytes: half d | nibbles [16]                            x = table[q] d
//   In blocks of 256 values every 16 (Q4_K, Q5_K: 32) share a scale s and a minimum m:
//   Q2_K   84 bytes: 16 bytes s | m << 4; 64 bytes of 2 bits; half d; half dmin  x = d s q - dmin m
//   Q3_K   110 bytes: 32 bytes of high bits; 64 of 2 bits; 12 of 6-bit s; half d x = d (s - 32) (q - 4)
//   Q4_K   144 bytes: half d; half dmin; 12 bytes of 6-bit s and m; 4 x nibbles [32]
//                                                                                x = d s q - dmin m
//   Q5_K   176 bytes: half d; half dmin; 12 bytes; 32 of fifth bits; 4 x nibbles [32]
//                                                                                x = d s q - dmin m
//   Q6_K   210 bytes: 2 x nibbles [64]; 64 bytes of 2 high bits; 16 signed s; half d
//                                                                                x = d s (q - 32)
//   A byte of 2 bits serves four values 32 apart (128 values in 32 bytes), one of single bits eight.
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
/// simple scale choice: Q4_0 and Q5_0 map the largest magnitude to -8 and -16, Q4_1 and Q5_1 minimum and
/// maximum to the first and last code, Q8_0 and IQ4_NL the largest magnitude to 127 and -127; blocks of 256
/// do the like for every sub-block, with scales and minima rounded up. Defined in weight_encode.cc.
std::vector<std::byte> EncodeWeights(WeightType type, std::span<const double> values);

}  // namespace kvant::test
