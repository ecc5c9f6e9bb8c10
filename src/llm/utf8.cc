// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

#include "llm/utf8.h"

#include "llm/tokenizer.h"

namespace kvant {
namespace {

constexpr std::string_view kReplacement = "\xef\xbf\xbd";  // U+FFFD

unsigned char Byte(std::string_view text, std::size_t i) { return static_cast<unsigned char>(text[i]); }

// Allowed range of the second byte after a given first one (Unicode 15, table 3-7).
struct Range {
  unsigned char low = 0x80, high = 0xbf;
};

Range SecondByte(unsigned char first) {
  switch (first) {
    case 0xe0: return {0xa0, 0xbf};
    case 0xed: return {0x80, 0x9f};
    case 0xf0: return {0x90, 0xbf};
    case 0xf4: return {0x80, 0x8f};
    default: return {};
  }
}

}  // namespace

Utf8Sequence ReadUtf8(std::string_view text) {
  const unsigned char first = Byte(text, 0);
  if (first < 0x80) return {.bytes = 1, .code_point = first, .valid = true};
  Utf8Sequence invalid = {.bytes = 1, .code_point = 0xfffd};
  if (first < 0xc2 || first > 0xf4) return invalid;
  const std::size_t length = first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
  std::uint32_t code_point = first & (0xffu >> (length + 1));
  for (std::size_t i = 1; i < length; ++i) {
    if (i == text.size()) {
      invalid.bytes = i;
      invalid.truncated = true;
      return invalid;
    }
    const Range range = i == 1 ? SecondByte(first) : Range{};
    if (Byte(text, i) < range.low || Byte(text, i) > range.high) {
      invalid.bytes = i;
      return invalid;
    }
    code_point = (code_point << 6) | (Byte(text, i) & 0x3fu);
  }
  return {.bytes = length, .code_point = code_point, .valid = true};
}

void AppendUtf8(std::uint32_t code_point, std::string& out) {
  const auto push = [&out](std::uint32_t byte) { out.push_back(static_cast<char>(byte)); };
  if (code_point < 0x80) {
    push(code_point);
  } else if (code_point < 0x800) {
    push(0xc0 | (code_point >> 6));
    push(0x80 | (code_point & 0x3f));
  } else if (code_point < 0x10000) {
    push(0xe0 | (code_point >> 12));
    push(0x80 | ((code_point >> 6) & 0x3f));
    push(0x80 | (code_point & 0x3f));
  } else {
    push(0xf0 | (code_point >> 18));
    push(0x80 | ((code_point >> 12) & 0x3f));
    push(0x80 | ((code_point >> 6) & 0x3f));
    push(0x80 | (code_point & 0x3f));
  }
}

std::string Utf8Stream::Push(std::string_view bytes) {
  pending_ += bytes;
  std::string ready;
  std::string_view rest = pending_;
  while (!rest.empty()) {
    const Utf8Sequence sequence = ReadUtf8(rest);
    if (sequence.truncated) break;
    ready += sequence.valid ? rest.substr(0, sequence.bytes) : kReplacement;
    rest.remove_prefix(sequence.bytes);
  }
  pending_.erase(0, pending_.size() - rest.size());
  return ready;
}

std::string Utf8Stream::Flush() {
  const bool unfinished = !pending_.empty();
  pending_.clear();
  return unfinished ? std::string(kReplacement) : "";
}

std::string ToValidUtf8(std::string_view bytes) {
  Utf8Stream stream;
  std::string text = stream.Push(bytes);
  return text + stream.Flush();
}

}  // namespace kvant
