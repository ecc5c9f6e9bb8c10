// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

#include "llm/weight_matrix.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "base/error.h"
#include "base/half.h"
#include "llm/weight_repack.h"

namespace kvant {
namespace {

// Of a file that are in memory beside their repacked form at a time.
constexpr std::size_t kSlabBytes = std::size_t{4} << 20;

float LoadHalfOf(const std::uint8_t* halfs, std::size_t row) {
  Half half;
  std::memcpy(&half, halfs + row * sizeof(Half), sizeof(Half));
  return HalfToFloat(half);
}

// A weight is number * scale + min.
struct SubScales {
  float scale, min;
};

// The rows of the table of PanelLayout, from the scale bytes of one row.
SubScales ScalesOf(const PanelLayout& layout, float d, float m, const std::uint8_t* bytes) {
  if (layout.scale_bytes == 0) return {d, m};
  if (layout.n_halfs == 1) return {d * static_cast<float>(static_cast<std::int8_t>(bytes[0])), 0};
  const bool nibbles = layout.scale_bytes == 1;
  const int scale = nibbles ? bytes[0] & 15 : bytes[0];
  const int minimum = nibbles ? bytes[0] >> 4 : bytes[kPanelRows];
  return {d * static_cast<float>(scale), -(m * static_cast<float>(minimum))};
}

// Bits of column c of a sub-block; `quads` are the plane's in one row.
unsigned PlaneBits(const std::uint8_t* quads, std::size_t c, unsigned bits) {
  const std::size_t columns = kSubColumns / bits;  // of one quad
  const std::uint8_t byte = quads[c / columns * kQuad * kPanelRows + c % kQuad];
  return static_cast<unsigned>(byte) >> c % columns / kQuad * bits & ((1u << bits) - 1);
}

float NumberOf(WeightType type, const PanelLayout& layout, unsigned code) {
  if (type == WeightType::kQ8_0) return static_cast<float>(static_cast<std::int8_t>(code));
  if (type == WeightType::kIQ4_NL) return kIq4NlValues[code];
  return static_cast<float>(static_cast<int>(code) - layout.zero_code);
}

// The values of one row in one quantized block. Sums of a product and a minimum: the product is exact, so
// that they round like the fused form of the kernels.
void BlockRow(WeightType type, const PanelLayout& layout, const std::uint8_t* block,
              std::size_t row, float* out) {
  const float d = LoadHalfOf(block, row);
  const float m = layout.n_halfs == 2 ? LoadHalfOf(block + 2 * kPanelRows, row) : 0.0f;
  const std::uint8_t* sub = block + layout.HeaderBytes();
  for (std::size_t col = 0; col < layout.block_columns; col += kSubColumns) {
    const std::uint8_t* low = sub + layout.ScaleBytes() + kQuad * row;
    const std::uint8_t* high = low + layout.LowBytes();
    for (std::size_t c = 0; c < kSubColumns; ++c) {
      const std::size_t scale = c / layout.scale_columns * layout.scale_bytes * kPanelRows;
      const SubScales scales = ScalesOf(layout, d, m, sub + scale + row);
      unsigned code = PlaneBits(low, c, layout.low_bits);
      if (layout.high_bits != 0) code |= PlaneBits(high, c, layout.high_bits) << layout.low_bits;
      const float product = NumberOf(type, layout, code) * scales.scale;
      out[col + c] = layout.n_halfs == 2 ? product + scales.min : product;
    }
    sub += layout.SubBytes();
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
  const PanelLayout layout = LayoutOf(type);
  if (layout.block_columns != 0) return n_cols / layout.block_columns * layout.BlockBytes();
  return n_cols * kPanelRows * InfoOf(type).block_bytes;
}

WeightMatrix::WeightMatrix(WeightType type, std::size_t n_rows, std::size_t n_cols)
    : type_(type),
      n_rows_(n_rows),
      n_cols_(n_cols),
      panel_bytes_(PanelBytes(type, n_cols)),
      panels_(n_panels() * panel_bytes_, MemoryTag::kWeights) {}

WeightMatrix WeightMatrix::Load(const GgufFile& file, const GgufTensor& tensor,
                                ThreadPool& threads) {
  const std::size_t n_rows = tensor.dims.size() > 1 ? tensor.dims[1] : 1;
  WeightMatrix matrix(tensor.type, n_rows, tensor.dims[0]);
  const auto rows_at = [&](std::size_t first, std::size_t n, std::vector<std::byte>& scratch) {
    return file.Rows(tensor, first, n, scratch);
  };
  const std::size_t slab =
      std::max<std::size_t>(kSlabBytes / (kPanelRows * RowBytes(matrix.type_, matrix.n_cols_)), 1);
  for (std::size_t panel = 0; panel < matrix.n_panels(); panel += slab) {
    const std::size_t n = std::min(slab, matrix.n_panels() - panel);
    matrix.Repack(panel, n, rows_at, threads);
    const std::size_t first_row = panel * kPanelRows;
    file.DropRows(tensor, first_row, std::min(n * kPanelRows, n_rows - first_row));
  }
  return matrix;
}

WeightMatrix WeightMatrix::FromRows(WeightType type, std::size_t n_rows, std::size_t n_cols,
                                    std::span<const std::byte> rows, ThreadPool& threads) {
  WeightMatrix matrix(type, n_rows, n_cols);
  const std::size_t row_bytes = RowBytes(matrix.type_, matrix.n_cols_);
  KVANT_CHECK(rows.size() == n_rows * row_bytes);
  const auto rows_at = [&](std::size_t first, std::size_t, std::vector<std::byte>&) {
    return rows.data() + first * row_bytes;
  };
  matrix.Repack(0, matrix.n_panels(), rows_at, threads);
  return matrix;
}

void WeightMatrix::Repack(std::size_t first_panel, std::size_t n_panels, const RowsAt& rows_at,
                          ThreadPool& threads) {
  const std::size_t row_bytes = RowBytes(type_, n_cols_);
  const auto repack = [&](std::size_t item, std::size_t) {
    const std::size_t panel = first_panel + item, begin = panel * kPanelRows;
    const std::size_t n = std::min(kPanelRows, n_rows_ - begin);
    std::vector<std::byte> scratch;
    const std::byte* first = rows_at(begin, n, scratch);
    std::array<const std::byte*, kPanelRows> from;
    for (std::size_t i = 0; i < n; ++i) from[i] = first + i * row_bytes;
    RepackPanel(type_, std::span(from).first(n), n_cols_, panels_.data() + panel * panel_bytes_);
  };
  threads.ParallelFor(n_panels, repack);
}

void WeightMatrix::Row(std::size_t row, float* out) const {
  KVANT_DCHECK(row < n_rows_);
  const std::byte* from = panel(row / kPanelRows);
  row %= kPanelRows;
  const PanelLayout layout = LayoutOf(type_);
  if (layout.block_columns != 0) {
    const auto* block = reinterpret_cast<const std::uint8_t*>(from);
    for (std::size_t col = 0; col < n_cols_; col += layout.block_columns) {
      BlockRow(type_, layout, block, row, out + col);
      block += layout.BlockBytes();
    }
    return;
  }
  const std::size_t bytes = InfoOf(type_).block_bytes;
  for (std::size_t c = 0; c < n_cols_; ++c) {
    out[c] = PlainValue(type_, from + (c * kPanelRows + row) * bytes);
  }
}

}  // namespace kvant
