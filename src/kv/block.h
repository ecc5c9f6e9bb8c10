// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// The one contract between codecs (how a row becomes bytes) and layouts (where the bytes live).
// Codecs and layouts never see each other; both see this.
//
// A block holds 64 consecutive tokens of one (layer, KV head): a key side, then a value side. Each side
// is an opaque run of bytes to everyone but its codec, which names the segments in it for people.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace kvant {

/// Tokens of a block. Also the width of a prefill query tile, so that the reading rule
/// (cache.h) is the same for all queries of a tile.
inline constexpr std::size_t kBlockTokens = 64;

enum class Side : std::uint8_t { kKey, kValue };

/// A named run of bytes inside one side of a block.
struct Segment {
  std::string_view name;  // "codes", "scalars", "rows"
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
};

/// The exact size of one side of a block; predicted bytes are computed from it and nothing else.
struct BlockGeometry {
  std::uint64_t bytes = 0;            // a multiple of 64
  std::uint64_t bytes_per_token = 0;  // what the format needs for one token, rounded up
  std::array<Segment, 2> segments;
  std::size_t n_segments = 0;
};

/// Both sides of a block in memory, key side first.
struct BlockView {
  const std::byte* key = nullptr;
  const std::byte* value = nullptr;
};

/// Blocks needed for n tokens.
constexpr std::size_t BlocksFor(std::size_t n_tokens) {
  return (n_tokens + kBlockTokens - 1) / kBlockTokens;
}

}  // namespace kvant
