// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// The tokenizer and the chat template with the files of a real model. tokens_smollm2.jsonl holds
// texts and the ids that other implementations give them.

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "llm/chat_template.h"
#include "llm/gguf.h"
#include "llm/tokenizer.h"
#include "tests/support/model_path.h"
#include "tests/support/seed.h"
#include "tests/support/token_reference.h"

namespace kvant {
namespace {

class TokenizerSmolLm2 : public testing::Test {
 protected:
  void SetUp() override {
    const auto path = test::DefaultModelPath();
    if (!path) GTEST_SKIP() << "the default model is not here; fetch it with ./kvant fetch";
    file_ = std::make_unique<GgufFile>(GgufFile::Open(*path));
    const std::string_view pre = file_->GetStringOr("tokenizer.ggml.pre", "");
    if (pre != "smollm") GTEST_SKIP() << "KVANT_MODEL names another model than SmolLM2";
    tokenizer_ = std::make_unique<Tokenizer>(Tokenizer::FromGguf(*file_));
  }

  std::unique_ptr<GgufFile> file_;
  std::unique_ptr<Tokenizer> tokenizer_;
};

TEST_F(TokenizerSmolLm2, EqualsTheReferenceIds) {
  test::ExpectReferenceIds(*tokenizer_, "tokens_smollm2.jsonl");
}

TEST_F(TokenizerSmolLm2, BytesComeBackWhereTheVocabularyHasThem) {
  SplitMix64 rng = test::TestRng();
  SCOPED_TRACE(test::TestSeed());
  int complete = 0;
  for (int round = 0; round < 2000; ++round) {
    std::string text(rng.Below(30), '\0');
    for (char& c : text) c = static_cast<char>(rng.Below(256));
    std::string want;
    for (const char c : text) {
      const bool known = tokenizer_->CountInexpressible(std::string(1, c)) == 0;
      want += known ? std::string(1, c) : "\xef\xbf\xbd";
    }
    complete += want == text ? 1 : 0;
    ASSERT_EQ(tokenizer_->Decode(tokenizer_->Encode(text, false)), want);
  }
  EXPECT_GT(complete, 100);
}

TEST_F(TokenizerSmolLm2, ChatTemplateOfTheModel) {
  const auto text_of = [&](std::optional<TokenId> id) {
    return tokenizer_->TokenBytes(id.value());
  };
  const ChatTemplate chat =
      ChatTemplate::Parse(file_->GetString("tokenizer.chat_template"), text_of(tokenizer_->bos()),
                          text_of(tokenizer_->eos()));
  const std::vector<ChatMessage> messages = {
      {"system", "Be brief."}, {"user", "Hi"}, {"assistant", "Hello!"}, {"user", "Bye"}};
  const std::string text = chat.Render(messages, /*add_generation_prompt=*/true);
  EXPECT_EQ(text,
            "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n"
            "<|im_start|>assistant\nHello!<|im_end|>\n<|im_start|>user\nBye<|im_end|>\n"
            "<|im_start|>assistant\n");
  // Without a system message the template puts its own before.
  const std::string alone = chat.Render(std::span(messages).subspan(1, 1), false);
  EXPECT_EQ(alone.rfind("<|im_start|>system\n", 0), 0u);
  EXPECT_TRUE(alone.ends_with("<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n"));
  const std::vector<TokenId> ids = tokenizer_->Encode(text, /*parse_special=*/true);
  EXPECT_EQ(std::count(ids.begin(), ids.end(), *tokenizer_->bos()), 5);
  EXPECT_EQ(std::count(ids.begin(), ids.end(), *tokenizer_->eos()), 4);
  EXPECT_TRUE(tokenizer_->IsEndOfGeneration(*tokenizer_->eos()));
}

}  // namespace
}  // namespace kvant
