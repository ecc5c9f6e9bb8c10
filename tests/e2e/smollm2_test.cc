// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// The default model against log-probabilities that another implementation computed for the same file, with
// exact weights and float activations. (Its token ids: tokenizer_smollm2_test.cc.)
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "backend/cpu/isa.h"
#include "engine/engine.h"
#include "tests/support/model_path.h"

namespace kvant {
namespace {

// Sanitizer builds (debug) run a part: the whole is a matter of arithmetic, not of memory.
#ifdef NDEBUG
constexpr std::size_t kPositions = 1024;
#else
constexpr std::size_t kPositions = 96;
#endif

#define REQUIRE_MODEL(path)                                                               \
  const std::optional<std::string> path = test::DefaultModelPath();                       \
  if (!path) GTEST_SKIP() << "the default model is not in the cache folder (kvant fetch)"

class SmolLm2Logprobs : public testing::TestWithParam<std::size_t> {};

TEST_P(SmolLm2Logprobs, AgreeWithExactArithmeticOnTheFilesWeights) {
  REQUIRE_MODEL(path);
  const nlohmann::json reference =
      nlohmann::json::parse(std::ifstream(test::DataPath("logprobs_smollm2.json")));
  std::vector<TokenId> ids = reference["ids"];
  const std::vector<double> nll = reference["nll"];
  const std::vector<double> margin = reference["margin"];
  const std::vector<TokenId> argmax = reference["argmax"];
  ids.resize(kPositions);

  Engine engine({.model_path = *path, .kv_spec = "fp16"});
  Session session = engine.NewSession();
  double sum = 0, reference_sum = 0, difference = 0;
  std::size_t n = 0;
  session.Evaluate(ids, GetParam(), [&](std::size_t i, std::span<const float> logits) {
    if (i + 1 >= ids.size()) return;
    const auto best = std::max_element(logits.begin(), logits.end());
    double total = 0;
    for (const float logit : logits) total += std::exp(static_cast<double>(logit - *best));
    const double got = std::log(total) + static_cast<double>(*best) -
                       static_cast<double>(logits[static_cast<std::size_t>(ids[i + 1])]);
    sum += got;
    reference_sum += nll[i];
    difference += std::abs(got - nll[i]);
    ++n;
    if (margin[i] > 0.1) {
      EXPECT_EQ(best - logits.begin(), argmax[i]) << "position " << i << ", margin " << margin[i];
    }
  });
  ASSERT_EQ(n, kPositions - 1);
  const double count = static_cast<double>(n);
  EXPECT_NEAR(sum / count, reference_sum / count, 0.001);
  EXPECT_LT(difference / count, 0.01);
  EXPECT_EQ(session.kv().resident_bytes, engine.PredictResidentBytes(kPositions));
}

INSTANTIATE_TEST_SUITE_P(Chunks, SmolLm2Logprobs, testing::Values(1, 7, 64, 512));

TEST(SmolLm2Text, IsTheSameForAnyNumberOfThreadsChunkAndKernel) {
  REQUIRE_MODEL(path);
  const auto generate = [&](const EngineOptions& options) {
    Engine engine(options);
    Session session = engine.NewSession();
    Sampler greedy{SamplerOptions{}};
    const std::vector<TokenId> prompt =
        engine.tokenizer().Encode("The three laws of thermodynamics are", false);
    return session.Generate(prompt, greedy, {.max_new_tokens = kPositions / 32}).tokens;
  };
  const std::vector<TokenId> want = generate({.model_path = *path, .n_threads = 1});
  EXPECT_EQ(generate({.model_path = *path, .n_threads = 2}), want);
  EXPECT_EQ(generate({.model_path = *path, .exact = true, .prefill_chunk = 3}), want);
  for (const Isa isa : SupportedIsas()) {
    if (isa == Isa::kScalar) continue;  // minutes; the conformance suite compares its kernels
    EXPECT_EQ(generate({.model_path = *path, .kernel = std::string(IsaName(isa))}), want)
        << IsaName(isa);
  }
}

TEST(SmolLm2Chat, TheTemplateOfTheFileMakesThePromptThatTheModelKnows) {
  REQUIRE_MODEL(path);
  Engine engine({.model_path = *path, .ctx = 64});
  ASSERT_NE(engine.chat_template(), nullptr);
  const ChatMessage messages[] = {{"user", "hi"}};
  EXPECT_EQ(engine.chat_template()->Render(messages, true),
            "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face"
            "<|im_end|>\n<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n");
}

}  // namespace
}  // namespace kvant
