// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// Kernels of the weight products, one table for each instruction set; all of them give the same bits.
//
// Exact products: every output is one chain of fused multiply-adds over the columns in increasing order, with
// weights and activations in float: the product of what the file means. One token (mat_vec) and many
// (dequantize + gemm_tile) give the same bits.
//
// Products with digits (mat_vec_digits) round activations to 1 in 16,256 of the largest of 32, as two digits of
// eight bits each, and multiply in integers; docs/design/007-weight-products.md says why two.
#pragma once

#include <cstddef>
#include <cstdint>

#include "backend/cpu/gemm_tile.h"
#include "backend/cpu/isa.h"
#include "llm/gguf.h"

namespace kvant {

inline constexpr int kDigitBits = 7;  // of the low digit

/// Thirty-two activations: x[i] = scale (128 high[i] + low[i]), high within 127 and low within 64 of zero.
struct ActivationGroup {
  std::int8_t high[32];
  std::int8_t low[32];
  float scale;          // the largest |x| / 16256; NaN where one is not finite
  std::int32_t sum[2];  // of 128 high + low, in each half
};
/// A group of smaller numbers than this becomes zeros, whose inverse scale would not be finite.
inline constexpr float kLeastActivation = 1e-30f;

struct MatmulKernels {
  /// y [n_panels * 32] = panels times x [n_cols], exactly. Panels may be followed by anything: what is asked
  /// for ahead is never read.
  void (*mat_vec)(WeightType type, const std::byte* panels, std::size_t n_panels,
                  std::size_t n_cols, const float* x, float* y) noexcept;
  /// The same with activations in digits [n_cols / 32], for quantized types only.
  void (*mat_vec_digits)(WeightType type, const std::byte* panels, std::size_t n_panels,
                         std::size_t n_cols, const ActivationGroup* x, float* y) noexcept;
  /// out [n_groups] = x [n_groups * 32] in digits, rounded to nearest even.
  void (*to_digits)(const float* x, std::size_t n_groups, ActivationGroup* out) noexcept;
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
