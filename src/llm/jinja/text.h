// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// Text as templates see it: bytes that are read as UTF-8 code points, where an invalid part counts
// as one character and is passed through unchanged. White space and numbers follow Python, whose
// str methods the templates were written against.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace kvant::jinja {

/// The code points for which Python's str.isspace() holds.
bool IsSpace(std::uint32_t code_point);
std::string_view StripLeft(std::string_view text);
std::string_view StripRight(std::string_view text);
/// The same for the characters of `set` instead of white space.
std::string_view StripLeft(std::string_view text, std::string_view set);
std::string_view StripRight(std::string_view text, std::string_view set);

/// Byte offsets of the characters, and of the end: [n + 1].
std::vector<std::size_t> CharacterOffsets(std::string_view text);
std::size_t CountCharacters(std::string_view text);
bool IsAscii(std::string_view text);

/// repr(float): the shortest digits that read back equal, "1.0", "1e-05", "1e+16", "inf", "nan".
std::string FloatText(double value);
/// A JSON string in quotes; characters outside ASCII stay as they are.
std::string JsonString(std::string_view text);

}  // namespace kvant::jinja
