// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// The default model as users meet it. (Its log-probabilities: logprobs_test.cc, its token ids:
// tokenizer_smollm2_test.cc.)
#include <gtest/gtest.h>

#include "backend/cpu/isa.h"
#include "engine/engine.h"
#include "tests/support/model_path.h"

namespace kvant {
namespace {

// Sanitizer builds (debug) run a part: the whole is a matter of arithmetic, not of memory.
#ifdef NDEBUG
constexpr std::size_t kNewTokens = 32;
#else
constexpr std::size_t kNewTokens = 3;
#endif

#define REQUIRE_MODEL(path)                                                               \
  const std::optional<std::string> path = test::DefaultModelPath();                       \
  if (!path) GTEST_SKIP() << "the default model is not in the cache folder (kvant fetch)"

TEST(SmolLm2Text, IsTheSameForAnyNumberOfThreadsChunkAndKernel) {
  REQUIRE_MODEL(path);
  const auto generate = [&](const EngineOptions& options) {
    Engine engine(options);
    Session session = engine.NewSession();
    Sampler greedy{SamplerOptions{}};
    const std::vector<TokenId> prompt =
        engine.tokenizer().Encode("The three laws of thermodynamics are", false);
    return session.Generate(prompt, greedy, {.max_new_tokens = kNewTokens}).tokens;
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
