// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// NEON kernels of bf16.
#include "kv/codecs/bf16/bf16.h"

#if defined(__aarch64__)

#include <arm_neon.h>

#include <cstdint>

#include "backend/cpu/isa_region.h"

KVANT_TARGET_BEGIN_NEON
namespace kvant::bf16::neon {
namespace {
#include "backend/cpu/vec_neon-inl.h"
// The format follows the Vec, the body follows the format.
#include "kv/codecs/bf16/bf16_format-inl.h"
// Shared with the other plain 16-bit codec.
#include "kv/families/plain16/plain16_simd-inl.h"
}  // namespace
}  // namespace kvant::bf16::neon
KVANT_TARGET_END

namespace kvant::bf16 {

const KernelSet& neon::Kernels() {
  static const KernelSet kSet = {.isa = Isa::kNeon,
                                 .exactness = {},
                                 .encode = &neon::Encode,
                                 .decode = &neon::Decode,
                                 .score = &neon::Score,
                                 .accumulate = &neon::Accumulate,
                                 .store_key_tile = &neon::StoreKeyTile,
                                 .widen = &neon::Widen};
  return kSet;
}

}  // namespace kvant::bf16

#endif  // __aarch64__
