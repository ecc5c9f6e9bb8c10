// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

#include "llm/utf8.h"

#include <gtest/gtest.h>

#include <string>

#include "llm/tokenizer.h"
#include "tests/support/seed.h"

namespace kvant {
namespace {

const std::string kBad = "\xef\xbf\xbd";  // U+FFFD

TEST(Utf8, EveryCodePointReadsBack) {
  for (std::uint32_t code_point = 0; code_point < 0x110000; ++code_point) {
    if (code_point >= 0xd800 && code_point < 0xe000) continue;
    std::string text;
    AppendUtf8(code_point, text);
    const Utf8Sequence sequence = ReadUtf8(text);
    ASSERT_TRUE(sequence.valid) << code_point;
    ASSERT_EQ(sequence.code_point, code_point);
    ASSERT_EQ(sequence.bytes, text.size());
    // Each proper prefix is unfinished, not wrong.
    for (std::size_t n = 1; n < text.size(); ++n) {
      const Utf8Sequence part = ReadUtf8(std::string_view(text).substr(0, n));
      ASSERT_TRUE(!part.valid && part.truncated && part.bytes == n) << code_point;
    }
  }
}

TEST(Utf8, InvalidPartsAreMaximal) {
  // The example of Unicode 15, table 3-8, and the kinds of wrong bytes one by one.
  EXPECT_EQ(ToValidUtf8("\x61\xf1\x80\x80\xe1\x80\xc2\x62\x80\x63\x80\xbf\x64"),
            "a" + kBad + kBad + kBad + "b" + kBad + "c" + kBad + kBad + "d");
  EXPECT_EQ(ToValidUtf8("\xc0\x80"), kBad + kBad);                        // overlong
  EXPECT_EQ(ToValidUtf8("\xe0\x9f\xbf"), kBad + kBad + kBad);             // overlong
  EXPECT_EQ(ToValidUtf8("\xed\xa0\x80"), kBad + kBad + kBad);             // surrogate
  EXPECT_EQ(ToValidUtf8("\xf4\x90\x80\x80"), kBad + kBad + kBad + kBad);  // above U+10FFFF
  EXPECT_EQ(ToValidUtf8("\xff"
                        "a\xfe"),
            kBad + "a" + kBad);
  EXPECT_EQ(ToValidUtf8("a\xf0\x9f\x98"), "a" + kBad);  // cut off at the end
  EXPECT_EQ(ToValidUtf8(""), "");
}

TEST(Utf8Stream, HoldsBackOnlyUnfinishedSequences) {
  Utf8Stream stream;
  EXPECT_EQ(stream.Push("a\xf0\x9f"), "a");
  EXPECT_EQ(stream.Push("\x98"), "");
  EXPECT_EQ(stream.Push("\x80"
                        "b\xc3"),
            "\xf0\x9f\x98\x80"
            "b");
  EXPECT_EQ(stream.Push("x"), kBad + "x");
  EXPECT_EQ(stream.Push("\xe2\x82"), "");
  EXPECT_EQ(stream.Flush(), kBad);
  EXPECT_EQ(stream.Flush(), "");
  EXPECT_EQ(stream.Push("c"), "c");
}

// However bytes are cut into pieces, the stream gives the text that the whole gives.
TEST(Utf8Stream, CutsDoNotMatter) {
  SplitMix64 rng = test::TestRng();
  SCOPED_TRACE(test::TestSeed());
  const std::string alphabet =
      "a\x80\xbf\xc2\xc3\xe0\xe1\xed\xa0\x9f\xef\xf0\x90\xf1\xf4\x8f\xf5\xff";
  for (int round = 0; round < 2000; ++round) {
    std::string bytes;
    const std::uint64_t n = rng.Below(24);
    for (std::uint64_t i = 0; i < n; ++i) bytes.push_back(alphabet[rng.Below(alphabet.size())]);
    Utf8Stream stream;
    std::string text;
    for (std::size_t at = 0; at < bytes.size();) {
      const std::size_t piece = rng.Below(4);
      text += stream.Push(std::string_view(bytes).substr(at, piece));
      at += piece;
    }
    text += stream.Flush();
    ASSERT_EQ(text, ToValidUtf8(bytes));
    ASSERT_EQ(ToValidUtf8(text), text);  // valid text passes unchanged
  }
}

}  // namespace
}  // namespace kvant
