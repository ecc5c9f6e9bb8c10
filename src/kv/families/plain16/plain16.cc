// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

#include "kv/families/plain16/plain16.h"

namespace kvant::plain16 {

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

std::shared_ptr<const CodecConfig> ParseConfig(std::span<const OptionText>) {
  return std::make_shared<Config>();
}

}  // namespace kvant::plain16
