// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// Frame of the codecs that keep rows as plain 16-bit numbers (fp16, bf16).
//
// Bytes of one side of a block, d = head_dim (a multiple of 16), 64 tokens, 2 bytes a number:
//
//   keys    the token index is fastest: [dim 0..d-1][token 0..63]
//           so that one load is 16 tokens of one dimension and a score needs no horizontal sum
//   values  token-major rows [token 0..63][dim 0..d-1]
//
// The canonical order (files, tests) is token-major for both; the key side is the bijection
//   canonical (token t, dim c)  <->  c * 64 + t.
// Rounding: to nearest, ties to even. A value that does not stay finite is refused by encode.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "kv/method.h"

namespace kvant::plain16 {

/// Offset, in numbers, of a key element inside its side.
constexpr std::size_t KeyOffset(std::size_t token, std::size_t dim) { return dim * kBlockTokens + token; }

BlockGeometry Geometry(Side side, std::size_t head_dim, const CodecConfig& config);
std::string RefuseHeadDim(std::size_t head_dim);
void ToCanonical(Side side, const CodecConfig& config, std::size_t head_dim, const std::byte* block,
                 std::byte* canonical);
void FromCanonical(Side side, const CodecConfig& config, std::size_t head_dim,
                   const std::byte* canonical, std::byte* block);

struct Config : CodecConfig {};

/// There are no options; the grammar has refused any before this is called.
std::shared_ptr<const CodecConfig> ParseConfig(std::span<const OptionText> options);

}  // namespace kvant::plain16
