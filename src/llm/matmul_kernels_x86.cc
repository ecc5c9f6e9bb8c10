// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// AVX2 and AVX-512 instances of the weight-product kernels.
#include "llm/matmul_kernels_x86.h"

#if defined(__x86_64__)

#include <immintrin.h>

#include <cstdint>
#include <cstring>

#include "backend/cpu/isa_region.h"
#include "llm/weight_layout.h"

KVANT_TARGET_BEGIN_AVX2
namespace kvant::matmul_avx2 {
namespace {
#include "backend/cpu/vec_avx2-inl.h"
// The order matters: each of these builds on those before.
#include "backend/cpu/dot_avx2-inl.h"
#include "backend/cpu/vec_math-inl.h"
#include "llm/weight_format_simd-inl.h"
#include "llm/mat_vec_simd-inl.h"
#include "llm/matmul_simd-inl.h"
}  // namespace
}  // namespace kvant::matmul_avx2
KVANT_TARGET_END

KVANT_TARGET_BEGIN_AVX512
namespace kvant::matmul_avx512 {
namespace {
#include "backend/cpu/vec_avx512-inl.h"
// The order matters: each of these builds on those before.
#include "backend/cpu/dot_avx512-inl.h"
#include "backend/cpu/vec_math-inl.h"
#include "llm/weight_format_simd-inl.h"
#include "llm/mat_vec_simd-inl.h"
#include "llm/matmul_simd-inl.h"
}  // namespace
}  // namespace kvant::matmul_avx512
KVANT_TARGET_END

namespace kvant {

const MatmulKernels& matmul_avx2::Kernels() {
  static const MatmulKernels kKernels = {.mat_vec = &matmul_avx2::MatVec,
                                         .mat_vec_digits = &matmul_avx2::MatVecDigits,
                                         .to_digits = &matmul_avx2::ToDigits,
                                         .dequantize = &matmul_avx2::Dequantize,
                                         .silu_mul = &matmul_avx2::SiluMul,
                                         .gelu_mul = &matmul_avx2::GeluMul,
                                         .gemm_tile = GemmTileOf(Isa::kAvx2)};
  return kKernels;
}

const MatmulKernels& matmul_avx512::Kernels() {
  static const MatmulKernels kKernels = {.mat_vec = &matmul_avx512::MatVec,
                                         .mat_vec_digits = &matmul_avx512::MatVecDigits,
                                         .to_digits = &matmul_avx512::ToDigits,
                                         .dequantize = &matmul_avx512::Dequantize,
                                         .silu_mul = &matmul_avx512::SiluMul,
                                         .gelu_mul = &matmul_avx512::GeluMul,
                                         .gemm_tile = GemmTileOf(Isa::kAvx512)};
  return kKernels;
}

}  // namespace kvant

#endif  // __x86_64__
