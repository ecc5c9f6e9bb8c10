// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// AVX2 and AVX-512 instances of the f32 tile product.
#include "backend/cpu/gemm_tile_x86.h"

#if defined(__x86_64__)

#include <immintrin.h>

#include <cstdint>

#include "backend/cpu/isa_region.h"

KVANT_TARGET_BEGIN_AVX2
namespace kvant::gemm_avx2 {
namespace {
#include "backend/cpu/vec_avx2-inl.h"
// The body follows the Vec it is written on.
#include "backend/cpu/gemm_tile-inl.h"
}  // namespace
}  // namespace kvant::gemm_avx2
KVANT_TARGET_END

KVANT_TARGET_BEGIN_AVX512
namespace kvant::gemm_avx512 {
namespace {
#include "backend/cpu/vec_avx512-inl.h"
// The body follows the Vec it is written on.
#include "backend/cpu/gemm_tile-inl.h"
}  // namespace
}  // namespace kvant::gemm_avx512
KVANT_TARGET_END

namespace kvant {
GemmTileFunction gemm_avx2::Function() { return &gemm_avx2::GemmTile; }
GemmTileFunction gemm_avx512::Function() { return &gemm_avx512::GemmTile; }
}  // namespace kvant

#endif  // __x86_64__
