// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// AVX2 and AVX-512 kernels of the scalar-table codecs.
#include "kv/families/scalar_lut/scalar_lut.h"

#if defined(__x86_64__)

#include <immintrin.h>

#include <cstring>

#include "backend/cpu/isa_region.h"

KVANT_TARGET_BEGIN_AVX2
namespace kvant::scalar_lut::avx2 {
namespace {
#include "backend/cpu/vec_avx2-inl.h"
// Dot products of bytes follow the Vec.
#include "backend/cpu/dot_avx2-inl.h"
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
}  // namespace kvant::scalar_lut::avx2
KVANT_TARGET_END

KVANT_TARGET_BEGIN_AVX512
namespace kvant::scalar_lut::avx512 {
namespace {
#include "backend/cpu/vec_avx512-inl.h"
// Dot products of bytes follow the Vec.
#include "backend/cpu/dot_avx512-inl.h"
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
}  // namespace kvant::scalar_lut::avx512
KVANT_TARGET_END

namespace kvant::scalar_lut {

const KernelSet& avx2::Kernels() {
  static const KernelSet kSet = {.isa = Isa::kAvx2,
                                 .exactness = {},
                                 .encode = &avx2::Encode,
                                 .decode = &avx2::Decode,
                                 .score = &avx2::Score,
                                 .accumulate = &avx2::Accumulate,
                                 .prepare_query = &avx2::PrepareQuery,
                                 .finish_output = &avx2::FinishOutput};
  return kSet;
}

const KernelSet& avx512::Kernels() {
  static const KernelSet kSet = {.isa = Isa::kAvx512,
                                 .exactness = {},
                                 .encode = &avx512::Encode,
                                 .decode = &avx512::Decode,
                                 .score = &avx512::Score,
                                 .accumulate = &avx512::Accumulate,
                                 .prepare_query = &avx512::PrepareQuery,
                                 .finish_output = &avx512::FinishOutput};
  return kSet;
}

}  // namespace kvant::scalar_lut

#endif  // __x86_64__
