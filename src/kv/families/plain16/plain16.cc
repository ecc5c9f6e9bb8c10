// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

#include "kv/families/plain16/plain16.h"

#include <cstring>

namespace kvant::plain16 {
namespace {

// Key numbers between kernel order and token-major order; values are token-major already.
void Reorder(Side side, std::size_t head_dim, bool to_canonical, const std::byte* from, std::byte* to) {
  constexpr std::size_t kBytes = sizeof(std::uint16_t);
  if (side == Side::kValue) {
    std::memcpy(to, from, kBlockTokens * head_dim * kBytes);
    return;
  }
  for (std::size_t token = 0; token < kBlockTokens; ++token) {
    for (std::size_t dim = 0; dim < head_dim; ++dim) {
      const std::size_t kernel = KeyOffset(token, dim);
      const std::size_t canonical = token * head_dim + dim;
      std::memcpy(to + kBytes * (to_canonical ? canonical : kernel),
                  from + kBytes * (to_canonical ? kernel : canonical), kBytes);
    }
  }
}

}  // namespace

BlockGeometry Geometry(Side side, std::size_t head_dim, const CodecConfig&) {
  static_cast<void>(side);  // keys and values differ in order, not in size
  const std::uint64_t bytes_per_token = head_dim * sizeof(std::uint16_t);
  const std::uint64_t bytes = bytes_per_token * kBlockTokens;
  return {.bytes = bytes,
          .bytes_per_token = bytes_per_token,
          .segments = {{{.name = "rows", .offset = 0, .bytes = bytes}, {}}},
          .n_segments = 1};
}

std::string RefuseHeadDim(std::size_t head_dim) {
  if (head_dim == 0 || head_dim % 16 != 0 || head_dim > 1024) {
    return "head_dim must be a multiple of 16, from 16 to 1024";
  }
  return "";
}

void ToCanonical(Side side, const CodecConfig&, std::size_t head_dim, const std::byte* block,
                 std::byte* canonical) {
  Reorder(side, head_dim, true, block, canonical);
}

void FromCanonical(Side side, const CodecConfig&, std::size_t head_dim, const std::byte* canonical,
                   std::byte* block) {
  Reorder(side, head_dim, false, canonical, block);
}

std::shared_ptr<const CodecConfig> ParseConfig(std::span<const OptionText>) {
  return std::make_shared<Config>();
}

}  // namespace kvant::plain16
