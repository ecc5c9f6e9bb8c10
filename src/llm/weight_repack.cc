// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

#include "llm/weight_repack.h"

#include <cstdint>
#include <cstring>

#include "base/error.h"
#include "llm/weight_layout.h"

namespace kvant {
namespace {

using Bytes = const std::uint8_t*;

// One block of one row, taken apart.
struct FileBlock {
  std::uint8_t halfs[2][2];    // bits of d, then of m or dmin
  std::uint8_t scales[16][2];  // [sub-block][scale bytes]
  std::uint8_t codes[256];
};

std::uint8_t Byte(std::uint64_t bits) { return static_cast<std::uint8_t>(bits); }

// Codes of 4 bits in blocks of 32 columns: the low nibbles are columns 0-15, the high ones 16-31.
void TakeNibbles(Bytes from, FileBlock& block) {
  for (std::size_t i = 0; i < 16; ++i) {
    block.codes[i] = from[i] & 15;
    block.codes[16 + i] = from[i] >> 4;
  }
}

constexpr std::uint64_t kEveryByte = 0x0101010101010101;

// Their fifth bits: bit i of a little-endian word is column i. Eight at a time: byte i of a product keeps bit
// i of the file's byte, which the sum carries to the byte's top.
void AddFifthBits(Bytes from, FileBlock& block) {
  for (std::size_t i = 0; i < 4; ++i) {
    const std::uint64_t bits = from[i] * kEveryByte & 0x8040201008040201;
    std::uint64_t codes;
    std::memcpy(&codes, block.codes + 8 * i, 8);
    codes |= ((bits + 0x7f * kEveryByte) >> 7 & kEveryByte) << 4;
    std::memcpy(block.codes + 8 * i, &codes, 8);
  }
}

// In blocks of 256 a byte serves columns that are 32 apart. Codes of 2 bits: 32 bytes for 128 columns.
void TakePairsOfBits(Bytes from, FileBlock& block) {
  for (std::size_t g = 0; g < 8; ++g) {
    for (std::size_t i = 0; i < 32; ++i) {
      block.codes[32 * g + i] = from[g / 4 * 32 + i] >> g % 4 * 2 & 3;
    }
  }
}

// Codes of 4 bits: 32 bytes for 64 columns.
void TakeWideNibbles(Bytes from, FileBlock& block) {
  for (std::size_t g = 0; g < 8; ++g) {
    for (std::size_t i = 0; i < 32; ++i) {
      block.codes[32 * g + i] = from[g / 2 * 32 + i] >> g % 2 * 4 & 15;
    }
  }
}

// One more bit: 32 bytes for all 256 columns.
void AddWideBits(Bytes from, unsigned shift, FileBlock& block) {
  for (std::size_t g = 0; g < 8; ++g) {
    for (std::size_t i = 0; i < 32; ++i) {
      block.codes[32 * g + i] |= Byte((from[i] >> g & 1) << shift);
    }
  }
}

// Codes of 6 bits: for 128 columns 64 bytes of nibbles (64 apart) and 32 of bit pairs (32 apart).
void TakeSixBits(Bytes low, Bytes high, FileBlock& block) {
  for (std::size_t g = 0; g < 8; ++g) {
    for (std::size_t i = 0; i < 32; ++i) {
      const unsigned nibble = low[g / 4 * 64 + g % 2 * 32 + i] >> g / 2 % 2 * 4 & 15;
      const unsigned pair = high[g / 4 * 32 + i] >> g % 4 * 2 & 3;
      block.codes[32 * g + i] = Byte(nibble | pair << 4);
    }
  }
}

// Q4_K and Q5_K: eight scales and eight minima of 6 bits in 12 bytes. The first four of each lie whole in
// bytes 0-3 and 4-7, whose upper two bits are those of the last four; bytes 8-11 hold the rest of those.
void TakeScalesAndMinima(Bytes from, FileBlock& block) {
  for (std::size_t j = 0; j < 4; ++j) {
    block.scales[j][0] = from[j] & 63;
    block.scales[j][1] = from[4 + j] & 63;
    block.scales[4 + j][0] = Byte((from[8 + j] & 15) | from[j] >> 6 << 4);
    block.scales[4 + j][1] = Byte(from[8 + j] >> 4 | from[4 + j] >> 6 << 4);
  }
}

// Q3_K: sixteen scales of 6 bits in 12 bytes, 32 above their value: nibbles in bytes 0-7, the other two bits
// in bytes 8-11. Here they become signed bytes.
void TakeSignedScales(Bytes from, FileBlock& block) {
  for (std::size_t j = 0; j < 16; ++j) {
    const unsigned low = from[j % 8] >> j / 8 * 4 & 15;
    const unsigned high = from[8 + j % 4] >> j / 4 * 2 & 3;
    block.scales[j][0] = Byte((low | high << 4) - 32u);
  }
}

void TakeByteScales(Bytes from, FileBlock& block) {
  for (std::size_t j = 0; j < 16; ++j) block.scales[j][0] = from[j];
}

void TakeHalfs(Bytes from, std::size_t n, FileBlock& block) {
  std::memcpy(block.halfs, from, 2 * n);
}

void TakeApart(WeightType type, Bytes from, FileBlock& block) {
  switch (type) {
    case WeightType::kQ8_0:
      TakeHalfs(from, 1, block);
      std::memcpy(block.codes, from + 2, 32);
      return;
    case WeightType::kQ4_0:
    case WeightType::kIQ4_NL:
      TakeHalfs(from, 1, block);
      return TakeNibbles(from + 2, block);
    case WeightType::kQ4_1:
      TakeHalfs(from, 2, block);
      return TakeNibbles(from + 4, block);
    case WeightType::kQ5_0:
      TakeHalfs(from, 1, block);
      TakeNibbles(from + 6, block);
      return AddFifthBits(from + 2, block);
    case WeightType::kQ5_1:
      TakeHalfs(from, 2, block);
      TakeNibbles(from + 8, block);
      return AddFifthBits(from + 4, block);
    case WeightType::kQ2_K:
      TakeByteScales(from, block);
      TakePairsOfBits(from + 16, block);
      return TakeHalfs(from + 80, 2, block);
    case WeightType::kQ3_K:
      TakePairsOfBits(from + 32, block);
      AddWideBits(from, 2, block);
      TakeSignedScales(from + 96, block);
      return TakeHalfs(from + 108, 1, block);
    case WeightType::kQ4_K:
      TakeHalfs(from, 2, block);
      TakeScalesAndMinima(from + 4, block);
      return TakeWideNibbles(from + 16, block);
    case WeightType::kQ5_K:
      TakeHalfs(from, 2, block);
      TakeScalesAndMinima(from + 4, block);
      TakeWideNibbles(from + 48, block);
      return AddWideBits(from + 16, 4, block);
    case WeightType::kQ6_K:
      TakeSixBits(from, from + 128, block);
      TakeByteScales(from + 192, block);
      return TakeHalfs(from + 208, 1, block);
    case WeightType::kF32:
    case WeightType::kF16:
    case WeightType::kBF16: break;
  }
  KVANT_CHECK(false && "a plain type has no blocks");
}

// kBits bits of every code of a sub-block from bit `shift` on, into the quads of one row. Four neighbouring
// columns at a time; those that share a byte are four apart.
template <unsigned kBits>
void PutPlane(Bytes codes, unsigned shift, std::uint8_t* quads) {
  for (unsigned i = 0; i < kBits; ++i, quads += kQuad * kPanelRows) {
    std::uint32_t quad = 0;
    for (unsigned field = 0; field < 8 / kBits; ++field, codes += kQuad) {
      std::uint32_t four;
      std::memcpy(&four, codes, sizeof(four));
      quad |= (four >> shift & ((1u << kBits) - 1) * 0x01010101u) << field * kBits;
    }
    std::memcpy(quads, &quad, sizeof(quad));
  }
}

void PutBits(unsigned bits, Bytes codes, unsigned shift, std::uint8_t* quads) {
  if (bits == 8) return PutPlane<8>(codes, shift, quads);
  if (bits == 4) return PutPlane<4>(codes, shift, quads);
  if (bits == 2) return PutPlane<2>(codes, shift, quads);
  if (bits == 1) return PutPlane<1>(codes, shift, quads);
}

// `to` is the block's first byte in the panel.
void PutBlock(const PanelLayout& layout, const FileBlock& block, std::size_t row,
              std::uint8_t* to) {
  for (std::size_t i = 0; i < layout.n_halfs; ++i, to += 2 * kPanelRows) {
    std::memcpy(to + 2 * row, block.halfs[i], 2);
  }
  const std::size_t scales_of_sub = kSubColumns / layout.scale_columns;
  for (std::size_t sub = 0; sub < layout.block_columns / kSubColumns; ++sub) {
    std::uint8_t* scale = to + row;
    for (std::size_t s = 0; s < scales_of_sub; ++s) {
      for (std::size_t i = 0; i < layout.scale_bytes; ++i, scale += kPanelRows) {
        *scale = block.scales[sub * scales_of_sub + s][i];
      }
    }
    Bytes codes = block.codes + sub * kSubColumns;
    std::uint8_t* low = to + layout.ScaleBytes() + kQuad * row;
    PutBits(layout.low_bits, codes, 0, low);
    PutBits(layout.high_bits, codes, layout.low_bits, low + layout.LowBytes());
    to += layout.SubBytes();
  }
}

template <typename T>
void RepackPlainRow(const std::byte* from, std::size_t n_cols, std::size_t row, std::byte* panel) {
  for (std::size_t c = 0; c < n_cols; ++c) {
    std::memcpy(panel + (c * kPanelRows + row) * sizeof(T), from + c * sizeof(T), sizeof(T));
  }
}

}  // namespace

void RepackPanel(WeightType type, std::span<const std::byte* const> rows, std::size_t n_cols,
                 std::byte* panel) {
  const PanelLayout layout = LayoutOf(type);
  const WeightTypeInfo& info = InfoOf(type);
  if (layout.block_columns == 0) {
    for (std::size_t row = 0; row < rows.size(); ++row) {
      if (info.block_bytes == 4) {
        RepackPlainRow<std::uint32_t>(rows[row], n_cols, row, panel);
      } else {
        RepackPlainRow<std::uint16_t>(rows[row], n_cols, row, panel);
      }
    }
    return;
  }
  FileBlock block;
  for (std::size_t i = 0; i < n_cols / layout.block_columns; ++i) {
    auto* to = reinterpret_cast<std::uint8_t*>(panel) + i * layout.BlockBytes();
    for (std::size_t row = 0; row < rows.size(); ++row) {
      TakeApart(type, reinterpret_cast<Bytes>(rows[row]) + i * info.block_bytes, block);
      PutBlock(layout, block, row, to);
    }
  }
}

}  // namespace kvant
