// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// Kernels of the weight products, one table for each instruction set; all of them give the same bits.
//
// Every output is one chain of fused multiply-adds over the columns in increasing order, with weights and
// activations in float: the product of what the file means, without rounding of activations. A product of
// one token (mat_vec) and of many (dequantize + gemm_tile) give the same bits.
#pragma once

#include <cstddef>

#include "backend/cpu/gemm_tile.h"
#include "backend/cpu/isa.h"
#include "llm/gguf.h"

namespace kvant {

struct MatmulKernels {
  /// y[0..31] = two neighbouring panels (32 rows) times x [n_cols].
  void (*mat_vec)(WeightType type, const std::byte* panels, std::size_t panel_bytes,
                  std::size_t n_cols, const float* x, float* y) noexcept;
  /// A panel as floats: out[col * stride + row].
  void (*dequantize)(WeightType type, const std::byte* panel, std::size_t n_cols, float* out,
                     std::size_t stride) noexcept;
  /// gate[i] = gate[i] / (1 + e^-gate[i]) * up[i], n a multiple of 16.
  void (*silu_mul)(float* gate, const float* up, std::size_t n) noexcept;
  /// gate[i] = gelu(gate[i]) * up[i] with the tanh form of gelu (Activation::kGeluTanh).
  void (*gelu_mul)(float* gate, const float* up, std::size_t n) noexcept;
  GemmTileFunction gemm_tile;
};

/// The table of an ISA; the caller checked that it is supported.
const MatmulKernels& MatmulKernelsOf(Isa isa);

}  // namespace kvant
