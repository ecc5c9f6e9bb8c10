// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// Sessions and their caches: Fork, Truncate and Snapshot give what a fresh run gives, bytes are
// what was predicted, and the KV limit is never passed. For methods that keep rows and for one that
// packs blocks.
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "engine/engine.h"
#include "tests/support/seed.h"
#include "tests/support/tiny_engine.h"
#include "tests/support/tiny_runner.h"

namespace kvant {
namespace {

using test::FirstDifference;
using test::GreedyTokens;
using test::LogitsOf;
using test::RandomTokens;
using test::TempModel;

const std::string kPacking = "k=bf16,v=bf16,window=64,sink=4";
const std::string kNoWindow = "k=bf16,v=fp16,window=0";

class SessionCacheTest : public testing::TestWithParam<std::string> {
 protected:
  EngineOptions Options() const {
    return {.model_path = model_.path(),
            .kv_spec = GetParam(),
            .n_threads = 1,
            .exact = true,  // the same bits for any chunk, also over packed blocks
            .prefill_chunk = 64};
  }
  std::span<const TokenId> Tokens(std::size_t begin, std::size_t end) const {
    return std::span(tokens_).subspan(begin, end - begin);
  }
  std::span<const TokenId> OtherTokens(std::size_t n) const { return std::span(other_).first(n); }

  // Logits of `next` behind `past`, in a session that saw nothing else.
  std::vector<float> Fresh(std::span<const TokenId> past, std::span<const TokenId> next) {
    Session session = engine_.NewSession();
    if (!past.empty()) LogitsOf(session, past, 64);
    return LogitsOf(session, next, 7);
  }
  void ExpectLogits(const std::vector<float>& got, const std::vector<float>& want,
                    const std::string& where) {
    EXPECT_EQ(FirstDifference(got, want, engine_.summary().n_vocab), "equal") << where;
  }

