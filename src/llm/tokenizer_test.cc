// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

#include "llm/tokenizer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <thread>

#include "base/error.h"
#include "llm/gguf.h"
#include "tests/support/gguf_writer.h"
#include "tests/support/seed.h"

namespace kvant {
namespace {

using Ids = std::vector<TokenId>;

std::string CodePoint(unsigned c) {
  if (c < 0x80) return std::string(1, static_cast<char>(c));
  return {static_cast<char>(0xc0 | c >> 6), static_cast<char>(0x80 | (c & 63))};
}

// A byte in GPT-2's alphabet: visible Latin-1 for itself, the others numbered from U+0100.
std::string Letter(unsigned char byte) {
  const auto visible = [](unsigned b) {
    return (b >= 0x21 && b <= 0x7e) || (b >= 0xa1 && b <= 0xac) || (b >= 0xae && b <= 0xff);
  };
  if (visible(byte)) return CodePoint(byte);
  unsigned hidden = 0;
  for (unsigned b = 0; b < byte; ++b) hidden += visible(b) ? 0 : 1;
  return CodePoint(0x100 + hidden);
}

std::string Letters(std::string_view bytes) {
  std::string text;
  for (const char c : bytes) text += Letter(static_cast<unsigned char>(c));
  return text;
}

// A vocabulary: token b is byte b, then one token for each merge, then the special ones.
struct Vocabulary {
  std::vector<std::string> tokens;
  std::vector<std::int32_t> types;
  std::vector<std::string> merges;
  std::string model = "gpt2";
  std::string pre = "gpt2";
  std::vector<std::pair<std::string, std::uint32_t>> ids;  // more metadata: key, token id

