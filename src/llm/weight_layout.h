// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// How a panel of 32 rows of weights lies in memory: numbers only, shared by the repacking, the
// look-up of a row and the kernels.
//
// Plain types (F32, F16, BF16) lie as [col][32 rows]. A quantized panel is a run of blocks:
//
//   block       [n_halfs][32 rows] half                                       d, then m or dmin
//               block_columns / 32 sub-blocks
//   sub-block   [32 / scale_columns][scale_bytes][32 rows] bytes              scale, then minimum
//   (32 columns)  [low_bits][32 rows][4] bytes                                  low bits of the codes
//               [high_bits][32 rows][4] bytes                                 their high bits
//
// The four bytes of a row hold four neighbouring columns, which one lane of an integer dot product takes
// at once. With codes of b bits a byte serves 8 / b columns that are four apart, the first in its lowest
// bits. Everything starts at a multiple of 64 bytes. Bytes for one row of a block, with what repacking
// adds to the file's:
//
//             block    halfs  scale columns  scales  low + high bits   bytes
//   Q8_0      32       1      32             0       8                  34
//   Q4_0      32       1      32             0       4                  18
//   Q4_1      32       2      32             0       4                  20
//   Q5_0      32       1      32             0       4 + 1              22
//   Q5_1      32       2      32             0       4 + 1              24
//   IQ4_NL    32       1      32             0       4                  18
//   Q2_K      256      2      16             1       2                  84
//   Q3_K      256      1      16             1       2 + 1             114  (+3.6 %)
//   Q4_K      256      2      32             2       4                 148  (+2.8 %)
//   Q5_K      256      2      32             2       4 + 1             180  (+2.3 %)
//   Q6_K      256      1      16             1       4 + 2             210
//
// Three types grow because the file packs 16 scales of 6 bits into 12 bytes, which no kernel could read
// with one load; here each has a byte of its own.
#pragma once

#include <cstddef>
#include <cstdint>

#include "llm/gguf.h"

namespace kvant {

inline constexpr std::size_t kPanelRows = 32;
inline constexpr std::size_t kSubColumns = 32;  // of a sub-block
inline constexpr std::size_t kQuad = 4;         // columns that lie side by side

/// Values of quantized weights, as GGUF defines them, from a code q:
///
///   halfs  scale bytes
///   1      0            (q - zero_code) d          Q8_0 has signed codes, IQ4_NL a table in place of q
///   2      0            q d + m
///   1      1            (q - zero_code) (d s)      s a signed byte
///   2      1            q (d s) - dmin m           s and m the low and high nibble
///   2      2            q (d s) - dmin m           s and m bytes of 0 to 63
///
/// d s, dmin m and the products with q are exact in float (at most 22 significant bits), except Q6_K's
/// last product (25); so every value is rounded once at most.
struct PanelLayout {
  std::size_t block_columns = 0;  // 0: a plain type
  std::size_t n_halfs = 0;
  std::size_t scale_columns = 0;  // 16 or 32 that share a scale
  std::size_t scale_bytes = 0;
  unsigned low_bits = 0;
  unsigned high_bits = 0;
  int zero_code = 0;

  constexpr std::size_t HeaderBytes() const { return n_halfs * 2 * kPanelRows; }
  constexpr std::size_t ScaleBytes() const {
    return kSubColumns / scale_columns * scale_bytes * kPanelRows;
  }
  constexpr std::size_t LowBytes() const { return low_bits * kQuad * kPanelRows; }
  constexpr std::size_t HighBytes() const { return high_bits * kQuad * kPanelRows; }
  constexpr std::size_t SubBytes() const { return ScaleBytes() + LowBytes() + HighBytes(); }
  constexpr std::size_t BlockBytes() const {
    return HeaderBytes() + block_columns / kSubColumns * SubBytes();
  }
};

/// A layout without columns for plain types.
constexpr PanelLayout LayoutOf(WeightType type) {
  switch (type) {
    case WeightType::kF32:
    case WeightType::kF16:
    case WeightType::kBF16: return {};
    case WeightType::kQ8_0: return {32, 1, 32, 0, 8, 0, 0};
    case WeightType::kQ4_0: return {32, 1, 32, 0, 4, 0, 8};
    case WeightType::kQ4_1: return {32, 2, 32, 0, 4, 0, 0};
    case WeightType::kQ5_0: return {32, 1, 32, 0, 4, 1, 16};
    case WeightType::kQ5_1: return {32, 2, 32, 0, 4, 1, 0};
    case WeightType::kIQ4_NL: return {32, 1, 32, 0, 4, 0, 0};
    case WeightType::kQ2_K: return {256, 2, 16, 1, 2, 0, 0};
    case WeightType::kQ3_K: return {256, 1, 16, 1, 2, 1, 4};
    case WeightType::kQ4_K: return {256, 2, 32, 2, 4, 0, 0};
    case WeightType::kQ5_K: return {256, 2, 32, 2, 4, 1, 0};
    case WeightType::kQ6_K: return {256, 1, 16, 1, 4, 2, 32};
  }
  return {};
}

/// What the codes of IQ4_NL stand for, as numbers and as bytes.
inline constexpr float kIq4NlValues[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                           1,    13,   25,  38,  53,  69,  89,  113};
inline constexpr std::int8_t kIq4NlLevels[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                                 1,    13,   25,  38,  53,  69,  89,  113};

}  // namespace kvant
