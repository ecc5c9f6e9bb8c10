// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// The random rotation that codecs apply to rows before they code them: random signs, then an orthogonal
// transform that mixes all channels. It makes the coordinates of any vector look like those of a random
// direction, so one scalar table fits them all (TurboQuant, arXiv 2504.19874; QuaRot, arXiv 2404.00456).
//
// For head_dim = chunk * n_chunk with chunk the largest power of two and n_chunk odd:
//   y = (DCT-II of n_chunk points across chunks) (Walsh-Hadamard of chunk points inside each) (signs * x),
// orthonormal, without padding. Channel i * chunk + j is point j of chunk i.
//
// The signs are fixed by (seed, layer, side): SplitMix64 seeded with seed + 2 * layer + (side is value), whose
// outputs are read least significant bit first, 64 channels each; a set bit is a minus. Stored states
// name the seed, so this rule is part of their format.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kv/block.h"

namespace kvant {

struct Rotation {
  std::size_t head_dim = 0;
  std::size_t chunk = 0;
  std::size_t n_chunk = 0;
  std::vector<float> signs;  // [head_dim] +-1 / sqrt(chunk): the Hadamard's scale is folded in
  std::vector<float> dct;    // [n_chunk, n_chunk] orthogonal, row = output; empty for one chunk
};

/// head_dim must be a multiple of 16.
Rotation MakeRotation(std::size_t head_dim, std::uint64_t seed, std::size_t layer, Side side);

}  // namespace kvant
