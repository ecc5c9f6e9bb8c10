// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// NEON instance of the weight-product kernels.
#include "llm/matmul_kernels_arm.h"

#if defined(__aarch64__)

#include <arm_neon.h>

#include <cstdint>
#include <cstring>

#include "backend/cpu/isa_region.h"
#include "llm/weight_layout.h"

KVANT_TARGET_BEGIN_NEON
namespace kvant::matmul_neon {
namespace {
#include "backend/cpu/vec_neon-inl.h"
// The order matters: each of these builds on those before.
#include "backend/cpu/dot_neon-inl.h"
#include "backend/cpu/vec_math-inl.h"
#include "llm/weight_format_simd-inl.h"
#include "llm/mat_vec_simd-inl.h"
#include "llm/matmul_simd-inl.h"
}  // namespace
}  // namespace kvant::matmul_neon
KVANT_TARGET_END

namespace kvant {

const MatmulKernels& matmul_neon::Kernels() {
  static const MatmulKernels kKernels = {.mat_vec = &matmul_neon::MatVec,
                                         .mat_vec_digits = &matmul_neon::MatVecDigits,
                                         .to_digits = &matmul_neon::ToDigits,
                                         .dequantize = &matmul_neon::Dequantize,
                                         .silu_mul = &matmul_neon::SiluMul,
                                         .gelu_mul = &matmul_neon::GeluMul,
                                         .gemm_tile = GemmTileOf(Isa::kNeon)};
  return kKernels;
}

}  // namespace kvant

#endif  // __aarch64__
