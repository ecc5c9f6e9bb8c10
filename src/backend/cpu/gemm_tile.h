// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// Small dense product in f32, the piece that prefill attention and the weight products share.
//
// Each element of C is one chain of fused multiply-adds over k in increasing order. Nothing else: no
// partial sums that would depend on the shape or the ISA. So the result of a row does not depend on
// how many rows are computed together, which makes prefill in any chunking equal to decode bit for bit.
#pragma once

#include <cstddef>

#include "backend/cpu/isa.h"

namespace kvant {

struct GemmTileArgs {
  const float* a;  // [n_rows, k]
  std::size_t a_stride;
  const float* b;  // [k, n]
  std::size_t b_stride;
  float* c;  // [n_rows, n]
  std::size_t c_stride;
  std::size_t n_rows;
  std::size_t k;
  std::size_t n;         // a multiple of 16
  const float* c_scale;  // [n_rows]: C = C * c_scale[row] + A B; nullptr: C = A B
  std::size_t c_scale_stride;
};

using GemmTileFunction = void (*)(const GemmTileArgs& args) noexcept;

/// The function of an ISA; the caller checked that it is supported. Bit-identical across ISAs.
GemmTileFunction GemmTileOf(Isa isa);

}  // namespace kvant
