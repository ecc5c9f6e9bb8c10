// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// A weight matrix in the order in which the products read it.
//
// GGUF stores a matrix row by row. Products read panels of 32 rows in which neighbouring lanes are
// neighbouring rows, so that no product needs a horizontal sum, and a panel is one stream of memory. Rows are
// padded with zeros to whole panels. Repacking moves bits and changes no value; weight_layout.h draws the panels
// of every type and states their values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "base/memory.h"
#include "base/thread_pool.h"
#include "llm/gguf.h"
#include "llm/weight_layout.h"

namespace kvant {

class WeightMatrix {
 public:
  WeightMatrix() = default;
  /// Repacks a tensor [n_rows, n_cols] (dims = {n_cols, n_rows}), a few MiB at a time, and drops their pages of
  /// the map, so that there is never a second copy in memory. The caller checked the dims.
  static WeightMatrix Load(const GgufFile& file, const GgufTensor& tensor, ThreadPool& threads);
  /// Repacks rows that lie as in a file, end to end: n_rows of n_cols values (whole blocks of the type).
  static WeightMatrix FromRows(WeightType type, std::size_t n_rows, std::size_t n_cols,
                               std::span<const std::byte> rows, ThreadPool& threads);

  WeightType type() const { return type_; }
  std::size_t n_rows() const { return n_rows_; }
  std::size_t n_cols() const { return n_cols_; }
  std::size_t n_panels() const { return (n_rows_ + kPanelRows - 1) / kPanelRows; }
  std::size_t panel_bytes() const { return panel_bytes_; }
  std::uint64_t bytes() const { return panels_.bytes(); }
  const std::byte* panel(std::size_t panel) const { return panels_.data() + panel * panel_bytes_; }
  /// One row as floats, out [n_cols]: embedding look-up.
  void Row(std::size_t row, float* out) const;

 private:
  // Rows [first, first + n) of the matrix as in a file, in place or written to `scratch`.
  using RowsAt = std::function<const std::byte*(std::size_t first, std::size_t n,
                                                std::vector<std::byte>& scratch)>;
  WeightMatrix(WeightType type, std::size_t n_rows, std::size_t n_cols);
  void Repack(std::size_t first_panel, std::size_t n_panels, const RowsAt& rows_at,
              ThreadPool& threads);

  WeightType type_ = WeightType::kF32;
  std::size_t n_rows_ = 0;
  std::size_t n_cols_ = 0;
  std::size_t panel_bytes_ = 0;
  Buffer<std::byte> panels_;
};

/// Bytes of a panel.
std::size_t PanelBytes(WeightType type, std::size_t n_cols);

}  // namespace kvant