  Vocabulary() {
    for (int byte = 0; byte < 256; ++byte) Add(Letter(static_cast<unsigned char>(byte)), 1);
  }
  TokenId Add(const std::string& text, std::int32_t type) {
    tokens.push_back(text);
    types.push_back(type);
    return static_cast<TokenId>(tokens.size() - 1);
  }
  /// Adds the merge of two byte strings and, where it is new, its token.
  TokenId Merge(std::string_view left, std::string_view right) {
    merges.push_back(Letters(left) + " " + Letters(right));
    const std::string merged = Letters(left) + Letters(right);
    const auto found = std::find(tokens.begin(), tokens.end(), merged);
    if (found != tokens.end()) return static_cast<TokenId>(found - tokens.begin());
    return Add(merged, 1);
  }
  std::vector<std::byte> Build() const {
    test::GgufWriter writer;
    writer.AddString("tokenizer.ggml.model", model);
    writer.AddString("tokenizer.ggml.pre", pre);
    writer.AddStringArray("tokenizer.ggml.tokens", tokens);
    writer.AddArray("tokenizer.ggml.token_type", types);
    writer.AddStringArray("tokenizer.ggml.merges", merges);
    for (const auto& [key, id] : ids) writer.Add<std::uint32_t>("tokenizer.ggml." + key, id);
    return writer.Build();
  }
  Tokenizer Load() const {
    const std::vector<std::byte> bytes = Build();
    return Tokenizer::FromGguf(GgufFile::FromBytes(bytes, "made.gguf"));
  }
};

void ExpectRefused(const std::vector<std::byte>& bytes, ErrorCode code, std::string_view part) {
  try {
    Tokenizer::FromGguf(GgufFile::FromBytes(bytes, "made.gguf"));
    ADD_FAILURE() << "accepted; expected: " << part;
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
  }
}

TEST(Tokenizer, MergesByRankThenFromTheLeft) {
  Vocabulary vocabulary;
  const TokenId bc = vocabulary.Merge("b", "c");
  const TokenId ab = vocabulary.Merge("a", "b");
  const TokenId aa = vocabulary.Merge("a", "a");
  const TokenId abc = vocabulary.Merge("a", "bc");
  const Tokenizer tokenizer = vocabulary.Load();
  EXPECT_EQ(tokenizer.Encode("ab", false), Ids{ab});
  EXPECT_EQ(tokenizer.Encode("abc", false), Ids{abc});  // "bc" first
  EXPECT_EQ(tokenizer.Encode("aaa", false), (Ids{aa, 'a'}));
  EXPECT_EQ(tokenizer.Encode("aab", false), (Ids{'a', ab}));
  EXPECT_EQ(tokenizer.Encode("bcbc", false), (Ids{bc, bc}));
  EXPECT_EQ(tokenizer.Encode("a b", false), (Ids{'a', ' ', 'b'}));  // merges stop at words
  EXPECT_EQ(tokenizer.Encode("", false), Ids{});
}

// Byte-pair encoding as the paper tells it: again and again, the best pair of the whole word.
Ids PlainEncode(const Vocabulary& vocabulary, std::string_view word) {
  std::vector<std::string> pieces;
  for (const char c : word) pieces.push_back(Letters(std::string(1, c)));
  for (;;) {
    std::size_t best_rank = vocabulary.merges.size();
    std::size_t best_at = 0;
    for (std::size_t i = 0; i + 1 < pieces.size(); ++i) {
      const auto found = std::find(vocabulary.merges.begin(), vocabulary.merges.end(),
                                   pieces[i] + " " + pieces[i + 1]);
      const auto rank = static_cast<std::size_t>(found - vocabulary.merges.begin());
      if (rank < best_rank) {
        best_rank = rank;
        best_at = i;
      }
    }
    if (best_rank == vocabulary.merges.size()) break;
    pieces[best_at] += pieces[best_at + 1];
    pieces.erase(pieces.begin() + static_cast<std::ptrdiff_t>(best_at) + 1);
  }
  Ids ids;
  for (const std::string& piece : pieces) {
    const auto found = std::find(vocabulary.tokens.begin(), vocabulary.tokens.end(), piece);
    ids.push_back(static_cast<TokenId>(found - vocabulary.tokens.begin()));
  }
  return ids;
}

TEST(Tokenizer, EqualsPlainMergingForRandomMerges) {
  SplitMix64 rng = test::TestRng();
  SCOPED_TRACE(test::TestSeed());
  for (int round = 0; round < 30; ++round) {
    Vocabulary vocabulary;
    std::vector<std::string> parts = {"a", "b", "c"};
    for (int merge = 0; merge < 40; ++merge) {
      const std::string left = parts[rng.Below(parts.size())];
      const std::string right = parts[rng.Below(parts.size())];
      if (left.size() + right.size() > 12) continue;
      vocabulary.Merge(left, right);
      parts.push_back(left + right);
    }
    const Tokenizer tokenizer = vocabulary.Load();
    for (int text = 0; text < 50; ++text) {
      std::string word;
      for (std::uint64_t n = rng.Below(70); n > 0; --n) word += "abc"[rng.Below(3)];
      ASSERT_EQ(tokenizer.Encode(word, false), PlainEncode(vocabulary, word)) << word;
    }
  }
}

TEST(Tokenizer, RandomBytesComeBack) {
  SplitMix64 rng = test::TestRng();
  for (const char* pre : {"smollm", "gpt2", "llama-bpe", "qwen2"}) {
    Vocabulary vocabulary;
    vocabulary.pre = pre;
    vocabulary.Merge("\xff", std::string_view("\0", 1));
    vocabulary.Merge(" ", " ");
    vocabulary.Merge("\xc3", "\xa9");
    const Tokenizer tokenizer = vocabulary.Load();
    for (int round = 0; round < 300; ++round) {
      std::string text(rng.Below(200), '\0');
      for (char& c : text) c = static_cast<char>(rng.Below(256));
      ASSERT_EQ(tokenizer.Decode(tokenizer.Encode(text, round % 2 == 0)), text);
      ASSERT_EQ(tokenizer.CountInexpressible(text), 0u);
    }
  }
}

TEST(Tokenizer, SpecialTokens) {
  Vocabulary vocabulary;
  const TokenId control = vocabulary.Add("<|a|>", 3);
  const TokenId longer = vocabulary.Add("<|a|><|b|>", 3);
  const TokenId user = vocabulary.Add("<user>", 4);
  const TokenId b = vocabulary.Add("<|b|>", 3);
  const Tokenizer tokenizer = vocabulary.Load();
  EXPECT_EQ(tokenizer.Encode("x<|a|>y", true), (Ids{'x', control, 'y'}));
  EXPECT_EQ(tokenizer.Encode("<|a|><|a|>", true), (Ids{control, control}));
  EXPECT_EQ(tokenizer.Encode("<|a|><|b|><|b|>", true), (Ids{longer, b}));
  EXPECT_EQ(tokenizer.Encode("<|a|>", false), (Ids{'<', '|', 'a', '|', '>'}));
  EXPECT_EQ(tokenizer.Encode("<user>1<|b|>", false), (Ids{user, '1', '<', '|', 'b', '|', '>'}));
  EXPECT_EQ(tokenizer.Encode("<|<user>a|>", true), (Ids{'<', '|', user, 'a', '|', '>'}));
  // From the left, even where a longer one begins inside.
  vocabulary.Add("y<", 3);
  vocabulary.Add("<|b|>zzz", 3);
  EXPECT_EQ(vocabulary.Load().Encode("y<|b|>zzz", true),
            (Ids{b + 1, '|', 'b', '|', '>', 'z', 'z', 'z'}));
  // Words do not cross a special token: each side starts anew.
  EXPECT_EQ(tokenizer.Encode(" <|a|> ", true), (Ids{' ', control, ' '}));
  EXPECT_EQ(tokenizer.Decode(Ids{control, 'x', user}), "<|a|>x<user>");
  EXPECT_TRUE(tokenizer.IsControl(control));
  EXPECT_FALSE(tokenizer.IsControl(user));
  EXPECT_FALSE(tokenizer.IsControl('a'));
}

TEST(Tokenizer, EndTokensAndIds) {
  Vocabulary vocabulary;
  const TokenId start = vocabulary.Add("<|start|>", 3);
  const TokenId stop = vocabulary.Add("<|stop|>", 3);
  const TokenId turn = vocabulary.Add("<|turn|>", 3);
  const TokenId named = vocabulary.Add("<|eot_id|>", 3);
  const TokenId literal = vocabulary.Add("<|im_end|>", 4);  // a user-defined token ends nothing
  vocabulary.ids = {{"bos_token_id", static_cast<std::uint32_t>(start)},
                    {"eos_token_id", static_cast<std::uint32_t>(stop)},
                    {"eot_token_id", static_cast<std::uint32_t>(turn)}};
  const Tokenizer tokenizer = vocabulary.Load();
  EXPECT_EQ(tokenizer.bos(), start);
  EXPECT_EQ(tokenizer.eos(), stop);
  for (const TokenId id : {stop, turn, named}) EXPECT_TRUE(tokenizer.IsEndOfGeneration(id)) << id;
  for (const TokenId id : {start, literal, 65}) EXPECT_FALSE(tokenizer.IsEndOfGeneration(id)) << id;
  EXPECT_EQ(tokenizer.size(), vocabulary.tokens.size());
  EXPECT_FALSE(tokenizer.add_bos());
  EXPECT_EQ(tokenizer.pre_tokenizer(), "gpt2");
  EXPECT_EQ(Vocabulary().Load().bos(), std::nullopt);
  EXPECT_EQ(Vocabulary().Load().eos(), std::nullopt);
}

TEST(Tokenizer, IdsOutsideTheVocabularyAreRefused) {
  const Tokenizer tokenizer = Vocabulary().Load();
  for (const TokenId id : {-1, 256, 1 << 30}) {
    try {
      tokenizer.Decode(Ids{65, id});
      ADD_FAILURE() << id;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
      EXPECT_NE(std::string(error.what()).find("allowed are 0 to 255"), std::string::npos);
    }
    EXPECT_THROW(tokenizer.TokenBytes(id), Error);
    EXPECT_THROW(tokenizer.IsControl(id), Error);
    EXPECT_THROW(tokenizer.IsEndOfGeneration(id), Error);
  }
}

// Llama 3: a word that is a token needs no merges, and BOS is the default.
TEST(Tokenizer, WholeWordsFirst) {
  Vocabulary vocabulary;
  const TokenId word = vocabulary.Add("abc", 1);
  EXPECT_EQ(vocabulary.Load().Encode("abc", false), (Ids{'a', 'b', 'c'}));
  vocabulary.pre = "llama-bpe";
  const Tokenizer tokenizer = vocabulary.Load();
  EXPECT_EQ(tokenizer.Encode("abc", false), Ids{word});
  EXPECT_EQ(tokenizer.Encode("abcd", false), (Ids{'a', 'b', 'c', 'd'}));
  vocabulary.pre = "qwen2";
  EXPECT_EQ(vocabulary.Load().Encode("abc", false), (Ids{'a', 'b', 'c'}));
  EXPECT_FALSE(vocabulary.Load().add_bos());
  EXPECT_TRUE(tokenizer.add_bos());
}

TEST(Tokenizer, BytesWithoutATokenBecomeReplacementCharacters) {
  Vocabulary vocabulary;
  vocabulary.tokens[0xc1] = "renamed";  // two bytes or more: no token for 0xc1 is left
  vocabulary.types[0xc1] = 3;
  const Tokenizer tokenizer = vocabulary.Load();
  EXPECT_EQ(tokenizer.CountInexpressible("a\xc1\xc1 b"), 2u);
  vocabulary.Add("user\xc1", 4);
  EXPECT_EQ(vocabulary.Load().CountInexpressible("user\xc1 \xc1"), 1u);
  EXPECT_EQ(tokenizer.Decode(tokenizer.Encode("a\xc1 b", false)), "a\xef\xbf\xbd b");
}

TEST(Tokenizer, LongWordsAndRuns) {
  Vocabulary vocabulary;
  vocabulary.Merge("a", "a");
  vocabulary.Merge("aa", "aa");
  const TokenId eight = vocabulary.Merge("aaaa", "aaaa");
  const Tokenizer tokenizer = vocabulary.Load();
  EXPECT_EQ(tokenizer.Encode(std::string(400'000, 'a'), false), Ids(50'000, eight));
  EXPECT_EQ(tokenizer.Encode(std::string(300'000, ' '), false), Ids(300'000, ' '));
}

TEST(Tokenizer, EncodesFromManyThreads) {
  Vocabulary vocabulary;
  vocabulary.Merge("a", "b");
  vocabulary.Add("<|x|>", 3);
  const Tokenizer tokenizer = vocabulary.Load();
  const std::string text = "ab abab <|x|> b\xff 12 ab";
  const Ids want = tokenizer.Encode(text, true);
  std::vector<std::thread> threads;
  std::vector<int> equal(4);
  for (int& count : equal) {
    threads.emplace_back([&] {
      for (int i = 0; i < 200; ++i) count += tokenizer.Encode(text, true) == want ? 1 : 0;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(equal, std::vector<int>(4, 200));
}

TEST(TokenizerHostile, ContradictoryVocabulariesAreRefused) {
  const auto corrupt = [](auto change, std::string_view part) {
    Vocabulary vocabulary;
    change(vocabulary);
    ExpectRefused(vocabulary.Build(), ErrorCode::kCorruptData, part);
  };
  corrupt([](Vocabulary& v) { v.merges.push_back("a"); }, "merge 0 (\"a\") is not a pair");
  corrupt([](Vocabulary& v) { v.merges.push_back(""); }, "merge 0 (\"\") is not a pair");
  corrupt([](Vocabulary& v) { v.merges.push_back("a b"); }, "merge 0 (\"a b\") names a token");
  corrupt([](Vocabulary& v) { v.merges.push_back("xyz a"); }, "merge 0 (\"xyz a\") names a token");
  corrupt([](Vocabulary& v) { v.merges.push_back("\xff\x01 a"); }, "merge 0 (\"\\xff\\x01 a\")");
  corrupt([](Vocabulary& v) { v.Add("a", 1); }, "tokens 97 and 256 are the same text");
  corrupt([](Vocabulary& v) { v.types.pop_back(); }, "256 tokens but 255 token types");
  corrupt([](Vocabulary& v) { v.tokens.resize(100), v.types.resize(100); }, "single-byte tokens");
  corrupt(
      [](Vocabulary& v) {
        v.ids = {{"bos_token_id", 256}};
      },
      "tokenizer.ggml.bos_token_id is 256; the vocabulary has tokens 0 to 255");
  corrupt(
      [](Vocabulary& v) {
        v.ids = {{"eos_token_id", 0xffffffffu}};
      },
      "eos_token_id is 4294967295");
  corrupt([](Vocabulary& v) { v.ids = {{"eot_token_id", 300}}; }, "eot_token_id is 300");
  corrupt([](Vocabulary& v) { v.tokens.clear(), v.types.clear(); }, "made.gguf");
}

TEST(TokenizerHostile, MissingKeysAndWrongKindsAreRefused) {
  const std::vector<std::string> keys = {"model", "pre", "tokens", "merges"};
  for (const std::string& missing : keys) {
    for (const bool wrong_kind : {false, true}) {
      const Vocabulary vocabulary;
      test::GgufWriter writer;
      for (const std::string& key : keys) {
        const std::string name = "tokenizer.ggml." + key;
        if (key == missing) {
          if (wrong_kind) writer.Add<std::uint32_t>(name, 1);
        } else if (key == "model" || key == "pre") {
          writer.AddString(name, "gpt2");
        } else {
          writer.AddStringArray(name, key == "tokens" ? vocabulary.tokens : vocabulary.merges);
        }
      }
      ExpectRefused(writer.Build(), ErrorCode::kCorruptData, "tokenizer.ggml." + missing);
    }
  }
}

TEST(TokenizerHostile, UnknownKindsAreUnsupported) {
  Vocabulary vocabulary;
  vocabulary.model = "bert";
  ExpectRefused(vocabulary.Build(), ErrorCode::kUnsupported, "tokenizer model \"bert\"");
  vocabulary.model = "gpt2";
  vocabulary.pre = "tekken";
  ExpectRefused(vocabulary.Build(), ErrorCode::kUnsupported, "pre-tokenizer \"tekken\"");
}

}  // namespace
}  // namespace kvant
