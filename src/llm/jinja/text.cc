// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

#include "llm/jinja/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdlib>

#include "llm/utf8.h"

namespace kvant::jinja {
namespace {

// The last character of a non-empty text. A sequence has at most four bytes; where none of the four
// starts is a valid one that ends here, the last byte stands alone.
std::string_view LastCharacter(std::string_view text) {
  for (std::size_t n = 1; n <= 4 && n <= text.size(); ++n) {
    const Utf8Sequence sequence = ReadUtf8(text.substr(text.size() - n));
    if (sequence.valid && sequence.bytes == n) return text.substr(text.size() - n);
  }
  return text.substr(text.size() - 1);
}

std::string_view FirstCharacter(std::string_view text) {
  return text.substr(0, ReadUtf8(text).bytes);
}

bool IsSpaceCharacter(std::string_view character) {
  const Utf8Sequence sequence = ReadUtf8(character);
  return sequence.valid && IsSpace(sequence.code_point);
}

bool Holds(std::string_view set, std::string_view character) {
  while (!set.empty()) {
    const std::string_view first = FirstCharacter(set);
    if (first == character) return true;
    set.remove_prefix(first.size());
  }
  return false;
}

template <typename Predicate>
std::string_view TrimLeft(std::string_view text, const Predicate& drop) {
  while (!text.empty() && drop(FirstCharacter(text))) {
    text.remove_prefix(FirstCharacter(text).size());
  }
  return text;
}

template <typename Predicate>
std::string_view TrimRight(std::string_view text, const Predicate& drop) {
  while (!text.empty() && drop(LastCharacter(text))) text.remove_suffix(LastCharacter(text).size());
  return text;
}

}  // namespace

bool IsSpace(std::uint32_t c) {
  if ((c >= 0x09 && c <= 0x0d) || (c >= 0x1c && c <= 0x20) || c == 0x85 || c == 0xa0) return true;
  return c == 0x1680 || (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f ||
         c == 0x205f || c == 0x3000;
}

std::string_view StripLeft(std::string_view text) { return TrimLeft(text, IsSpaceCharacter); }
std::string_view StripRight(std::string_view text) { return TrimRight(text, IsSpaceCharacter); }

std::string_view StripLeft(std::string_view text, std::string_view set) {
  return TrimLeft(text, [set](std::string_view character) { return Holds(set, character); });
}

std::string_view StripRight(std::string_view text, std::string_view set) {
  return TrimRight(text, [set](std::string_view character) { return Holds(set, character); });
}

std::vector<std::size_t> CharacterOffsets(std::string_view text) {
  std::vector<std::size_t> offsets = {0};
  for (std::size_t at = 0; at < text.size();) {
    at += ReadUtf8(text.substr(at)).bytes;
    offsets.push_back(at);
  }
  return offsets;
}

std::size_t CountCharacters(std::string_view text) {
  std::size_t count = 0;
  for (; !text.empty(); ++count) text.remove_prefix(ReadUtf8(text).bytes);
  return count;
}

bool IsAscii(std::string_view text) {
  return std::all_of(text.begin(), text.end(),
                     [](char c) { return static_cast<unsigned char>(c) < 0x80; });
}

std::string FloatText(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  std::array<char, 40> buffer;
  const auto end = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value,
                                 std::chars_format::scientific);
  const std::string text(buffer.data(), end.ptr);  // "-d.ddde+XX"
  const std::size_t exponent_at = text.find('e');
  const int exponent = std::atoi(text.c_str() + exponent_at + 1);
  if (exponent < -4 || exponent >= 16) return text;
  // Python writes these without an exponent and always with a fraction.
  const std::size_t digits = exponent_at - (text[0] == '-' ? 1u : 0u);
  const int mantissa_decimals = digits > 1 ? static_cast<int>(digits) - 2 : 0;
  return fmt::format("{:.{}f}", value, std::max(1, mantissa_decimals - exponent));
}

std::string JsonString(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    switch (c) {
      case '"':
        out += "\\\"";
        break;
      case '\\':
        out += "\\\\";
        break;
      case '\n':
        out += "\\n";
        break;
      case '\r':
        out += "\\r";
        break;
      case '\t':
        out += "\\t";
        break;
      case '\b':
        out += "\\b";
        break;
      case '\f':
        out += "\\f";
        break;
      default:
        if (static_cast<unsigned char>(c) < 0x20) {
          out += fmt::format("\\u{:04x}", static_cast<unsigned char>(c));
        } else {
          out.push_back(c);
        }
    }
  }
  return out + '"';
}

}  // namespace kvant::jinja
