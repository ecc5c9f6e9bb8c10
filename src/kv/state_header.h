// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// The header of a saved state: lines of text that say what the rest is. Internal to state.cc.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "kv/state.h"

namespace kvant {

inline constexpr std::string_view kStateMagic = "KVSTATE\n";
/// magic, version, length of the header text
inline constexpr std::size_t kStatePreludeBytes = 16;
inline constexpr std::size_t kStateChecksumBytes = 8;
/// Longer headers are refused before they are read.
inline constexpr std::size_t kMaxStateHeaderBytes = std::size_t{1} << 20;

/// Every field, as text where it is only compared.
struct StateHeader {
  StateModel model;
  std::uint64_t n_layer = 0, n_kv_head = 0, heads_per_kv = 0, head_dim = 0, block_tokens = 0;
  std::string rope;      // "none", or "adjacent|split" and the frequencies
  std::string method;    // canonical text: what --kv takes
  std::string options;   // the same with every preset and default written out: what is compared
  std::string rotation;  // the rule by which seeds give signs
  std::uint64_t n_tokens = 0, n_cached = 0;
  std::uint64_t payload_bytes = 0, resident_bytes = 0;
  std::uint64_t body_bytes = 0;  // between the header's checksum and the last one
};

/// What a state of this cache says of itself.
StateHeader MakeStateHeader(const Method& method, const StateModel& model, std::size_t n_tokens,
                            std::size_t n_cached);
std::string FormatStateHeader(const StateHeader& header);
/// Throws Error(kCorruptData) that names `name` and the line.
StateHeader ParseStateHeader(std::string_view text, const std::string& name);
/// Throws Error for the first field that differs from what is here: its name, what the file has, what is
/// here, what to do.
void CheckStateHeader(const StateHeader& header, const Method& method, const RestoreArgs& args);

/// Bytes of the body: tokens and rows.
std::uint64_t StateBodyBytes(const Method& method, std::size_t n_tokens, std::size_t n_cached);

}  // namespace kvant
