// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// SentencePiece vocabularies through the Tokenizer interface: small ones made here, and hostile
// ones.

#include "llm/sentence_piece.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "llm/gguf.h"
#include "llm/tokenizer.h"
#include "llm/utf8.h"
#include "tests/support/gguf_writer.h"
#include "tests/support/seed.h"

namespace kvant {
namespace {

using Ids = std::vector<TokenId>;

constexpr std::int32_t kNormal = 1, kUnknown = 2, kControl = 3, kUser = 4, kUnused = 5, kByte = 6;

std::string Escaped(std::string_view text) {
  std::string escaped;
  for (const char c : text) c == ' ' ? escaped += "\xe2\x96\x81" : escaped += c;
  return escaped;
}

// <unk>, <s>, </s>, the 256 bytes (byte b is token 3 + b), then what a test adds.
struct Vocabulary {
  std::vector<std::string> tokens = {"<unk>", "<s>", "</s>"};
  std::vector<std::int32_t> types = {kUnknown, kControl, kControl};
  std::vector<float> scores = {0, 0, 0};
  std::optional<bool> space_prefix = false;
  std::optional<bool> add_bos;
  std::vector<std::pair<std::string, std::uint32_t>> ids;  // more metadata: key, token id

  explicit Vocabulary(bool with_bytes = true) {
    for (int byte = 0; with_bytes && byte < 256; ++byte) {
      Add(fmt::format("<0x{:02X}>", byte), 0, kByte);
    }
  }
  TokenId AddRaw(const std::string& text, float score, std::int32_t type) {
    tokens.push_back(text);
    types.push_back(type);
    scores.push_back(score);
    return static_cast<TokenId>(tokens.size() - 1);
  }
  TokenId Add(std::string_view text, float score, std::int32_t type = kNormal) {
    return AddRaw(Escaped(text), score, type);
  }
  std::vector<std::byte> Build(bool with_scores = true) const {
    test::GgufWriter writer;
    writer.AddString("tokenizer.ggml.model", "llama");
    writer.AddStringArray("tokenizer.ggml.tokens", tokens);
    writer.AddArray("tokenizer.ggml.token_type", types);
    if (with_scores) writer.AddArray("tokenizer.ggml.scores", scores);
    if (space_prefix) writer.Add<bool>("tokenizer.ggml.add_space_prefix", *space_prefix);
    if (add_bos) writer.Add<bool>("tokenizer.ggml.add_bos_token", *add_bos);
    for (const auto& [key, id] : ids) writer.Add<std::uint32_t>("tokenizer.ggml." + key, id);
    return writer.Build();
  }
  Tokenizer Load() const {
    const std::vector<std::byte> bytes = Build();
    return Tokenizer::FromGguf(GgufFile::FromBytes(bytes, "made.gguf"));
  }
};

Ids Bytes(std::string_view text) {
  Ids ids;
  for (const char c : text) ids.push_back(3 + static_cast<unsigned char>(c));
  return ids;
}

TEST(SentencePiece, JoinsByScoreThenFromTheLeft) {
  Vocabulary vocabulary;
  const TokenId a = vocabulary.Add("a", -9);
  const TokenId b = vocabulary.Add("b", -9);
  const TokenId c = vocabulary.Add("c", -9);
  const TokenId aa = vocabulary.Add("aa", -3);
  const TokenId ab = vocabulary.Add("ab", -2);
  const TokenId bc = vocabulary.Add("bc", -1);
  const TokenId abc = vocabulary.Add("abc", -4);
  const TokenId cab = vocabulary.Add("cab", 5);  // only by "c" and "ab"
  const TokenId space_a = vocabulary.Add(" a", -1);
  const TokenId spaces = vocabulary.Add("  ", -0.5f);
  const Tokenizer tokenizer = vocabulary.Load();
  EXPECT_EQ(tokenizer.Encode("", false), Ids{});
  EXPECT_EQ(tokenizer.Encode("ab", false), Ids{ab});
  EXPECT_EQ(tokenizer.Encode("abc", false), Ids{abc});  // "bc" first
  EXPECT_EQ(tokenizer.Encode("aaa", false), (Ids{aa, a}));
  EXPECT_EQ(tokenizer.Encode("aab", false), (Ids{a, ab}));
  EXPECT_EQ(tokenizer.Encode("bcbc", false), (Ids{bc, bc}));
  EXPECT_EQ(tokenizer.Encode("ccab", false), (Ids{c, cab}));
  EXPECT_EQ(tokenizer.Encode("bac a", false), (Ids{b, a, c, space_a}));
  EXPECT_EQ(tokenizer.Encode("   a", false), (Ids{spaces, space_a}));
  EXPECT_EQ(tokenizer.Decode(Ids{spaces, space_a, b}), "   ab");
}

// The same as its definition says: again and again the best pair of the whole text.
Ids PlainEncode(const Vocabulary& vocabulary, std::string_view text) {
  const auto find = [&](const std::string& piece) {
    for (std::size_t id = 0; id < vocabulary.tokens.size(); ++id) {
      if (vocabulary.types[id] == kNormal && vocabulary.tokens[id] == piece) return id;
    }
    return vocabulary.tokens.size();
  };
  std::vector<std::string> pieces;
  for (std::string_view rest = text; !rest.empty();) {
    const Utf8Sequence sequence = ReadUtf8(rest);
    pieces.push_back(Escaped(rest.substr(0, sequence.bytes)));
    rest.remove_prefix(sequence.bytes);
  }
  for (;;) {
    std::size_t best = pieces.size();
    float best_score = 0;
    for (std::size_t i = 0; i + 1 < pieces.size(); ++i) {
      const std::size_t id = find(pieces[i] + pieces[i + 1]);
      if (id == vocabulary.tokens.size()) continue;
      if (best == pieces.size() || vocabulary.scores[id] > best_score) {
        best = i;
        best_score = vocabulary.scores[id];
      }
    }
    if (best == pieces.size()) break;
    pieces[best] += pieces[best + 1];
    pieces.erase(pieces.begin() + static_cast<std::ptrdiff_t>(best) + 1);
  }
  Ids ids;
  for (const std::string& piece : pieces) {
    const std::size_t id = find(piece);
    if (id < vocabulary.tokens.size()) {
      ids.push_back(static_cast<TokenId>(id));
    } else {
      for (const TokenId byte : Bytes(piece == "\xe2\x96\x81" ? " " : piece)) ids.push_back(byte);
    }
  }
  return ids;
}

TEST(SentencePiece, EqualsPlainJoiningForRandomVocabularies) {
  SplitMix64 rng = test::TestRng();
  SCOPED_TRACE(test::TestSeed());
  const std::vector<std::string> characters = {"a", "b", " ", "\xc3\xa9", "\xe6\x97\xa5"};
  for (int round = 0; round < 40; ++round) {
    Vocabulary vocabulary;
    std::vector<std::string> parts = characters;
    const std::uint64_t n_scores = 1 + rng.Below(12);  // few: ties are common
    const std::uint64_t n_tokens = rng.Below(50);
    for (std::uint64_t i = 0; i < n_tokens; ++i) {
      std::string text = parts[rng.Below(parts.size())];
      if (rng.Below(8) > 0) text += parts[rng.Below(parts.size())];
      const std::string escaped = Escaped(text);
      if (text.size() > 14 ||
          std::count(vocabulary.tokens.begin(), vocabulary.tokens.end(), escaped)) {
        continue;
      }
      vocabulary.Add(text, -static_cast<float>(rng.Below(n_scores)));
      parts.push_back(text);
    }
    const Tokenizer tokenizer = vocabulary.Load();
    for (int i = 0; i < 30; ++i) {
      std::string text;
      for (std::uint64_t n = rng.Below(50); n > 0; --n) text += characters[rng.Below(5)];
      ASSERT_EQ(tokenizer.Encode(text, false), PlainEncode(vocabulary, text)) << text;
    }
  }
}

TEST(SentencePiece, BytesForWhatIsNoToken) {
  Vocabulary vocabulary;
  const TokenId a = vocabulary.Add("a", -1);
  const TokenId space = vocabulary.Add(" ", -2);
  const TokenId accent = vocabulary.Add("\xc3\xa9", -3);
  const Tokenizer tokenizer = vocabulary.Load();
  EXPECT_EQ(tokenizer.Encode("a\xc3\xa9 ", false), (Ids{a, accent, space}));
  EXPECT_EQ(tokenizer.Encode("\xc3\xa8", false), Bytes("\xc3\xa8"));
  EXPECT_EQ(tokenizer.Encode("\xc3", false), Bytes("\xc3"));
  EXPECT_EQ(tokenizer.Encode("\xff\xfe", false), Bytes("\xff\xfe"));
  // The sign that tokens write for a space is a character like others in a text.
  EXPECT_EQ(tokenizer.Encode("\xe2\x96\x81", false), Bytes("\xe2\x96\x81"));
  // The name of a byte token is text like any other.
  Ids named = Bytes("<0x41>");
  EXPECT_EQ(tokenizer.Encode("<0x41>", true), named);
  EXPECT_EQ(tokenizer.Decode(Ids{3 + 0xc3, 3 + 0xa8, space}), "\xc3\xa8 ");
  EXPECT_EQ(tokenizer.TokenBytes(3 + 0xc3), "\xc3");
  EXPECT_EQ(tokenizer.CountInexpressible("\xff\xc3\xa8 \xe2\x96\x81"), 0u);
}

std::string RandomText(SplitMix64& rng, bool valid_utf8) {
  static const std::vector<std::string> kSpecials = {"<s>", "<tag>", "\n\n",
                                                     "  ",  "<unk>", "\xe2\x96\x81"};
  std::string text;
  for (std::uint64_t n = rng.Below(60); n > 0; --n) {
    const std::uint64_t kind = rng.Below(10);
    if (kind < 2) {
      text += kSpecials[rng.Below(kSpecials.size())];
    } else if (kind < 5) {
      text += "ab \n"[rng.Below(4)];
    } else if (valid_utf8) {
      auto code_point = static_cast<std::uint32_t>(rng.Below(0x110000 >> rng.Below(14)));
      if (code_point >= 0xd800 && code_point < 0xe000) code_point = 'x';
      AppendUtf8(code_point, text);
    } else {
      text.push_back(static_cast<char>(rng.Below(256)));
    }
  }
  return text;
}

TEST(SentencePiece, TextsAndBytesComeBack) {
  SplitMix64 rng = test::TestRng();
  SCOPED_TRACE(test::TestSeed());
  for (const bool space_prefix : {false, true}) {
    Vocabulary vocabulary;
    vocabulary.space_prefix = space_prefix;
    for (const char* text :
         {"a", "b", " ", "ab", " a", "a ", "  a", "\n", "\xc3\xa9", "b\xc3\xa9"}) {
      vocabulary.Add(text, -static_cast<float>(rng.Below(5)));
    }
    for (const char* text : {"<tag>", "\n\n", "\n\n\n", "  "}) vocabulary.Add(text, 0, kUser);
    const Tokenizer tokenizer = vocabulary.Load();
    for (int round = 0; round < 600; ++round) {
      const std::string text = RandomText(rng, /*valid_utf8=*/round % 2 == 0);
      ASSERT_EQ(tokenizer.Decode(tokenizer.Encode(text, round % 3 == 0)), text)
          << testing::PrintToString(text);
      ASSERT_EQ(tokenizer.CountInexpressible(text), 0u);
    }
  }
}

TEST(SentencePiece, SpaceInFront) {
  Vocabulary vocabulary;
  const TokenId a = vocabulary.Add("a", -1);
  const TokenId space = vocabulary.Add(" ", -3);
  const TokenId space_a = vocabulary.Add(" a", -2);
  for (const std::optional<bool> key : {std::optional<bool>(), std::optional<bool>(true)}) {
    vocabulary.space_prefix = key;
    const Tokenizer tokenizer = vocabulary.Load();
    EXPECT_EQ(tokenizer.Encode("", true), Ids{});
    EXPECT_EQ(tokenizer.Encode("aa", true), (Ids{space_a, a}));
    EXPECT_EQ(tokenizer.Encode(" a", true), (Ids{space, space_a}));
    EXPECT_EQ(tokenizer.Encode("<s>a<s><s> a", true), (Ids{1, space_a, 1, 1, space, space_a}));
    EXPECT_EQ(tokenizer.Decode(Ids{1, space_a, space_a, 1, a, space_a}), "<s>a a<s>a a");
    EXPECT_EQ(tokenizer.TokenBytes(space_a), " a");
  }
  vocabulary.space_prefix = false;
  EXPECT_EQ(vocabulary.Load().Encode("a a", true), (Ids{a, space_a}));
  EXPECT_EQ(vocabulary.Load().Decode(Ids{space_a}), " a");
}

TEST(SentencePiece, SpecialTokensAreTakenOutFirst) {
  Vocabulary vocabulary;
  const TokenId a = vocabulary.Add("a", -1);
  vocabulary.Add("a\n", 9);
  const TokenId line = vocabulary.Add("\n", 0, kUser);
  const TokenId lines = vocabulary.Add("\n\n\n", 0, kUser);
  const TokenId spaces = vocabulary.Add("  ", 0, kUser);  // written with U+2581
  const TokenId turn = vocabulary.Add("<start_of_turn>", 0, kControl);
  const TokenId prefix = vocabulary.Add("<sta", 0, kUser);
  const TokenId raw = vocabulary.AddRaw("x y", 0, kUser);
  vocabulary.Add("unused", 9, kUnused);
  const Tokenizer tokenizer = vocabulary.Load();
  EXPECT_EQ(tokenizer.Encode("a\n\n\n\n\na", false), (Ids{a, lines, line, line, a}));
  EXPECT_EQ(tokenizer.Encode("a  a", false), (Ids{a, spaces, a}));
  EXPECT_EQ(tokenizer.Encode("x y", false), (Ids{raw}));
  EXPECT_EQ(tokenizer.Encode("<start_of_turn>a", true), (Ids{turn, a}));
  Ids untold = {prefix};
  for (const TokenId id : Bytes("rt_of_turn>")) untold.push_back(id);
  EXPECT_EQ(tokenizer.Encode("<start_of_turn>", false), untold);
  EXPECT_EQ(tokenizer.Encode("unused", true), Bytes("unused"));
  EXPECT_EQ(tokenizer.Decode(Ids{spaces, turn, raw}), "  <start_of_turn>x y");
}

// As in gemma's files: the end of a turn is told by its name and by the eot key.
TEST(SentencePiece, EndTokensAndBos) {
  Vocabulary vocabulary;
  const TokenId turn = vocabulary.Add("<end_of_turn>", 0, kControl);
  const TokenId other = vocabulary.Add("<over>", 0, kControl);
  const TokenId tag = vocabulary.Add("<EOT>", 0, kUser);  // a user-defined token ends nothing
  vocabulary.ids = {{"bos_token_id", 1},
                    {"eos_token_id", 2},
                    {"eot_token_id", static_cast<std::uint32_t>(other)}};
  Tokenizer tokenizer = vocabulary.Load();
  EXPECT_EQ(tokenizer.bos(), 1);
  EXPECT_EQ(tokenizer.eos(), 2);
  for (const TokenId id : {2, turn, other}) EXPECT_TRUE(tokenizer.IsEndOfGeneration(id)) << id;
  for (const TokenId id : {0, 1, tag}) EXPECT_FALSE(tokenizer.IsEndOfGeneration(id)) << id;
  EXPECT_TRUE(tokenizer.add_bos());  // SentencePiece's habit where the file is silent
  EXPECT_EQ(tokenizer.pre_tokenizer(), "default");
  vocabulary.add_bos = false;
  EXPECT_FALSE(vocabulary.Load().add_bos());
  vocabulary.add_bos = true;
  EXPECT_TRUE(vocabulary.Load().add_bos());
}

TEST(SentencePiece, UnknownTokenWithoutBytes) {
  Vocabulary vocabulary(/*with_bytes=*/false);
  const TokenId a = vocabulary.Add("a", -1);
  const TokenId bc = vocabulary.Add("bc", -1);
  vocabulary.Add("<0x64>", 0, kByte);  // one byte alone does not make a vocabulary of bytes
  const TokenId line = vocabulary.Add("\n", 0, kUser);
  const Tokenizer tokenizer = vocabulary.Load();
  EXPECT_EQ(tokenizer.Encode("a\xc3\xa9\xc3\xa9\n", false), (Ids{a, 0, 0, line}));
  EXPECT_EQ(tokenizer.Encode("bcbd", false), (Ids{bc, 0, line - 1}));
  EXPECT_EQ(tokenizer.CountInexpressible("a\xc3\xa9\xc3\xa9\n\xff"), 5u);
  EXPECT_EQ(tokenizer.CountInexpressible("bcb"), 1u);
  vocabulary.ids = {{"unknown_token_id", static_cast<std::uint32_t>(a)}};
  EXPECT_EQ(vocabulary.Load().Encode("z", false), Ids{a});
}

TEST(SentencePiece, LongRuns) {
  Vocabulary vocabulary;
  std::string run = "a";
  vocabulary.Add(run, -20);
  for (float score = -10; run.size() < 8; score += 1) {
    run += run;
    vocabulary.Add(run, score);
  }
  const auto eight = static_cast<TokenId>(vocabulary.tokens.size() - 1);
  const Tokenizer tokenizer = vocabulary.Load();
  EXPECT_EQ(tokenizer.Encode(std::string(200'000, 'a'), false), Ids(25'000, eight));
  EXPECT_EQ(tokenizer.Encode(std::string(200'000, 'b'), false), Ids(200'000, 3 + 'b'));
}

void ExpectRefused(const std::vector<std::byte>& bytes, std::string_view part) {
  try {
    Tokenizer::FromGguf(GgufFile::FromBytes(bytes, "made.gguf"));
    ADD_FAILURE() << "accepted; expected: " << part;
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kCorruptData) << error.what();
    EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find("made.gguf"), std::string::npos) << error.what();
  }
}

TEST(SentencePieceHostile, ContradictoryVocabulariesAreRefused) {
  const auto corrupt = [](auto change, std::string_view part) {
    Vocabulary vocabulary;
    change(vocabulary);
    ExpectRefused(vocabulary.Build(), part);
  };
  corrupt([](Vocabulary& v) { v.Add("x", 0), v.Add("x", 1); },
          "tokens 259 and 260 are the same text");
  corrupt([](Vocabulary& v) { v.Add(" x", 0), v.AddRaw(" x", 1, kNormal); },
          "tokens 259 and 260 are the same text");
  corrupt([](Vocabulary& v) { v.Add("<0x41>", 0, kByte); }, "tokens 68 and 259 are the same byte");
  corrupt([](Vocabulary& v) { v.Add("", 0); }, "token 259 has 0 bytes; allowed are 1 to 1024");
  corrupt([](Vocabulary& v) { v.Add(std::string(1025, 'x'), 0); }, "token 259 has 1025 bytes");
  corrupt([](Vocabulary& v) { v.Add(std::string(4097, 'x'), 0, kUser); }, "of 4097 bytes");
  corrupt([](Vocabulary& v) { v.Add("x", std::numeric_limits<float>::quiet_NaN()); },
          "the score of token 259 is not a number");
  corrupt([](Vocabulary& v) { v.scores.pop_back(); }, "259 tokens but 258 scores");
  corrupt([](Vocabulary& v) { v.types.pop_back(); }, "259 tokens but 258 token types");
  for (const char* name : {"", "A", "<0x4>", "<0x4G>", "<0x411>", "\xff\xff\xff\xff\xff\xff"}) {
    corrupt([&](Vocabulary& v) { v.AddRaw(name, 0, kByte); }, "token 259 (");
  }
  corrupt([](Vocabulary& v) { v.types[0] = v.types[3 + 'A'] = kControl; },
          "neither a token for every byte nor an unknown token");
  corrupt([](Vocabulary& v) { v.types[3 + ' '] = kControl, v.space_prefix = true; },
          "no token for a space");
  corrupt([](Vocabulary& v) { v.ids = {{"unknown_token_id", 259}}; }, "unknown_token_id is 259");
  corrupt([](Vocabulary& v) { v.ids = {{"eot_token_id", 259}}; }, "eot_token_id is 259");
  ExpectRefused(Vocabulary().Build(/*with_scores=*/false), "'tokenizer.ggml.scores' is missing");
}

TEST(SentencePieceHostile, OddVocabulariesStillExpressEverything) {
  SplitMix64 rng = test::TestRng();
  SCOPED_TRACE(test::TestSeed());
  const float infinity = std::numeric_limits<float>::infinity();
  Vocabulary vocabulary;
  vocabulary.Add("\xff\xc3", infinity);  // not UTF-8
  vocabulary.Add("a\xe2\x96", -infinity);
  vocabulary.Add("aa", 0);
  vocabulary.Add("<s>", 3);      // the text of a control token
  vocabulary.Add("", 0, kUser);  // never found
  vocabulary.Add("", 0, kControl);
  vocabulary.Add("same", 0, kUser);
  vocabulary.Add("same", 0, kControl);
  vocabulary.types.back() = 99;  // a kind from the future
  const Tokenizer tokenizer = vocabulary.Load();
  for (int round = 0; round < 300; ++round) {
    std::string text;
    for (std::uint64_t n = rng.Below(40); n > 0; --n)
      text += "a\xe2\x96\x81\xff\xc3<s>me "[rng.Below(12)];
    ASSERT_EQ(tokenizer.Decode(tokenizer.Encode(text, round % 2 == 0)), text);
  }
}

}  // namespace
}  // namespace kvant
