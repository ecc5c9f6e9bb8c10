// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

#include "llm/matmul_kernels.h"

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "base/half.h"
#include "llm/matmul_kernels_arm.h"
#include "llm/matmul_kernels_x86.h"
#include "llm/weight_layout.h"

namespace kvant {
namespace matmul_scalar {
namespace {
#include "backend/cpu/vec_scalar-inl.h"
// The order matters: each of these builds on those before.
#include "backend/cpu/dot_scalar-inl.h"
#include "backend/cpu/vec_math-inl.h"
#include "llm/weight_format_simd-inl.h"
#include "llm/mat_vec_simd-inl.h"
#include "llm/matmul_simd-inl.h"
}  // namespace
}  // namespace matmul_scalar

const MatmulKernels& MatmulKernelsOf(Isa isa) {
#if defined(__x86_64__)
  if (isa == Isa::kAvx512) return matmul_avx512::Kernels();
  if (isa == Isa::kAvx2) return matmul_avx2::Kernels();
#elif defined(__aarch64__)
  if (isa == Isa::kNeon) return matmul_neon::Kernels();
#endif
  static_cast<void>(isa);
  static const MatmulKernels kKernels = {.mat_vec = &matmul_scalar::MatVec,
                                         .mat_vec_digits = &matmul_scalar::MatVecDigits,
                                         .to_digits = &matmul_scalar::ToDigits,
                                         .dequantize = &matmul_scalar::Dequantize,
                                         .silu_mul = &matmul_scalar::SiluMul,
                                         .gelu_mul = &matmul_scalar::GeluMul,
                                         .gemm_tile = GemmTileOf(Isa::kScalar)};
  return kKernels;
}

}  // namespace kvant
