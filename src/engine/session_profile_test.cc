// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// Session::MeasureKeys and engines with a profile: measured, written, used, and refused for another model.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <numeric>

#include "engine/engine.h"
#include "kv/transforms/key_profile.h"
#include "kvant/error.h"
#include "tests/support/tiny_engine.h"

namespace kvant {
namespace {

using test::LogitsOf;
using test::TempModel;

std::vector<TokenId> Tokens(std::size_t n) {
  std::vector<TokenId> tokens(n);
  std::iota(tokens.begin(), tokens.end(), 20);
  for (TokenId& id : tokens) id = 20 + id * 7 % 90;
  return tokens;
}

class SessionProfileTest : public testing::Test {
 protected:
  SessionProfileTest() : path_("tiny_" + std::to_string(getpid()) + ".profile") {}
  ~SessionProfileTest() override { std::remove(path_.c_str()); }

  EngineOptions Options(const std::string& spec) const {
    return {.model_path = model_.path(), .kv_spec = spec, .n_threads = 1};
  }
  KeyProfile Measure(std::size_t n, std::size_t chunk) const {
    Engine engine(Options(KeyProfileMethod(n)));
    Session session = engine.NewSession();
    session.Evaluate(Tokens(n), chunk, {});
    return session.MeasureKeys();
  }
  static void ExpectRefused(const std::function<void()>& act, const std::string& says) {
    try {
      act();
      FAIL() << says;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument) << error.what();
      EXPECT_NE(std::string(error.what()).find(says), std::string::npos) << error.what();
    }
  }

  TempModel model_;
  std::string path_;
};

TEST_F(SessionProfileTest, MeasuresTheSameForEveryChunking) {
  const KeyProfile profile = Measure(200, 200);
  EXPECT_EQ(profile.n_tokens, 196u);  // without the sinks
  ASSERT_EQ(profile.heads.size(), profile.n_layer * profile.n_kv_head);
  for (const KeyStatistics& head : profile.heads) {
    for (std::size_t c = 0; c < profile.head_dim; ++c) {
      EXPECT_GT(head.spread[c], 0);
      EXPECT_GT(head.max_abs[c], 0);
      EXPECT_GT(head.query[c], 0);
    }
  }
  EXPECT_EQ(FormatKeyProfile(Measure(200, 33)), FormatKeyProfile(profile));
}

TEST_F(SessionProfileTest, AnEngineUsesTheFileAndPredictsItsBytes) {
  SaveKeyProfile(Measure(200, 64), path_);
  Engine engine(Options("turboquant_rvq,profile=" + path_));
  Session session = engine.NewSession();
  const std::vector<float> logits = LogitsOf(session, Tokens(500), 64);
  EXPECT_EQ(session.kv().resident_bytes, engine.PredictResidentBytes(500));
  EXPECT_EQ(session.kv().spec, "turboquant_rvq,profile=" + path_);
  EXPECT_GT(session.kv().packed_tokens, 0u);
  Engine learning(Options("turboquant_rvq"));
  Session other = learning.NewSession();
  const std::vector<float> learned = LogitsOf(other, Tokens(500), 64);
  EXPECT_NE(logits, learned);
  EXPECT_LT(session.kv().resident_bytes, other.kv().resident_bytes);  // no query energy
}

TEST_F(SessionProfileTest, AnotherModelIsRefused) {
  SaveKeyProfile(Measure(100, 64), path_);
  test::TinyModelOptions options;
  options.seed = 2;
  const TempModel other(options);
  EngineOptions engine = Options("turboquant_rvq,profile=" + path_);
  engine.model_path = other.path();
  ExpectRefused([&] { Engine refused(engine); }, "fingerprint");
}

TEST_F(SessionProfileTest, WhatCannotBeMeasuredIsRefused) {
  for (const char* spec : {"turboquant_rvq", "fp16", "turboquant_rvq,window=256,layers=1:k=fp16",
                           "turboquant_rvq,window=256,smooth=sigma"}) {
    Engine engine(Options(spec));
    Session session = engine.NewSession();
    session.Evaluate(Tokens(200), 64, {});
    ExpectRefused([&] { session.MeasureKeys(); }, "turboquant_rvq,window=256");
  }
  ExpectRefused([&] { Measure(4, 4); }, "too few");
}

}  // namespace
}  // namespace kvant
