// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// NEON instance of the weight-product kernels.
#include "llm/matmul_kernels_arm.h"

#if defined(__aarch64__)

#include <arm_neon.h>

#include <cstdint>

#include "backend/cpu/isa_region.h"
#include "llm/weight_layout.h"

KVANT_TARGET_BEGIN_NEON
namespace kvant::matmul_neon {
namespace {
#include "backend/cpu/vec_neon-inl.h"
// The math follows the Vec, the body follows the math.
#include "backend/cpu/vec_math-inl.h"
// See matmul_kernels.h.
#include "llm/matmul_simd-inl.h"
}  // namespace
}  // namespace kvant::matmul_neon
KVANT_TARGET_END

namespace kvant {

const MatmulKernels& matmul_neon::Kernels() {
  static const MatmulKernels kKernels = {.mat_vec = &matmul_neon::MatVec,
                                         .dequantize = &matmul_neon::Dequantize,
                                         .silu_mul = &matmul_neon::SiluMul,
                                         .gelu_mul = &matmul_neon::GeluMul,
                                         .gemm_tile = GemmTileOf(Isa::kNeon)};
  return kKernels;
}

}  // namespace kvant

#endif  // __aarch64__
