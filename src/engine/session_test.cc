// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// The generate loop: what it gives, where it ends, and that a failed call leaves the session as it
// was. (Fork, Truncate, Snapshot and bytes: session_cache_test.cc.)
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <stdexcept>
#include <string>
#include <vector>

#include "backend/cpu/isa.h"
#include "base/error.h"
#include "engine/engine.h"
#include "tests/support/tiny_engine.h"

namespace kvant {
namespace {

using test::GreedyTokens;
using test::LogitsOf;
using test::TempModel;

const std::vector<TokenId> kPrompt = {70, 71, 100, 7, 9, 265, 30};
const std::vector<TokenId> kSecondPrompt = {11, 12, 13};

class SessionTest : public testing::Test {
 protected:
  EngineOptions Options() const { return {.model_path = model_.path(), .n_threads = 1}; }

  GenerateResult Generate(Session& session, const GenerateOptions& options,
                          const std::vector<TokenId>& prompt = kPrompt) {
    Sampler greedy{SamplerOptions{}};
    return session.Generate(prompt, greedy, options);
  }
  std::vector<TokenId> FreshTokens(const EngineOptions& options, std::size_t n) {
    Engine engine(options);
    Session session = engine.NewSession();
    return GreedyTokens(session, kPrompt, n);
  }
  // What a session says after it is asked again is what a fresh one says to both prompts in a row.
  void ExpectAsGoodAsFresh(Engine& engine, Session& session, std::vector<TokenId> past) {
    EXPECT_EQ(std::vector<TokenId>(session.tokens().begin(), session.tokens().end()), past);
    Session fresh = engine.NewSession();
    past.insert(past.end(), kSecondPrompt.begin(), kSecondPrompt.end());
    EXPECT_EQ(GreedyTokens(session, kSecondPrompt, 5), GreedyTokens(fresh, past, 5));
  }

