// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// UTF-8 without assumptions: finds the next sequence, valid or not, and writes code points.
// (Utf8Stream and ToValidUtf8, for output, are declared in tokenizer.h.)
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace kvant {

/// The sequence at the start of a non-empty text.
struct Utf8Sequence {
  std::size_t bytes = 1;         // of the sequence, or of the maximal invalid part (1 to 3)
  std::uint32_t code_point = 0;  // 0xfffd where invalid
  bool valid = false;
  bool truncated = false;  // invalid only because the text ends inside it
};

/// Reads by Unicode 15, table 3-7 (no surrogates, no overlong forms); an invalid part is maximal in the
/// sense of section 3.9, so it becomes one U+FFFD.
Utf8Sequence ReadUtf8(std::string_view text);

void AppendUtf8(std::uint32_t code_point, std::string& out);

}  // namespace kvant
