// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

#include "llm/weight_matrix.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "base/half.h"

namespace kvant {
namespace {

constexpr std::size_t kQuantBlock = 32;  // columns that share a scale

// Bytes of 16 half scales in front of the codes of 32 columns.
constexpr std::size_t kScaleBytes = kPanelRows * sizeof(Half);

std::size_t QuantPanelBlockBytes(WeightType type) {
  switch (type) {
    case WeightType::kQ8_0: return kScaleBytes + kQuantBlock * kPanelRows;
    case WeightType::kQ4_0: return kScaleBytes + kQuantBlock / 2 * kPanelRows;
    case WeightType::kQ4_1: return 2 * kScaleBytes + kQuantBlock / 2 * kPanelRows;
    default: return 0;
  }
}

std::size_t PlainBytes(WeightType type) { return type == WeightType::kF32 ? 4 : 2; }

// Column c of a 4-bit block of GGUF: the low nibbles are columns 0-15, the high ones 16-31.
std::uint8_t Nibble(const std::uint8_t* codes, std::size_t c) {
  return c < 16 ? codes[c] & 15 : codes[c - 16] >> 4;
}

// One row of a quantized tensor into lane `lane` of its panel.
void RepackQuantRow(WeightType type, const std::uint8_t* row, std::size_t n_cols, std::size_t lane,
                    std::uint8_t* panel) {
  const WeightTypeInfo& info = InfoOf(type);
  const std::size_t n_scales = type == WeightType::kQ4_1 ? 2 : 1;
  for (std::size_t block = 0; block < n_cols / kQuantBlock; ++block) {
    const std::uint8_t* from = row + block * info.block_bytes;
    std::uint8_t* to = panel + block * QuantPanelBlockBytes(type);
    for (std::size_t s = 0; s < n_scales; ++s) {
      std::memcpy(to + s * kScaleBytes + lane * sizeof(Half), from + s * sizeof(Half), sizeof(Half));
    }
    const std::uint8_t* codes = from + n_scales * sizeof(Half);
    to += n_scales * kScaleBytes;
    if (type == WeightType::kQ8_0) {
      for (std::size_t c = 0; c < kQuantBlock; ++c) to[c * kPanelRows + lane] = codes[c];
    } else {
      for (std::size_t c = 0; c < kQuantBlock; c += 2) {
        to[c / 2 * kPanelRows + lane] =
            static_cast<std::uint8_t>(Nibble(codes, c) | (Nibble(codes, c + 1) << 4));
      }
    }
  }
}

template <typename T>
void RepackPlainRow(const std::byte* row, std::size_t n_cols, std::size_t lane, std::byte* panel) {
  for (std::size_t c = 0; c < n_cols; ++c) {
    std::memcpy(panel + (c * kPanelRows + lane) * sizeof(T), row + c * sizeof(T), sizeof(T));
  }
}

void RepackRow(WeightType type, const std::byte* row, std::size_t n_cols, std::size_t lane,
               std::byte* panel) {
  if (QuantPanelBlockBytes(type) != 0) {
    RepackQuantRow(type, reinterpret_cast<const std::uint8_t*>(row), n_cols, lane,
                   reinterpret_cast<std::uint8_t*>(panel));
  } else if (PlainBytes(type) == 4) {
    RepackPlainRow<std::uint32_t>(row, n_cols, lane, panel);
  } else {
    RepackPlainRow<std::uint16_t>(row, n_cols, lane, panel);
  }
}

float LoadScale(const std::byte* p, std::size_t lane) {
  Half half;
  std::memcpy(&half, p + lane * sizeof(Half), sizeof(Half));
  return HalfToFloat(half);
}

// The 32 values of one row in one quantized panel block.
void QuantBlockRow(WeightType type, const std::byte* block, std::size_t lane, float* out) {
  const float d = LoadScale(block, lane);
  const float m = type == WeightType::kQ4_1 ? LoadScale(block + kScaleBytes, lane) : 0.0f;
  const std::size_t n_scales = type == WeightType::kQ4_1 ? 2 : 1;
  const auto* codes = reinterpret_cast<const std::uint8_t*>(block + n_scales * kScaleBytes);
  for (std::size_t c = 0; c < kQuantBlock; ++c) {
    if (type == WeightType::kQ8_0) {
      out[c] = static_cast<float>(static_cast<std::int8_t>(codes[c * kPanelRows + lane])) * d;
      continue;
    }
    const std::uint8_t pair = codes[c / 2 * kPanelRows + lane];
    const int q = c % 2 == 0 ? pair & 15 : pair >> 4;
    out[c] = type == WeightType::kQ4_1 ? static_cast<float>(q) * d + m
                                       : static_cast<float>(q - 8) * d;
  }
}

float PlainValue(WeightType type, const std::byte* p) {
  if (type == WeightType::kF32) {
    float value;
    std::memcpy(&value, p, sizeof(value));
    return value;
  }
  std::uint16_t bits;
  std::memcpy(&bits, p, sizeof(bits));
  return type == WeightType::kF16 ? HalfToFloat(Half{bits}) : BFloat16ToFloat(BFloat16{bits});
}

}  // namespace

std::size_t PanelBytes(WeightType type, std::size_t n_cols) {
  const std::size_t block = QuantPanelBlockBytes(type);
  if (block != 0) return n_cols / kQuantBlock * block;
  return n_cols * kPanelRows * PlainBytes(type);
}

WeightMatrix WeightMatrix::Load(const GgufFile& file, const GgufTensor& tensor,
                                ThreadPool& threads) {
  WeightMatrix matrix;
  matrix.type_ = tensor.type;
  matrix.n_cols_ = tensor.dims[0];
  matrix.n_rows_ = tensor.dims.size() > 1 ? tensor.dims[1] : 1;
  matrix.panel_bytes_ = PanelBytes(matrix.type_, matrix.n_cols_);
  matrix.panels_ =
      Buffer<std::byte>(matrix.n_pairs() * 2 * matrix.panel_bytes_, MemoryTag::kWeights);
  const WeightTypeInfo& info = InfoOf(matrix.type_);
  const std::size_t row_bytes = matrix.n_cols_ / info.block_values * info.block_bytes;
  const auto repack = [&](std::size_t panel, std::size_t) {
    std::byte* to = matrix.panels_.data() + panel * matrix.panel_bytes_;
    const std::size_t begin = panel * kPanelRows;
    const std::size_t end = std::min(begin + kPanelRows, matrix.n_rows_);
    for (std::size_t row = begin; row < end; ++row) {
      RepackRow(matrix.type_, tensor.bytes.data() + row * row_bytes, matrix.n_cols_, row - begin, to);
    }
  };
  threads.ParallelFor((matrix.n_rows_ + kPanelRows - 1) / kPanelRows, repack);
  file.DropPages(tensor);
  return matrix;
}

void WeightMatrix::Row(std::size_t row, float* out) const {
  KVANT_DCHECK(row < n_rows_);
  const std::byte* from = panel(row / kPanelRows);
  const std::size_t lane = row % kPanelRows;
  const std::size_t block_bytes = QuantPanelBlockBytes(type_);
  if (block_bytes != 0) {
    for (std::size_t block = 0; block < n_cols_ / kQuantBlock; ++block) {
      QuantBlockRow(type_, from + block * block_bytes, lane, out + block * kQuantBlock);
    }
    return;
  }
  const std::size_t bytes = PlainBytes(type_);
  for (std::size_t c = 0; c < n_cols_; ++c) {
    out[c] = PlainValue(type_, from + (c * kPanelRows + lane) * bytes);
  }
}

}  // namespace kvant
