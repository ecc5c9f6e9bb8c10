// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

#include "backend/cpu/gemm_tile.h"

#include <bit>
#include <cmath>
#include <cstdint>

#include "backend/cpu/gemm_tile_arm.h"
#include "backend/cpu/gemm_tile_x86.h"
#include "base/half.h"

namespace kvant {
namespace gemm_scalar {
namespace {
#include "backend/cpu/vec_scalar-inl.h"
// The body follows the Vec it is written on.
#include "backend/cpu/gemm_tile-inl.h"
}  // namespace
}  // namespace gemm_scalar

GemmTileFunction GemmTileOf(Isa isa) {
#if defined(__x86_64__)
  if (isa == Isa::kAvx512) return gemm_avx512::Function();
  if (isa == Isa::kAvx2) return gemm_avx2::Function();
#elif defined(__aarch64__)
  if (isa == Isa::kNeon) return gemm_neon::Function();
#endif
  static_cast<void>(isa);
  return &gemm_scalar::GemmTile;
}

}  // namespace kvant
