// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// AVX2 and AVX-512 kernels of bf16.
#include "kv/codecs/bf16/bf16.h"

#if defined(__x86_64__)

#include <immintrin.h>

#include <cstdint>

#include "backend/cpu/isa_region.h"

KVANT_TARGET_BEGIN_AVX2
namespace kvant::bf16::avx2 {
namespace {
#include "backend/cpu/vec_avx2-inl.h"
// The format follows the Vec, the body follows the format.
#include "kv/codecs/bf16/bf16_format-inl.h"
// Shared with the other plain 16-bit codec.
#include "kv/families/plain16/plain16_simd-inl.h"
}  // namespace
}  // namespace kvant::bf16::avx2
KVANT_TARGET_END

KVANT_TARGET_BEGIN_AVX512
namespace kvant::bf16::avx512 {
namespace {
#include "backend/cpu/vec_avx512-inl.h"
// The format follows the Vec, the body follows the format.
#include "kv/codecs/bf16/bf16_format-inl.h"
// Shared with the other plain 16-bit codec.
#include "kv/families/plain16/plain16_simd-inl.h"
}  // namespace
}  // namespace kvant::bf16::avx512
KVANT_TARGET_END

namespace kvant::bf16 {

const KernelSet& avx2::Kernels() {
  static const KernelSet kSet = {.isa = Isa::kAvx2,
                                 .exactness = {},
                                 .encode = &avx2::Encode,
                                 .decode = &avx2::Decode,
                                 .score = &avx2::Score,
                                 .accumulate = &avx2::Accumulate,
                                 .store_key_tile = &avx2::StoreKeyTile,
                                 .widen = &avx2::Widen};
  return kSet;
}

const KernelSet& avx512::Kernels() {
  static const KernelSet kSet = {.isa = Isa::kAvx512,
                                 .exactness = {},
                                 .encode = &avx512::Encode,
                                 .decode = &avx512::Decode,
                                 .score = &avx512::Score,
                                 .accumulate = &avx512::Accumulate,
                                 .store_key_tile = &avx512::StoreKeyTile,
                                 .widen = &avx512::Widen};
  return kSet;
}

}  // namespace kvant::bf16

#endif  // __x86_64__
