// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// Synthetic models through the engine: finite, spread logits on every architecture, one copy of the weights for
// several engines, states that know which model they belong to.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/memory.h"
#include "engine/engine.h"
#include "tests/support/tiny_engine.h"

namespace kvant {
namespace {

const std::string kTiny = "synthetic:custom,n_layer=2,n_embd=64,n_ff=96,n_q_head=4,n_kv_head=2,n_vocab=300";
const std::vector<TokenId> kPrompt = {72, 101, 108, 108, 111, 299, 256, 1};

EngineOptions Options(const std::string& fields = "", std::size_t n_threads = 1) {
  return {.model_path = kTiny + fields, .n_threads = n_threads, .ctx = 64};
}

std::vector<float> Logits(Engine& engine) {
  Session session = engine.NewSession();
  return test::LogitsOf(session, kPrompt, kPrompt.size());
}

TEST(SyntheticEngine, LogitsAreFiniteAndSpread) {
  for (const std::string arch : {"llama", "qwen2", "qwen3", "gemma3"}) {
    for (const std::string more : {"", ",tied=yes", ",rope=llama3"}) {
      SCOPED_TRACE(arch + more);
      Engine engine(Options(",arch=" + arch + more));
      const std::vector<float> logits = Logits(engine);
      ASSERT_EQ(logits.size(), kPrompt.size() * 300);
      double sum = 0, squares = 0;
      for (const float logit : logits) {
        ASSERT_TRUE(std::isfinite(logit));
        sum += static_cast<double>(logit);
        squares += static_cast<double>(logit) * static_cast<double>(logit);
      }
      const double n = static_cast<double>(logits.size());
      const double deviation = std::sqrt(squares / n - sum / n * sum / n);
      EXPECT_GT(deviation, 1.5);
      EXPECT_LT(deviation, 4.0);
    }
  }
}

TEST(SyntheticEngine, TheSeedDecidesAndThreadsDoNot) {
  Engine one(Options()), three(Options("", 3)), other(Options(",seed=43"));
  EXPECT_EQ(Logits(one), Logits(three));
  EXPECT_NE(Logits(one), Logits(other));
}

TEST(SyntheticEngine, SummaryNamesIt) {
  const ModelSummary summary = Engine(Options()).summary();
  EXPECT_EQ(summary.notice, "synthetic weights: speed and memory only");
  EXPECT_EQ(summary.name, kTiny);
  const test::TempModel file;
  EXPECT_EQ(Engine({.model_path = file.path()}).summary().notice, "");
}

TEST(SyntheticEngine, EnginesShareTheWeightsOfOne) {
  const std::uint64_t before = MemoryCountOf(MemoryTag::kWeights).current_bytes;
  auto first = std::make_unique<Engine>(Options());
  const std::uint64_t once = MemoryCountOf(MemoryTag::kWeights).current_bytes;
  EXPECT_EQ(once - before, first->summary().weight_bytes);
  EngineOptions exact = Options();
  exact.kv_spec = "fp16";
  Engine second(exact, first.get());
  EXPECT_EQ(MemoryCountOf(MemoryTag::kWeights).current_bytes, once);
  const std::vector<float> expected = Logits(*first);
  first.reset();
  EXPECT_EQ(Logits(second), expected) << "the window is exact in both methods";
}

TEST(SyntheticEngine, StatesBelongToShapeAndSeed) {
  const std::string path = "synthetic_state_" + std::to_string(getpid());
  Engine engine(Options()), again(Options("", 2)), other(Options(",seed=43"));
  Session session = engine.NewSession();
  const auto answer = test::GreedyTokens(session, kPrompt, 4);
  session.Save(path);
  Session loaded = again.NewSession();
  loaded.Load(path);
  EXPECT_EQ(loaded.tokens().size(), session.tokens().size());
  Session foreign = other.NewSession();
  EXPECT_THROW(foreign.Load(path), Error);
  std::filesystem::remove(path);
}

TEST(SyntheticEngine, AModelLargerThanMemoryIsRefused) {
  try {
    const Engine engine({.model_path = "synthetic:qwen3-8b,n_layer=1024,n_ff=1048576", .ctx = 64});
    ADD_FAILURE() << "it was loaded";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kResourceExhausted) << error.what();
    EXPECT_NE(std::string(error.what()).find("choose a smaller geometry"), std::string::npos);
  }
}

}  // namespace
}  // namespace kvant
