// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// NEON instance of the attention kernels.
#include "kv/attention/attention_kernels_arm.h"

#if defined(__aarch64__)

#include <arm_neon.h>

#include <cmath>
#include <cstdint>

#include "backend/cpu/isa_region.h"

KVANT_TARGET_BEGIN_NEON
namespace kvant::attention_neon {
namespace {
#include "backend/cpu/vec_neon-inl.h"
// The math follows the Vec, the body follows the math.
#include "backend/cpu/vec_math-inl.h"
// See attention_kernels.h.
#include "kv/attention/attention_simd-inl.h"
// See block_bias.h.
#include "kv/transforms/block_bias_simd-inl.h"
}  // namespace
}  // namespace kvant::attention_neon
KVANT_TARGET_END

namespace kvant {

const AttentionKernels& attention_neon::Kernels() {
  static const AttentionKernels kKernels = {.block_bias = &attention_neon::BlockBias,
                                            .softmax = &attention_neon::Softmax,
                                            .attend_rows = &attention_neon::AttendRows,
                                            .merge = &attention_neon::Merge,
                                            .normalize = &attention_neon::Normalize,
                                            .mass_factors = &attention_neon::MassFactors,
                                            .add_mass = &attention_neon::AddMass,
                                            .gemm_tile = GemmTileOf(Isa::kNeon)};
  return kKernels;
}

}  // namespace kvant

#endif  // __aarch64__
