// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

#include "llm/pre_tokenizer.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/error.h"
#include "llm/utf8.h"
#include "tests/support/seed.h"

namespace kvant {
namespace {

using Words = std::vector<std::string>;

Words Split(const PreTokenizer& pre_tokenizer, std::string_view text) {
  const auto views = pre_tokenizer.Split(text);
  return Words(views.begin(), views.end());
}

Words Split(std::string_view name, std::string_view text) {
  return Split(PreTokenizer::FromName(name), text);
}

// Plain splitters, character by character, that share nothing with the patterns. They know the
// classes of the characters below alone.
enum class Class { kLetter, kNumber, kSpace, kOther };
struct Character {
  const char* text;
  Class type;
};
const std::vector<Character> kCharacters = {
    {"a", Class::kLetter},
    {"s", Class::kLetter},
    {"T", Class::kLetter},
    {"v", Class::kLetter},
    {"e", Class::kLetter},
    {"l", Class::kLetter},
    {"\xc3\xa9", Class::kLetter},      // U+00E9
    {"\xe6\x97\xa5", Class::kLetter},  // U+65E5
    {"1", Class::kNumber},
    {"2", Class::kNumber},
    {"\xc2\xbd", Class::kNumber},  // U+00BD
    {" ", Class::kSpace},
    {" ", Class::kSpace},
    {"\n", Class::kSpace},
    {"\r", Class::kSpace},
    {"\t", Class::kSpace},
    {"\xc2\x85", Class::kSpace},      // U+0085
    {"\xc2\xa0", Class::kSpace},      // U+00A0
    {"\xe3\x80\x80", Class::kSpace},  // U+3000
    {"'", Class::kOther},
    {"'", Class::kOther},
    {".", Class::kOther},
    {"\xcc\x81", Class::kOther},          // U+0301, a combining mark
    {"\xe1\xa0\x8e", Class::kOther},      // U+180E, no white space since Unicode 6.3
    {"\xf0\x9f\x98\x80", Class::kOther},  // U+1F600
    {"\xff", Class::kOther},              // no UTF-8: like a symbol
};

class PlainSplitter {
 public:
  explicit PlainSplitter(std::vector<Character> text) : text_(std::move(text)) {}

  Words Gpt2() {
    while (at_ < text_.size()) {
      if (const std::size_t n = Contraction(/*any_case=*/false)) {
        Take(n);
      } else if (const std::size_t spaced =
                     SpacedRun({Class::kLetter, Class::kNumber, Class::kOther})) {
        Take(spaced);
      } else {
        TakeSpaces();
      }
    }
    return words_;
  }

  Words Llama3(std::size_t max_digits) {
    while (at_ < text_.size()) {
      if (const std::size_t n = Contraction(/*any_case=*/true)) {
        Take(n);
      } else if (Is(at_, Class::kLetter)) {
        Take(Run(at_, Class::kLetter));
      } else if (!IsBreak(at_) && !Is(at_, Class::kNumber) && Is(at_ + 1, Class::kLetter)) {
        Take(1 + Run(at_ + 1, Class::kLetter));
      } else if (Is(at_, Class::kNumber)) {
        Take(std::min(max_digits, Run(at_, Class::kNumber)));
      } else if (const std::size_t other = SpacedRun({Class::kOther})) {
        std::size_t n = other;
        while (IsBreak(at_ + n)) ++n;
        Take(n);
      } else {
        std::size_t after_break = 0;
        for (std::size_t i = 0; i < Run(at_, Class::kSpace); ++i) {
          if (IsBreak(at_ + i)) after_break = i + 1;
        }
        after_break > 0 ? Take(after_break) : TakeSpaces();
      }
    }
    return words_;
  }

 private:
  bool Is(std::size_t i, Class type) const { return i < text_.size() && text_[i].type == type; }
  bool IsText(std::size_t i, std::string_view text) const {
    return i < text_.size() && text_[i].text == text;
  }
  bool IsBreak(std::size_t i) const { return IsText(i, "\n") || IsText(i, "\r"); }
  std::size_t Run(std::size_t i, Class type) const {
    std::size_t n = 0;
    while (Is(i + n, type)) ++n;
    return n;
  }
  std::size_t SpacedRun(std::initializer_list<Class> types) const {
    const std::size_t space = IsText(at_, " ") ? 1 : 0;
    for (const Class type : types) {
      if (const std::size_t n = Run(at_ + space, type)) return space + n;
    }
    return 0;
  }
  std::size_t Contraction(bool any_case) const {
    if (!IsText(at_, "'")) return 0;
    for (const std::string ending : {"s", "t", "re", "ve", "m", "ll", "d"}) {
      bool matches = true;
      for (std::size_t i = 0; i < ending.size(); ++i) {
        const std::string lower(1, ending[i]);
        const std::string upper(1, static_cast<char>(ending[i] - 'a' + 'A'));
        matches =
            matches && (IsText(at_ + 1 + i, lower) || (any_case && IsText(at_ + 1 + i, upper)));
      }
      if (matches) return 1 + ending.size();
    }
    return 0;
  }
  void TakeSpaces() {
    const std::size_t n = Run(at_, Class::kSpace);
    Take(at_ + n == text_.size() || n == 1 ? n : n - 1);
  }
  void Take(std::size_t n) {
    words_.emplace_back();
    for (std::size_t i = 0; i < n; ++i) words_.back() += text_[at_ + i].text;
    at_ += n;
  }

