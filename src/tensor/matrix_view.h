// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// A matrix that someone else owns: pointer, shape, stride. No arithmetic.
#pragma once

#include <cstddef>

namespace kvant {

/// Rows of n_cols numbers, row_stride numbers apart (row_stride >= n_cols).
template <typename T>
struct MatrixView {
  T* data = nullptr;  // [n_rows, row_stride]
  std::size_t n_rows = 0;
  std::size_t n_cols = 0;
  std::size_t row_stride = 0;

  MatrixView() = default;
  /// Rows without gaps.
  MatrixView(T* d, std::size_t rows, std::size_t cols) : MatrixView(d, rows, cols, cols) {}
  MatrixView(T* d, std::size_t rows, std::size_t cols, std::size_t stride)
      : data(d), n_rows(rows), n_cols(cols), row_stride(stride) {}

  T* row(std::size_t index) const { return data + index * row_stride; }
};

}  // namespace kvant