  TempModel model_{test::TinyModelOptions{.n_layer = 2}};
  Engine engine_{Options()};
  std::vector<TokenId> tokens_ = RandomTokens(320, 280, test::TestSeed());
  std::vector<TokenId> other_ = RandomTokens(80, 280, test::TestSeed() + 1);
};

TEST_P(SessionCacheTest, AForkAndItsOriginGoTheirOwnWays) {
  for (const std::size_t at : {1, 63, 64, 65, 130, 200}) {
    Session origin = engine_.NewSession();
    LogitsOf(origin, Tokens(0, at), 64);
    Session fork = origin.Fork();
    EXPECT_EQ(fork.kv_len(), at);
    ExpectLogits(LogitsOf(fork, OtherTokens(70), 7), Fresh(Tokens(0, at), OtherTokens(70)),
                 "fork at " + std::to_string(at));
    ExpectLogits(LogitsOf(origin, Tokens(at, at + 70), 7),
                 Fresh(Tokens(0, at), Tokens(at, at + 70)), "origin at " + std::to_string(at));
    EXPECT_EQ(origin.tokens().size(), at + 70);
  }
}

TEST_P(SessionCacheTest, AForkOutlivesItsOrigin) {
  std::optional<Session> origin = engine_.NewSession();
  LogitsOf(*origin, Tokens(0, 150), 64);
  Session fork = origin->Fork();
  origin.reset();
  ExpectLogits(LogitsOf(fork, OtherTokens(20), 7), Fresh(Tokens(0, 150), OtherTokens(20)), "fork");
}

TEST_P(SessionCacheTest, AForkTakesATokenAlongThatWasNotRunYet) {
  Session origin = engine_.NewSession();
  GreedyTokens(origin, Tokens(0, 70), 3);
  ASSERT_EQ(origin.kv_len() + 1, origin.tokens().size());
  Session fork = origin.Fork();
  EXPECT_EQ(GreedyTokens(fork, OtherTokens(2), 5), GreedyTokens(origin, OtherTokens(2), 5));
}

TEST_P(SessionCacheTest, TruncateThenOthersIsAFreshRun) {
  for (const std::size_t end : {70, 300}) {
    for (const std::size_t to : {0, 1, 64, 65, 69, 150, 236, 299, 300}) {
      if (to > end) continue;
      Session session = engine_.NewSession();
      LogitsOf(session, Tokens(0, end), 64);
      const std::size_t reached = session.Truncate(to);
      const std::string where = std::to_string(end) + " to " + std::to_string(to) + ", reached " +
                                std::to_string(reached);
      ASSERT_LE(reached, to) << where;
      EXPECT_EQ(session.kv_len(), reached) << where;
      EXPECT_EQ(session.tokens().size(), to) << where << ": the caller's tokens stay";
      EXPECT_EQ(session.kv().resident_bytes, engine_.PredictResidentBytes(reached)) << where;
      // What the cache could not keep is run again, then the new tokens.
      ExpectLogits(LogitsOf(session, OtherTokens(30), 7), Fresh(Tokens(0, to), OtherTokens(30)),
                   where);
    }
  }
}

TEST_P(SessionCacheTest, TruncateAfterAnAnswerIsAFreshRunToo) {
  Session session = engine_.NewSession();
  std::vector<TokenId> past(tokens_.begin(), tokens_.begin() + 90);
  for (const TokenId id : GreedyTokens(session, past, 60)) past.push_back(id);
  ASSERT_EQ(session.tokens().size(), 150u);
  EXPECT_EQ(session.Truncate(150), 149u) << "the last token is not in the cache yet";
  session.Truncate(120);
  past.resize(120);
  std::vector<TokenId> all = past;
  all.insert(all.end(), other_.begin(), other_.begin() + 5);
  Session fresh = engine_.NewSession();
  EXPECT_EQ(GreedyTokens(session, OtherTokens(5), 10), GreedyTokens(fresh, all, 10));
}

TEST_P(SessionCacheTest, TruncatingForwardIsRefused) {
  Session session = engine_.NewSession();
  LogitsOf(session, Tokens(0, 10), 64);
  try {
    session.Truncate(11);
    ADD_FAILURE() << "went to a token that is not there";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    EXPECT_NE(std::string(error.what()).find("token 11: the session has 10"), std::string::npos)
        << error.what();
  }
  EXPECT_EQ(session.kv_len(), 10u);
}

TEST_P(SessionCacheTest, ASnapshotIsReachedExactlyAgain) {
  for (const std::size_t at : {1, 64, 100, 193}) {
    Session session = engine_.NewSession();
    LogitsOf(session, Tokens(0, at), 64);
    session.Snapshot();
    LogitsOf(session, OtherTokens(80), 64);
    GreedyTokens(session, Tokens(0, 40), 30);
    ASSERT_EQ(session.Truncate(at), at);
    ExpectLogits(LogitsOf(session, Tokens(at, at + 60), 7),
                 Fresh(Tokens(0, at), Tokens(at, at + 60)), "snapshot at " + std::to_string(at));
  }
}

TEST_P(SessionCacheTest, BytesAreThoseThatWerePredicted) {
  Session session = engine_.NewSession();
  std::size_t length = 0;
  for (const std::size_t next :
       {1, 2, 63, 64, 65, 67, 68, 100, 127, 128, 129, 130, 192, 193, 256, 320}) {
    LogitsOf(session, Tokens(length, next), 64);
    length = next;
    const KvReport report = session.kv();
    EXPECT_EQ(report.resident_bytes, engine_.PredictResidentBytes(length)) << length;
    EXPECT_EQ(report.payload_bytes, engine_.PredictPayloadBytes(length)) << length;
    EXPECT_LE(report.payload_bytes, report.resident_bytes) << length;
    EXPECT_GE(report.peak_bytes, report.resident_bytes) << length;
    EXPECT_EQ(report.packed_tokens + report.exact_tokens, length);
    std::size_t packed = 0;  // whole blocks behind the window
    if (GetParam() == kPacking) packed = length < 64 ? 0 : (length - 64) / 64 * 64;
    if (GetParam() == kNoWindow) packed = length / 64 * 64;
    EXPECT_EQ(report.packed_tokens, packed) << length;
    EXPECT_EQ(report.spec, engine_.kv_spec());
    EXPECT_EQ(report.kernel, engine_.kernel());
  }
  // One token at a time, in the answer, ends at the same bytes.
  Session slow = engine_.NewSession();
  GreedyTokens(slow, Tokens(0, 5), 150);
  EXPECT_EQ(slow.kv().resident_bytes, engine_.PredictResidentBytes(slow.kv_len()));
}

TEST_P(SessionCacheTest, TheLimitEndsTheAnswerAndIsNeverPassed) {
  EngineOptions options = Options();
  // Room for 200 tokens and for the copy that a block has while it is packed.
  options.kv_limit_bytes = engine_.PredictResidentBytes(200);
  Engine engine(options);
  Session session = engine.NewSession();
  Sampler greedy{SamplerOptions{}};
  const GenerateResult result =
      session.Generate(Tokens(0, 50), greedy, {.max_new_tokens = 400, .ignore_end = true});
  EXPECT_EQ(result.finish, FinishReason::kKvLimit);
  EXPECT_LE(session.kv().peak_bytes, options.kv_limit_bytes);
  EXPECT_EQ(session.kv().resident_bytes, engine.PredictResidentBytes(session.kv_len()));
  EXPECT_GE(session.kv_len(), 127u) << "stopped far below the limit";
  // What was said is what a session without a limit says.
  Session free = engine_.NewSession();
  EXPECT_EQ(result.tokens, GreedyTokens(free, Tokens(0, 50), result.tokens.size()));
  // Going back makes room again.
  session.Truncate(0);
  EXPECT_EQ(session.kv().resident_bytes, 0u);
  Session again = engine_.NewSession();
  EXPECT_EQ(GreedyTokens(session, OtherTokens(20), 10), GreedyTokens(again, OtherTokens(20), 10));
}

TEST_P(SessionCacheTest, APromptBeyondTheLimitIsRefusedAndNothingIsLost) {
  EngineOptions options = Options();
  options.kv_limit_bytes = engine_.PredictResidentBytes(128);
  Engine engine(options);
  Session session = engine.NewSession();
  std::vector<TokenId> past(tokens_.begin(), tokens_.begin() + 20);
  for (const TokenId id : GreedyTokens(session, past, 5)) past.push_back(id);
  Sampler greedy{SamplerOptions{}};
  try {
    session.Generate(Tokens(0, 300), greedy, {});
    ADD_FAILURE() << "325 tokens fitted into the bytes of 128";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kResourceExhausted);
    EXPECT_NE(std::string(error.what()).find("325 tokens"), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find("--kv-limit"), std::string::npos) << error.what();
  }
  EXPECT_EQ(std::vector<TokenId>(session.tokens().begin(), session.tokens().end()), past);
  past.insert(past.end(), other_.begin(), other_.begin() + 3);
  Session fresh = engine_.NewSession();
  EXPECT_EQ(GreedyTokens(session, OtherTokens(3), 5), GreedyTokens(fresh, past, 5));
}

// The limit is shared: a second session finds the room that the first one left.
TEST_P(SessionCacheTest, TheLimitCountsEverySession) {
  EngineOptions options = Options();
  options.kv_limit_bytes = engine_.PredictResidentBytes(128);
  Engine engine(options);
  Session first = engine.NewSession();
  GreedyTokens(first, Tokens(0, 30), 5);
  {
    Session second = engine.NewSession();
    Sampler greedy{SamplerOptions{}};
    EXPECT_THROW(second.Generate(Tokens(0, 100), greedy, {.max_new_tokens = 1}), Error);
    EXPECT_EQ(second.kv_len(), 0u);
    EXPECT_EQ(second.tokens().size(), 0u);
    EXPECT_EQ(GreedyTokens(second, Tokens(0, 30), 1).size(), 1u);
  }
  Session third = engine.NewSession();
  EXPECT_EQ(GreedyTokens(third, Tokens(0, 40), 1).size(), 1u)
      << "the second session's blocks came back";
}

TEST_P(SessionCacheTest, EvaluateChecksItsArguments) {
  Session session = engine_.NewSession();
  const auto nothing = [](std::size_t, std::span<const float>) {};
  EXPECT_THROW(session.Evaluate({}, 1, nothing), Error);
  EXPECT_THROW(session.Evaluate(Tokens(0, 5), 0, nothing), Error);
  EXPECT_THROW(session.Evaluate(Tokens(0, 5), 65, nothing), Error);
  const std::vector<TokenId> foreign = {1, 2, 100000};
  EXPECT_THROW(session.Evaluate(foreign, 64, nothing), Error);
  EXPECT_EQ(session.kv_len(), 0u);
  std::vector<std::size_t> seen;
  session.Evaluate(Tokens(0, 40), 17, [&](std::size_t index, std::span<const float> logits) {
    seen.push_back(index);
    EXPECT_EQ(logits.size(), engine_.summary().n_vocab);
  });
  ASSERT_EQ(seen.size(), 40u);
  for (std::size_t i = 0; i < 40; ++i) EXPECT_EQ(seen[i], i);
}

TEST_P(SessionCacheTest, EvaluateAfterAnAnswerRunsItsLastTokenFirst) {
  Session session = engine_.NewSession();
  std::vector<TokenId> past(tokens_.begin(), tokens_.begin() + 30);
  for (const TokenId id : GreedyTokens(session, past, 4)) past.push_back(id);
  ExpectLogits(LogitsOf(session, OtherTokens(9), 7), Fresh(past, OtherTokens(9)),
               "after an answer");
}

TEST_P(SessionCacheTest, KeysAreInspectedInEveryLayerAndInNoOther) {
  Session session = engine_.NewSession();
  EXPECT_EQ(session.InspectKeys(0).max_abs, 0);
  LogitsOf(session, Tokens(0, 150), 64);
  for (const std::size_t layer : {0, 1}) {
    const KeyChannels keys = session.InspectKeys(layer);
    EXPECT_GT(keys.max_abs, 0);
    EXPECT_GE(keys.max_abs, keys.median_channel_max);
    EXPECT_GE(keys.max_abs, keys.max_abs_mean);
    EXPECT_LT(keys.max_kv_head, engine_.summary().n_kv_head);
    EXPECT_LT(keys.max_dim, engine_.summary().head_dim);
  }
  // Rounded to 16 bits, one number may be the same in both layers.
  const KeyChannels first = session.InspectKeys(0);
  const KeyChannels second = session.InspectKeys(1);
  EXPECT_TRUE(first.max_abs != second.max_abs || first.max_abs_mean != second.max_abs_mean ||
              first.median_channel_max != second.median_channel_max);
  EXPECT_THROW(session.InspectKeys(2), Error);
}

INSTANTIATE_TEST_SUITE_P(Methods, SessionCacheTest,
                         testing::Values("fp16", "bf16", kPacking, kNoWindow),
                         [](const auto& info) { return "Method" + std::to_string(info.index); });

}  // namespace
}  // namespace kvant
