// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// The checked walk over the bytes of a GGUF file. Internal to llm/gguf; it knows nothing of files
// or maps and allocates only in proportion to the bytes that are really there.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "llm/gguf.h"

namespace kvant::gguf {

/// Everything a GGUF file says; views and spans point into the parsed bytes.
struct Contents {
  std::uint32_t version = 0;
  std::vector<std::string_view> keys;  // file order
  std::vector<GgufValue> values;       // [keys.size()]
  std::unordered_map<std::string_view, std::size_t> key_index;
  std::vector<GgufTensor> tensors;  // file order
  std::unordered_map<std::string_view, std::size_t> tensor_index;
};

/// Parses and checks the whole file. `name` stands in front of every message. Throws Error:
/// kCorruptData, or kUnsupported for versions, weight types and constructs kvant does not read.
Contents Parse(std::span<const std::byte> bytes, const std::string& name);

/// "Q4_K (12)" for types that GGUF knows, "number 77" for others.
std::string WeightTypeLabel(std::uint32_t type);
/// nullptr where the type is not readable.
const WeightTypeInfo* FindWeightType(std::uint32_t type);
/// Text from a file in double quotes for a message: at most 64 bytes, unprintable ones as \xNN.
std::string Quoted(std::string_view text);

}  // namespace kvant::gguf
