// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// AVX2 and AVX-512 instances of the attention kernels.
#include "kv/attention/attention_kernels_x86.h"

#if defined(__x86_64__)

#include <immintrin.h>

#include <cmath>
#include <cstdint>

#include "backend/cpu/isa_region.h"

KVANT_TARGET_BEGIN_AVX2
namespace kvant::attention_avx2 {
namespace {
#include "backend/cpu/vec_avx2-inl.h"
// The math follows the Vec, the body follows the math.
#include "backend/cpu/vec_math-inl.h"
// See attention_kernels.h.
#include "kv/attention/attention_simd-inl.h"
// See block_bias.h.
#include "kv/transforms/block_bias_simd-inl.h"
}  // namespace
}  // namespace kvant::attention_avx2
KVANT_TARGET_END

KVANT_TARGET_BEGIN_AVX512
namespace kvant::attention_avx512 {
namespace {
#include "backend/cpu/vec_avx512-inl.h"
// The math follows the Vec, the body follows the math.
#include "backend/cpu/vec_math-inl.h"
// See attention_kernels.h.
#include "kv/attention/attention_simd-inl.h"
// See block_bias.h.
#include "kv/transforms/block_bias_simd-inl.h"
}  // namespace
}  // namespace kvant::attention_avx512
KVANT_TARGET_END

namespace kvant {

const AttentionKernels& attention_avx2::Kernels() {
  static const AttentionKernels kKernels = {.block_bias = &attention_avx2::BlockBias,
                                            .softmax = &attention_avx2::Softmax,
                                            .attend_rows = &attention_avx2::AttendRows,
                                            .merge = &attention_avx2::Merge,
                                            .normalize = &attention_avx2::Normalize,
                                            .mass_factors = &attention_avx2::MassFactors,
                                            .add_mass = &attention_avx2::AddMass,
                                            .gemm_tile = GemmTileOf(Isa::kAvx2)};
  return kKernels;
}

const AttentionKernels& attention_avx512::Kernels() {
  static const AttentionKernels kKernels = {.block_bias = &attention_avx512::BlockBias,
                                            .softmax = &attention_avx512::Softmax,
                                            .attend_rows = &attention_avx512::AttendRows,
                                            .merge = &attention_avx512::Merge,
                                            .normalize = &attention_avx512::Normalize,
                                            .mass_factors = &attention_avx512::MassFactors,
                                            .add_mass = &attention_avx512::AddMass,
                                            .gemm_tile = GemmTileOf(Isa::kAvx512)};
  return kKernels;
}

}  // namespace kvant

#endif  // __x86_64__
