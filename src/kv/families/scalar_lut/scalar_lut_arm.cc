// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// NEON kernels of the scalar-table codecs.
#include "kv/families/scalar_lut/scalar_lut.h"

#if defined(__aarch64__)

#include <arm_neon.h>

#include <cstring>

#include "backend/cpu/isa_region.h"

KVANT_TARGET_BEGIN_NEON
namespace kvant::scalar_lut::neon {
namespace {
#include "backend/cpu/vec_neon-inl.h"
// Dot products of bytes follow the Vec.
#include "backend/cpu/dot_neon-inl.h"
// The rotation follows the Vec, the bodies follow both.
#include "kv/transforms/rotation_simd-inl.h"
// Codes out of words, then what reads and what writes them.
#include "kv/families/scalar_lut/unpack_simd-inl.h"
// See above.
#include "kv/families/scalar_lut/attend_bytes_simd-inl.h"
// See above.
#include "kv/families/scalar_lut/attend_floats_simd-inl.h"
// See above.
#include "kv/families/scalar_lut/attend_simd-inl.h"
// See above.
#include "kv/families/scalar_lut/decode_simd-inl.h"
// See above.
#include "kv/families/scalar_lut/encode_simd-inl.h"
}  // namespace
}  // namespace kvant::scalar_lut::neon
KVANT_TARGET_END

namespace kvant::scalar_lut {

const KernelSet& neon::Kernels() {
  static const KernelSet kSet = {.isa = Isa::kNeon,
                                 .exactness = {},
                                 .encode = &neon::Encode,
                                 .decode = &neon::Decode,
                                 .score = &neon::Score,
                                 .accumulate = &neon::Accumulate,
                                 .prepare_query = &neon::PrepareQuery,
                                 .finish_output = &neon::FinishOutput};
  return kSet;
}

}  // namespace kvant::scalar_lut

#endif  // __aarch64__
