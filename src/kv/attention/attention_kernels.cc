// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

#include "kv/attention/attention_kernels.h"

#include <bit>
#include <cmath>
#include <cstdint>

#include "base/half.h"
#include "kv/attention/attention_kernels_arm.h"
#include "kv/attention/attention_kernels_x86.h"

namespace kvant {
namespace attention_scalar {
namespace {
#include "backend/cpu/vec_scalar-inl.h"
// The math follows the Vec, the body follows the math.
#include "backend/cpu/vec_math-inl.h"
// See attention_kernels.h.
#include "kv/attention/attention_simd-inl.h"
// See block_bias.h.
#include "kv/transforms/block_bias_simd-inl.h"
}  // namespace
}  // namespace attention_scalar

const AttentionKernels& AttentionKernelsOf(Isa isa) {
#if defined(__x86_64__)
  if (isa == Isa::kAvx512) return attention_avx512::Kernels();
  if (isa == Isa::kAvx2) return attention_avx2::Kernels();
#elif defined(__aarch64__)
  if (isa == Isa::kNeon) return attention_neon::Kernels();
#endif
  static_cast<void>(isa);
  static const AttentionKernels kKernels = {.block_bias = &attention_scalar::BlockBias,
                                            .softmax = &attention_scalar::Softmax,
                                            .attend_rows = &attention_scalar::AttendRows,
                                            .merge = &attention_scalar::Merge,
                                            .normalize = &attention_scalar::Normalize,
                                            .mass_factors = &attention_scalar::MassFactors,
                                            .add_mass = &attention_scalar::AddMass,
                                            .gemm_tile = GemmTileOf(Isa::kScalar)};
  return kKernels;
}

}  // namespace kvant
