// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// Scalar codebooks for one coordinate of a randomly rotated vector, in one stage or two.
//
// Unit. A vector x of head_dim d is scaled to x / rms(x), rms(x) = ||x|| / sqrt(d), before it is
// coded, so a coordinate has mean square 1 and all levels here are in that unit. Its density is
// that of a coordinate of a uniform unit vector times sqrt(d): p(y) ~ (1 - y^2/d)^((d-3)/2) on
// (-sqrt(d), sqrt(d)).
//
// Codes. All tables are exactly symmetric about 0. An ordered index i of b bits (0 = most negative
// level) is stored as sign and magnitude: StoredCode. For two stages the code of stage 1 fills the
// upper bits, that of stage 2 the lower bits. A nested codebook is one ordered table of b1 + b2
// bits and stores StoredCode of the joint index; its upper b1 bits are StoredCode of the index of
// stage 1, so they alone are a coarser code (its lower bits count away from the middle on both
// sides).
//
// Truth. A code's value is levels[code] = integer_levels[code] * step, with integers of 8 bits
// (-127 to 127) for codes of up to 4 bits and of 16 bits above: what a kernel that computes with
// integers sees is what the scalars were fitted to.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace kvant::scalar_lut {

/// How stage 2 refines stage 1 (the codec's README gives formulas and sources).
enum class CodebookKind : std::uint8_t {
  kNested,    // one Lloyd-Max table of b1 + b2 bits, cut into 2^b1 runs of neighbours (b2 may be 0)
  kFitted,    // stage 1 of kUpstream; one table for all cells, Lloyd-Max on its true residual
  kUpstream,  // as published: Gaussian stage 1, one Laplace-fitted table for all cells
};

struct Codebook {
  unsigned bits1 = 0;
  unsigned bits2 = 0;
  CodebookKind kind = CodebookKind::kNested;

  /// [2^bits1 - 1] ascending; index of stage 1 = number of bounds strictly below y.
  std::vector<float> bounds1;
  /// [2^bits1] ascending: value of stage 1 alone (nested: the centroid of a run).
  std::vector<float> levels1;
  /// Nested: [2^bits1][2^bits2 - 1], bounds on y itself inside each run. Otherwise [2^bits2 - 1],
  /// bounds on the residual y - levels1[index 1]. Empty when bits2 is 0.
  std::vector<float> bounds2;
  std::vector<float> levels2;  // [2^bits2] residual levels; empty for a nested codebook
  /// Nested only: all [2^(bits1 + bits2) - 1], ascending, from which to find the joint index at
  /// once.
  std::vector<float> bounds;

  std::vector<float> levels;                 // [2^(bits1 + bits2)] by stored code
  std::vector<std::int16_t> integer_levels;  // [2^(bits1 + bits2)] by stored code
  float step = 0;

  /// Mean square error of a coordinate against its density (the relative error of a vector), with
  /// levels as the table's definition gives them, before they are rounded to integers.
  double distortion = 0;

  unsigned bits() const { return bits1 + bits2; }
};

/// Ordered index of `bits` bits -> sign and magnitude: non-negative levels (upper half) keep their
/// distance from the middle, negative ones set the top bit and count away from the middle.
constexpr std::uint32_t StoredCode(std::uint32_t index, unsigned bits) {
  const std::uint32_t half = 1u << (bits - 1);
  return index >= half ? index - half : ~index & (2 * half - 1);
}

/// The codebook for a head_dim; computed once for each set of arguments and kept for the life of
/// the process (thread-safe). bits1 is 1 to 8, bits2 0 to 4, together at most 8; head_dim is 16 to
/// 1024. kFitted and kUpstream need bits2 of at least 1. Errors: kInvalidArgument outside of these.
std::shared_ptr<const Codebook> CodebookFor(CodebookKind kind, unsigned bits1, unsigned bits2,
                                            std::size_t head_dim);

}  // namespace kvant::scalar_lut
