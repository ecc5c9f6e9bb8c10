// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// NEON instance of the f32 tile product.
#include "backend/cpu/gemm_tile_arm.h"

#if defined(__aarch64__)

#include <arm_neon.h>

#include <cstdint>

#include "backend/cpu/isa_region.h"

KVANT_TARGET_BEGIN_NEON
namespace kvant::gemm_neon {
namespace {
#include "backend/cpu/vec_neon-inl.h"
// The body follows the Vec it is written on.
#include "backend/cpu/gemm_tile-inl.h"
}  // namespace
}  // namespace kvant::gemm_neon
KVANT_TARGET_END

namespace kvant {
GemmTileFunction gemm_neon::Function() { return &gemm_neon::GemmTile; }
}  // namespace kvant

#endif  // __aarch64__
