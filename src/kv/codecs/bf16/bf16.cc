// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

#include "kv/codecs/bf16/bf16.h"

#include <bit>
#include <cmath>

#include "base/half.h"
#include "kv/families/plain16/plain16.h"

namespace kvant::bf16 {
namespace scalar {
namespace {
#include "backend/cpu/vec_scalar-inl.h"
// The format follows the Vec, the body follows the format.
#include "kv/codecs/bf16/bf16_format-inl.h"
// Shared with the other plain 16-bit codec.
#include "kv/families/plain16/plain16_simd-inl.h"
}  // namespace
}  // namespace scalar

namespace {

std::span<const KernelSet> Kernels() {
  static const KernelSet kSets[] = {
      {.isa = Isa::kScalar,
       .exactness = {},
       .encode = &scalar::Encode,
       .decode = &scalar::Decode,
       .score = &scalar::Score,
       .accumulate = &scalar::Accumulate,
       .store_key_tile = &scalar::StoreKeyTile,
       .widen = &scalar::Widen},
#if defined(__x86_64__)
      avx2::Kernels(),
      avx512::Kernels(),
#elif defined(__aarch64__)
      neon::Kernels(),
#endif
  };
  return kSets;
}

constexpr PresetInfo kPresets[] = {
    {.name = "bf16", .expansion = "k=bf16,v=bf16,exact=bf16", .meaning = "16-bit rows (bfloat16): for models whose rows overflow half"}};

}  // namespace

const CodecRecord& GetCodec() {
  static const CodecRecord kRecord = {.name = "bf16",
                                      .summary = "bfloat16 rows, nothing compressed",
                                      .paper = "BFLOAT16 hardware numerics definition, Intel, 2018",
                                      .storage = StorageKind::kExact,
                                      .options = {},
                                      .presets = kPresets,
                                      .variants = {},
                                      .parse_config = &plain16::ParseConfig,
                                      .refuse_head_dim = &plain16::RefuseHeadDim,
                                      .bind = nullptr,
                                      .geometry = &plain16::Geometry,
                                      .query_bytes = nullptr,
                                      .to_canonical = &plain16::ToCanonical,
                                      .from_canonical = &plain16::FromCanonical,
                                      .kernels = &Kernels};
  return kRecord;
}

}  // namespace kvant::bf16