  std::vector<Character> text_;
  std::size_t at_ = 0;
  Words words_;
};

Words PlainSmolLm(const std::vector<Character>& text) {
  Words words;
  std::vector<Character> piece;
  const auto flush = [&] {
    for (const std::string& word : PlainSplitter(piece).Gpt2()) words.push_back(word);
    piece.clear();
  };
  for (const Character& character : text) {
    if (character.type == Class::kNumber) {
      flush();
      words.push_back(character.text);
    } else {
      piece.push_back(character);
    }
  }
  flush();
  return words;
}

TEST(PreTokenizer, EqualsPlainSplitters) {
  SplitMix64 rng = test::TestRng();
  SCOPED_TRACE(test::TestSeed());
  const PreTokenizer gpt2 = PreTokenizer::FromName("gpt2");
  const PreTokenizer llama3 = PreTokenizer::FromName("llama-bpe");
  const PreTokenizer qwen2 = PreTokenizer::FromName("qwen2");
  const PreTokenizer smollm = PreTokenizer::FromName("smollm");
  for (int round = 0; round < 20'000; ++round) {
    std::vector<Character> characters;
    std::string text;
    const std::uint64_t n = rng.Below(14);
    for (std::uint64_t i = 0; i < n; ++i) {
      characters.push_back(kCharacters[rng.Below(kCharacters.size())]);
      text += characters.back().text;
    }
    ASSERT_EQ(Split(gpt2, text), PlainSplitter(characters).Gpt2()) << testing::PrintToString(text);
    ASSERT_EQ(Split(llama3, text), PlainSplitter(characters).Llama3(/*max_digits=*/3))
        << testing::PrintToString(text);
    ASSERT_EQ(Split(qwen2, text), PlainSplitter(characters).Llama3(/*max_digits=*/1))
        << testing::PrintToString(text);
    ASSERT_EQ(Split(smollm, text), PlainSmolLm(characters)) << testing::PrintToString(text);
  }
}

TEST(PreTokenizer, Examples) {
  EXPECT_EQ(Split("gpt2", "I'll pay 1234.5  now "),
            (Words{"I", "'ll", " pay", " 1234", ".", "5", " ", " now", " "}));
  EXPECT_EQ(Split("smollm", "a 12"), (Words{"a", " ", "1", "2"}));
  EXPECT_EQ(Split("llama-bpe", "I'LL pay 1234!\n\n x"),
            (Words{"I", "'LL", " pay", " ", "123", "4", "!\n\n", " x"}));
  EXPECT_EQ(Split("qwen2", "I'LL pay 1234!\n\n x"),
            (Words{"I", "'LL", " pay", " ", "1", "2", "3", "4", "!\n\n", " x"}));
  EXPECT_EQ(Split("gpt2", ""), Words{});
}

// The views tile the text for any bytes: nothing is lost, doubled or out of order.
TEST(PreTokenizer, CoversEveryByte) {
  SplitMix64 rng = test::TestRng();
  for (const char* name : {"smollm", "gpt2", "llama-bpe", "qwen2"}) {
    const PreTokenizer pre_tokenizer = PreTokenizer::FromName(name);
    for (int round = 0; round < 500; ++round) {
      std::string text(rng.Below(60), '\0');
      for (char& c : text) c = static_cast<char>(rng.Below(256));
      const char* at = text.data();
      for (const std::string_view word : pre_tokenizer.Split(text)) {
        ASSERT_EQ(word.data(), at);
        ASSERT_FALSE(word.empty());
        at += word.size();
      }
      ASSERT_EQ(at, text.data() + text.size());
    }
  }
}

TEST(PreTokenizer, LongRunsOfOneKind) {
  for (const char* name : {"smollm", "gpt2", "llama-bpe", "qwen2"}) {
    for (const char* unit : {"a", " ", "\n", "1", ".", "\xff", "\xe6\x97\xa5", " \n", "'s"}) {
      std::string text;
      while (text.size() < 500'000) text += unit;
      text += "x";
      std::size_t bytes = 0;
      for (const std::string& word : Split(name, text)) bytes += word.size();
      EXPECT_EQ(bytes, text.size()) << name;
    }
  }
}

TEST(PreTokenizer, AliasesAndUnknownNames) {
  const std::string text = "It's 2024!\n";
  EXPECT_EQ(Split("gpt-2", text), Split("gpt2", text));
  for (const char* name : {"llama3", "llama-v3", "falcon3"}) {
    EXPECT_EQ(Split(name, text), Split("llama-bpe", text));
    EXPECT_TRUE(PreTokenizer::FromName(name).whole_words_first());
  }
  for (const char* name : {"starcoder", "refact"})
    EXPECT_EQ(Split(name, text), Split("smollm", text));
  EXPECT_EQ(Split("deepseek-r1-qwen", text), Split("qwen2", text));
  for (const char* name : {"smollm", "qwen2"}) {
    EXPECT_FALSE(PreTokenizer::FromName(name).whole_words_first());
  }
  try {
    PreTokenizer::FromName("tek\nken");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUnsupported);
    EXPECT_NE(std::string(error.what()).find("\"tek\\x0aken\" (tokenizer.ggml.pre) is not known"),
              std::string::npos)
        << error.what();
    EXPECT_NE(std::string(error.what()).find("llama-bpe"), std::string::npos);
  }
}

}  // namespace
}  // namespace kvant
