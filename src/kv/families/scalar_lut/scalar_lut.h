// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// Frame of the codecs that keep a row as one scalar and a code of b bits for each coordinate of the rotated
// row: x ~ scalar * unrotate(levels[code]). A codec of this family supplies a codebook and rules; encode,
// decode, scores and sums from codes are here.
//
// Bytes of one side of a block, d = head_dim (a multiple of 16), 64 tokens, codes of b bits:
//
//   codes    a code is cut into planes of 4, 2 and 1 bits (8 = 4 + 4, 7 = 4 + 2 + 1, 6 = 4 + 2, 5 = 4 + 1,
//            3 = 2 + 1), the upper bits first; planes follow each other. A plane is rows of sixteen 32-bit
//            words (64 bytes, one register); a word holds 32 / p codes of p bits of one lane:
//              keys    lane = token % 16, along a word: dimensions   [word][token / 16][lane]
//              values  lane = dim % 16,   along a word: tokens       [dim / 16][word][lane]
//            number i along a word stands at bit 8 (i % 4) + p (i / 4): one shift brings it to the low bits
//            of its lane, and four neighbours are the four bytes of a lane, as integer dot products want.
//            A last word of keys that is not full (d = 80 with p = 1) is padded.
//   scalars  [64] IEEE half
//
// The canonical order (files, tests): token by token, d codes of b bits, least significant bit first, in
// ceil(d b / 8) bytes; then the scalars; then zeros up to the same size.
//
// Scalar rules, y the rotated row and y^ its levels: norm = rms(x), matched = rms(x) |y| / |y^|,
// unbiased = rms(x) |y|^2 / <y, y^> (makes <q, x^> unbiased: EDEN, arXiv 2108.08842; RaBitQ, arXiv
// 2405.12497). Levels have the unit of rms(x) = |x| / sqrt(d), so half's range is that of a coordinate.
// A scalar above 65504 is stored as 65504; a row whose rms is above that, or with a number that is not
// finite, is refused.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "kv/families/scalar_lut/codebook.h"
#include "kv/method.h"
#include "kv/transforms/rotation.h"

namespace kvant::scalar_lut {

inline constexpr std::size_t kMaxHeadDim = 1024;
inline constexpr std::size_t kLanes = 16;
inline constexpr std::size_t kMaxPlanes = 3;

enum class ScalarRule : std::uint8_t { kNorm, kMatched, kUnbiased };

/// Options of a codec of this family, before it is bound to a layer.
struct Options : CodecConfig {
  CodebookKind kind = CodebookKind::kNested;
  unsigned bits1 = 2;
  unsigned bits2 = 2;
  std::optional<ScalarRule> scalar;  // unset: unbiased for keys, matched for values
  bool fused = true;                 // codes and packing in one pass
  std::uint64_t seed = 42;           // of the rotation's signs
};

/// One plane of the codes of one side.
struct Plane {
  unsigned bits = 0;         // 4, 2 or 1
  unsigned shift = 0;        // of these bits in the code
  std::size_t n_word = 0;    // words of one lane
  std::uint64_t offset = 0;  // bytes, from the start of the side
};

/// What the kernels read: options bound to a side, a layer and a head_dim.
struct Config : CodecConfig {
  std::shared_ptr<const Codebook> book;
  ScalarRule scalar = ScalarRule::kUnbiased;
  bool fused = true;
  bool half_unit = false;  // as published: the unit vector is rounded to half before it is rotated
  Rotation rotation;
  std::array<Plane, kMaxPlanes> planes;
  std::size_t n_plane = 0;
  std::uint64_t scalar_offset = 0;
  /// Levels as the kernels index them: up to 4 bits, 16 floats that ignore bits above the code; above,
  /// levels[code].
  std::array<float, 256> table;
  /// Codes of up to kByteBits bits: the same as bytes, levels = bytes * step.
  std::array<std::int8_t, 16> bytes;
  float step = 0;
};

/// Codes of up to so many bits are attended in integers: their levels are bytes.
inline constexpr unsigned kByteBits = 4;

/// What follows the bytes of a query that is rounded to bytes.
struct QueryTail {
  float factor;        // of the integer sum: max|q| / 127 * step
  std::int32_t start;  // of the integer sum, where an instruction set shifts the levels
  std::int32_t unused[2];
};

/// Of one prepared query: bytes and their tail, or floats above kByteBits.
constexpr std::size_t QueryBytes(unsigned bits, std::size_t head_dim) {
  return bits <= kByteBits ? head_dim + sizeof(QueryTail) : head_dim * sizeof(float);
}

/// What a codec of the family says for itself; the rest of its record is the family's. parse_config gives Options.
struct CodecNames {
  std::string_view name, summary, paper;
  std::span<const OptionInfo> options;
  std::span<const PresetInfo> presets;
  std::span<const std::string_view> variants;
  std::shared_ptr<const CodecConfig> (*parse_config)(std::span<const OptionText> options);
};
CodecRecord MakeRecord(const CodecNames& names);

/// The options that every codec of the family has. ParseSharedOption takes their values and leaves other options
/// alone; throws Error(kInvalidArgument) with what is allowed.
inline constexpr OptionInfo kScalarOption = {
    .name = "scalar",
    .default_value = "unbiased for k, matched for v",
    .allowed = "norm, matched, unbiased",
    .meaning = "rule of the fp16 number kept with each row"};
inline constexpr OptionInfo kSeedOption = {.name = "seed",
                                           .default_value = "42",
                                           .allowed = "a whole number",
                                           .meaning = "of the random signs of the rotation"};
void ParseSharedOption(const OptionText& option, Options& options);

/// Where code (token, dim) stands in a plane: 32-bit word index from the plane's start and bit in it.
struct CodePlace {
  std::size_t word = 0;
  unsigned bit = 0;
};
CodePlace PlaceOf(Side side, const Plane& plane, std::size_t token, std::size_t dim);

#if defined(__x86_64__)
namespace avx2 {
const KernelSet& Kernels();
}
namespace avx512 {
const KernelSet& Kernels();
}
#elif defined(__aarch64__)
namespace neon {
const KernelSet& Kernels();
}
#endif

}  // namespace kvant::scalar_lut