  TempModel model_;
};

TEST_F(SessionTest, GreedyTakesTheLargestLogitOfEachStep) {
  Engine engine(Options());
  Session session = engine.NewSession();
  const GenerateResult result = Generate(session, {.max_new_tokens = 20, .ignore_end = true});
  ASSERT_EQ(result.tokens.size(), 20u);
  std::vector<TokenId> all = kPrompt;
  all.insert(all.end(), result.tokens.begin(), result.tokens.end());
  Session teacher = engine.NewSession();
  const std::vector<float> logits = LogitsOf(teacher, all, 1);
  const std::size_t n_vocab = engine.summary().n_vocab;
  for (std::size_t i = 0; i < result.tokens.size(); ++i) {
    const float* row = logits.data() + (kPrompt.size() - 1 + i) * n_vocab;
    EXPECT_EQ(result.tokens[i], std::max_element(row, row + n_vocab) - row) << "token " << i;
  }
}

TEST_F(SessionTest, CountsWhatItDid) {
  Engine engine(Options());
  Session session = engine.NewSession();
  std::vector<std::pair<std::size_t, std::size_t>> progress;
  GenerateOptions options = {.max_new_tokens = 9, .ignore_end = true};
  options.on_prefill = [&](std::size_t done, std::size_t total) {
    progress.emplace_back(done, total);
  };
  const GenerateResult result = Generate(session, options);
  EXPECT_EQ(result.prompt_tokens, kPrompt.size());
  EXPECT_EQ(result.finish, FinishReason::kLength);
  EXPECT_EQ(result.tokens.size(), 9u);
  EXPECT_EQ(result.step_s.size(), 8u) << "the first token comes with the prefill";
  EXPECT_GT(result.prefill_s, 0);
  EXPECT_GE(result.ttft_s, result.prefill_s);
  double sum = 0;
  for (const double step : result.step_s) sum += step;
  EXPECT_DOUBLE_EQ(result.decode_s, sum);
  EXPECT_EQ(session.tokens().size(), kPrompt.size() + 9);
  EXPECT_EQ(session.kv_len(), kPrompt.size() + 8) << "the last token is run by the next call";
  EXPECT_EQ(progress, (std::vector<std::pair<std::size_t, std::size_t>>{{7, 7}}));
}

TEST_F(SessionTest, PrefillReportsEachChunk) {
  EngineOptions engine_options = Options();
  engine_options.prefill_chunk = 3;
  Engine engine(engine_options);
  Session session = engine.NewSession();
  std::vector<std::pair<std::size_t, std::size_t>> progress;
  GenerateOptions options = {.max_new_tokens = 0};
  options.on_prefill = [&](std::size_t done, std::size_t total) {
    progress.emplace_back(done, total);
  };
  const GenerateResult result = Generate(session, options);
  EXPECT_TRUE(result.tokens.empty());
  EXPECT_EQ(session.kv_len(), kPrompt.size());
  EXPECT_EQ(progress, (std::vector<std::pair<std::size_t, std::size_t>>{{3, 7}, {6, 7}, {7, 7}}));
}

TEST_F(SessionTest, ThreadsChunksAndKernelsGiveTheSameTokens) {
  const std::vector<TokenId> want = FreshTokens(Options(), 40);
  for (const std::size_t n_threads : {2, 3}) {
    EngineOptions options = Options();
    options.n_threads = n_threads;
    EXPECT_EQ(FreshTokens(options, 40), want) << n_threads << " threads";
  }
  for (const std::size_t chunk : {1, 2, 64}) {
    EngineOptions options = Options();
    options.prefill_chunk = chunk;
    EXPECT_EQ(FreshTokens(options, 40), want) << "chunks of " << chunk;
    options.exact = true;
    EXPECT_EQ(FreshTokens(options, 40), want) << "chunks of " << chunk << ", exact";
  }
  for (const Isa isa : SupportedIsas()) {
    EngineOptions options = Options();
    options.kernel = IsaName(isa);
    EXPECT_EQ(FreshTokens(options, 40), want) << IsaName(isa);
  }
}

TEST_F(SessionTest, SeedsDecideWhatIsSampled) {
  Engine engine(Options());
  const auto sample = [&](std::uint64_t seed) {
    Session session = engine.NewSession();
    Sampler sampler({.temperature = 1.0f, .top_k = 50, .seed = seed});
    return session.Generate(kPrompt, sampler, {.max_new_tokens = 30, .ignore_end = true}).tokens;
  };
  EXPECT_EQ(sample(1), sample(1));
  EXPECT_NE(sample(1), sample(2));
}

TEST_F(SessionTest, TheTextIsWhatTheTokensSayAndComesInPieces) {
  Engine engine(Options());
  Session session = engine.NewSession();
  std::string pieces;
  GenerateOptions options = {.max_new_tokens = 30, .ignore_end = true};
  options.on_text = [&](std::string_view piece) {
    EXPECT_FALSE(piece.empty());
    pieces += piece;
  };
  const GenerateResult result = Generate(session, options);
  std::string want;
  for (const TokenId id : result.tokens) {
    if (!engine.tokenizer().IsControl(id)) want += engine.tokenizer().TokenBytes(id);
  }
  EXPECT_EQ(result.text, want);
  EXPECT_EQ(pieces, want);
  EXPECT_FALSE(want.empty());
}

TEST_F(SessionTest, StopStringsEndTheTextBeforeThem) {
  Engine engine(Options());
  Session free = engine.NewSession();
  const std::string text = Generate(free, {.max_new_tokens = 60, .ignore_end = true}).text;
  ASSERT_GT(text.size(), 30u);
  // Every run of three bytes in the middle, most of them spread over tokens.
  for (std::size_t at = 8; at + 3 < 24; ++at) {
    const std::string stop = text.substr(at, 3);
    Session session = engine.NewSession();
    GenerateOptions options = {
        .max_new_tokens = 60, .stop = {"never said", stop}, .ignore_end = true};
    std::string pieces;
    options.on_text = [&](std::string_view piece) { pieces += piece; };
    const GenerateResult result = Generate(session, options);
    EXPECT_EQ(result.finish, FinishReason::kStopString);
    EXPECT_EQ(result.text, text.substr(0, text.find(stop))) << "stop at byte " << at;
    EXPECT_EQ(pieces, result.text);
  }
}

TEST_F(SessionTest, ATailThatMightHaveBeenAStopStringIsShownAtTheEnd) {
  Engine engine(Options());
  Session free = engine.NewSession();
  const std::string text = Generate(free, {.max_new_tokens = 12, .ignore_end = true}).text;
  Session session = engine.NewSession();
  const std::string stop = text.substr(text.size() - 2) + "what never comes";
  const GenerateResult result =
      Generate(session, {.max_new_tokens = 12, .stop = {stop}, .ignore_end = true});
  EXPECT_EQ(result.finish, FinishReason::kLength);
  EXPECT_EQ(result.text, text);
}

// Nearly even odds for every token, so an end token comes soon.
TEST_F(SessionTest, AnEndTokenEndsTheAnswerUnlessIgnored) {
  Engine engine(Options());
  const SamplerOptions wild = {.temperature = 1000.0f, .seed = 3};
  Session session = engine.NewSession();
  Sampler sampler(wild);
  const GenerateResult result = session.Generate(kPrompt, sampler, {.max_new_tokens = 2000});
  ASSERT_EQ(result.finish, FinishReason::kEndOfGeneration);
  ASSERT_FALSE(result.tokens.empty());
  EXPECT_TRUE(engine.tokenizer().IsEndOfGeneration(result.tokens.back()));
  for (std::size_t i = 0; i + 1 < result.tokens.size(); ++i) {
    EXPECT_FALSE(engine.tokenizer().IsEndOfGeneration(result.tokens[i])) << i;
  }
  EXPECT_EQ(result.text.find("<|"), std::string::npos) << "control tokens are no text";

  const std::size_t more = result.tokens.size() + 20;
  Session second = engine.NewSession();
  Sampler again(wild);
  const GenerateResult longer =
      second.Generate(kPrompt, again, {.max_new_tokens = more, .ignore_end = true});
  EXPECT_EQ(longer.finish, FinishReason::kLength);
  ASSERT_EQ(longer.tokens.size(), more);
  EXPECT_TRUE(std::equal(result.tokens.begin(), result.tokens.end(), longer.tokens.begin()));
}

TEST_F(SessionTest, ASecondPromptContinuesTheFirstAnswer) {
  Engine engine(Options());
  Session session = engine.NewSession();
  std::vector<TokenId> past = kPrompt;
  for (const TokenId id : GreedyTokens(session, kPrompt, 6)) past.push_back(id);
  ExpectAsGoodAsFresh(engine, session, past);
}

TEST_F(SessionTest, SessionsOfOneEngineDoNotDisturbEachOther) {
  Engine engine(Options());
  Session a = engine.NewSession(), b = engine.NewSession();
  std::vector<TokenId> from_a, from_b;
  std::vector<TokenId> next_a = kPrompt, next_b = kSecondPrompt;
  for (int turn = 0; turn < 5; ++turn) {
    for (auto [session, next, all] : {std::tuple{&a, &next_a, &from_a}, {&b, &next_b, &from_b}}) {
      const std::vector<TokenId> tokens = GreedyTokens(*session, *next, 3);
      all->insert(all->end(), tokens.begin(), tokens.end());
      *next = {static_cast<TokenId>(40 + turn)};
    }
  }
  Session alone = engine.NewSession();
  std::vector<TokenId> want, next = kPrompt;
  for (int turn = 0; turn < 5; ++turn) {
    const std::vector<TokenId> tokens = GreedyTokens(alone, next, 3);
    want.insert(want.end(), tokens.begin(), tokens.end());
    next = {static_cast<TokenId>(40 + turn)};
  }
  EXPECT_EQ(from_a, want);
  EXPECT_NE(from_b, want);
}

TEST_F(SessionTest, TheContextEndsTheAnswer) {
  EngineOptions options = Options();
  options.ctx = 20;
  Engine engine(options);
  Session session = engine.NewSession();
  const GenerateResult result = Generate(session, {.max_new_tokens = 100, .ignore_end = true});
  EXPECT_EQ(result.finish, FinishReason::kContextFull);
  EXPECT_EQ(session.kv_len(), 20u);
  // The token after the last cached one is still sampled.
  EXPECT_EQ(result.tokens.size(), 20 - kPrompt.size() + 1);
  EXPECT_EQ(result.tokens, FreshTokens(Options(), result.tokens.size()));
}

TEST_F(SessionTest, APromptThatDoesNotFitIsRefusedAndNothingIsLost) {
  EngineOptions options = Options();
  options.ctx = 30;
  Engine engine(options);
  Session session = engine.NewSession();
  std::vector<TokenId> past = kPrompt;
  for (const TokenId id : GreedyTokens(session, kPrompt, 4)) past.push_back(id);
  const std::vector<TokenId> too_long(20, 50);
  try {
    Generate(session, {}, too_long);
    ADD_FAILURE() << "31 tokens fitted into 30";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    const std::string message = error.what();
    for (const char* word : {"20 tokens", "11 are there", "holds 30", "--ctx"}) {
      EXPECT_NE(message.find(word), std::string::npos) << message;
    }
  }
  ExpectAsGoodAsFresh(engine, session, past);
}

TEST_F(SessionTest, AnEmptyPromptAndAForeignTokenAreRefused) {
  Engine engine(Options());
  Session session = engine.NewSession();
  EXPECT_THROW(Generate(session, {}, {}), Error);
  std::vector<TokenId> past = kPrompt;
  for (const TokenId id : GreedyTokens(session, kPrompt, 4)) past.push_back(id);
  EXPECT_THROW(Generate(session, {}, {5, 100000}), Error);
  EXPECT_THROW(Generate(session, {}, {5, -1}), Error);
  ExpectAsGoodAsFresh(engine, session, past);
}

TEST_F(SessionTest, CancellingDuringThePrefillForgetsThePrompt) {
  EngineOptions engine_options = Options();
  engine_options.prefill_chunk = 2;
  Engine engine(engine_options);
  Session session = engine.NewSession();
  std::vector<TokenId> past = kPrompt;
  for (const TokenId id : GreedyTokens(session, kPrompt, 4)) past.push_back(id);
  for (const std::size_t after : {0, 2, 4}) {
    std::atomic<bool> cancel = after == 0;
    GenerateOptions options = {.max_new_tokens = 5, .cancel = &cancel};
    options.on_prefill = [&](std::size_t done, std::size_t) { cancel = done >= after; };
    const GenerateResult result = Generate(session, options);
    EXPECT_EQ(result.finish, FinishReason::kCancelled) << after;
    EXPECT_TRUE(result.tokens.empty());
    EXPECT_EQ(std::vector<TokenId>(session.tokens().begin(), session.tokens().end()), past);
  }
  ExpectAsGoodAsFresh(engine, session, past);
}

TEST_F(SessionTest, CancellingDuringTheAnswerKeepsWhatWasSaid) {
  Engine engine(Options());
  Session session = engine.NewSession();
  std::atomic<bool> cancel = false;
  GenerateOptions options = {.max_new_tokens = 50, .ignore_end = true, .cancel = &cancel};
  int n_pieces = 0;
  options.on_text = [&](std::string_view) { cancel = ++n_pieces == 3; };
  const GenerateResult result = Generate(session, options);
  EXPECT_EQ(result.finish, FinishReason::kCancelled);
  ASSERT_FALSE(result.tokens.empty());
  EXPECT_LT(result.tokens.size(), 50u);
  std::vector<TokenId> past = kPrompt;
  past.insert(past.end(), result.tokens.begin(), result.tokens.end());
  ExpectAsGoodAsFresh(engine, session, past);
}

TEST_F(SessionTest, AnExceptionOfACallbackForgetsTheCall) {
  EngineOptions engine_options = Options();
  engine_options.prefill_chunk = 2;
  Engine engine(engine_options);
  Session session = engine.NewSession();
  std::vector<TokenId> past = kPrompt;
  for (const TokenId id : GreedyTokens(session, kPrompt, 4)) past.push_back(id);
  GenerateOptions options = {.max_new_tokens = 20, .ignore_end = true};
  options.on_prefill = [](std::size_t done, std::size_t) {
    if (done >= 4) throw std::runtime_error("prefill");
  };
  EXPECT_THROW(Generate(session, options), std::runtime_error);
  options.on_prefill = nullptr;
  int n_pieces = 0;
  options.on_text = [&](std::string_view) {
    if (++n_pieces == 3) throw std::runtime_error("text");
  };
  EXPECT_THROW(Generate(session, options), std::runtime_error);
  ExpectAsGoodAsFresh(engine, session, past);
}

}  // namespace
}  // namespace kvant
