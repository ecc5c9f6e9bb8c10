// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// Rounding floats to bfloat16 in the order that products of pairs read: to nearest, ties to even; NaN
// stays NaN. The instances give the same bits.
#pragma once

#include <cstddef>
#include <cstdint>

#include "backend/cpu/isa.h"

namespace kvant {

struct BFloat16Kernels {
  /// out[i] = x[i], n of any size.
  void (*round)(const float* x, std::size_t n, std::uint16_t* out) noexcept;
  /// A panel's columns [n_cols, 32], n_cols even, as pairs of neighbouring columns of a row:
  /// out[col / 2 * pair_stride + row * 2 + col % 2].
  void (*pack_pairs)(const float* columns, std::size_t n_cols, std::uint16_t* out,
                     std::size_t pair_stride) noexcept;
};

/// The instance of an ISA (baseline ones where there is none of its own); the caller checked that it is
/// supported.
const BFloat16Kernels& BFloat16KernelsOf(Isa isa);

}  // namespace kvant
