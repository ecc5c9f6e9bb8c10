// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// The tokenizers of further model families with their real files, as `kvant fetch` leaves them in
// the cache folder. tokens_<family>.jsonl holds texts and the ids that another implementation gives
// them.

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <span>
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

struct Family {
  const char* model;  // name of the file in the cache folder, without ".gguf"
  const char* tokens;
  const char* end_of_turn;
  bool add_bos;
  bool has_template;  // of chats; gemma-3-270m is no instruct model and has none
};

class TokenizerOfFamily : public testing::TestWithParam<Family> {
 protected:
  void SetUp() override {
    const auto path = test::CatalogModelPath(GetParam().model);
    if (!path) {
      GTEST_SKIP() << GetParam().model << " is not here; fetch it with ./kvant fetch "
                   << GetParam().model;
    }
    file_ = std::make_unique<GgufFile>(GgufFile::Open(*path));
    tokenizer_ = std::make_unique<Tokenizer>(Tokenizer::FromGguf(*file_));
  }

  std::unique_ptr<GgufFile> file_;
  std::unique_ptr<Tokenizer> tokenizer_;
};

TEST_P(TokenizerOfFamily, EqualsTheReferenceIds) {
  test::ExpectReferenceIds(*tokenizer_, GetParam().tokens);
}

// These vocabularies have a token for every byte.
TEST_P(TokenizerOfFamily, BytesComeBack) {
  SplitMix64 rng = test::TestRng();
  SCOPED_TRACE(test::TestSeed());
  for (int round = 0; round < 2000; ++round) {
    std::string text(rng.Below(30), '\0');
    for (char& c : text) c = static_cast<char>(rng.Below(round % 2 == 0 ? 256 : 128));
    ASSERT_EQ(tokenizer_->CountInexpressible(text), 0u);
    ASSERT_EQ(tokenizer_->Decode(tokenizer_->Encode(text, round % 3 == 0)), text);
  }
}

TEST_P(TokenizerOfFamily, EndsAndBos) {
  EXPECT_EQ(tokenizer_->add_bos(), GetParam().add_bos);
  ASSERT_TRUE(tokenizer_->eos().has_value());
  EXPECT_TRUE(tokenizer_->IsEndOfGeneration(*tokenizer_->eos()));
  const std::vector<TokenId> end = tokenizer_->Encode(GetParam().end_of_turn, true);
  ASSERT_EQ(end.size(), 1u);
  EXPECT_TRUE(tokenizer_->IsEndOfGeneration(end[0]));
  for (const TokenId id : tokenizer_->Encode("<s>Hello</s>\n", true)) {
    EXPECT_FALSE(tokenizer_->IsEndOfGeneration(id)) << id;
  }
}

TEST_P(TokenizerOfFamily, ChatTemplateOfTheModel) {
  ASSERT_EQ(file_->Find("tokenizer.chat_template") != nullptr, GetParam().has_template);
  if (!GetParam().has_template) return;
  const auto text_of = [&](std::optional<TokenId> id) {
    return tokenizer_->TokenBytes(id.value());
  };
  const ChatTemplate chat =
      ChatTemplate::Parse(file_->GetString("tokenizer.chat_template"), text_of(tokenizer_->bos()),
                          text_of(tokenizer_->eos()));
  const std::vector<ChatMessage> messages = {
      {"system", "Be brief."}, {"user", "Hi\n"}, {"assistant", ""}, {"user", "Bye"}};
  const std::string text = chat.Render(messages, /*add_generation_prompt=*/true);
  EXPECT_EQ(text,
            "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi\n<|im_end|>\n"
            "<|im_start|>assistant\n<|im_end|>\n<|im_start|>user\nBye<|im_end|>\n"
            "<|im_start|>assistant\n");
  // Without a system message the template puts its own before.
  const std::string alone = chat.Render(std::span(messages).subspan(3, 1), false);
  EXPECT_EQ(alone.rfind("<|im_start|>system\n", 0), 0u);
  EXPECT_TRUE(alone.ends_with("<|im_end|>\n<|im_start|>user\nBye<|im_end|>\n"));
  const std::vector<TokenId> ids = tokenizer_->Encode(text, /*parse_special=*/true);
  EXPECT_EQ(std::count(ids.begin(), ids.end(), *tokenizer_->eos()), 4);
  EXPECT_EQ(tokenizer_->Decode(ids), text);
}

INSTANTIATE_TEST_SUITE_P(Models, TokenizerOfFamily,
                         testing::Values(Family{"qwen2.5-coder-0.5b", "tokens_qwen25.jsonl",
                                                "<|im_end|>", /*add_bos=*/false,
                                                /*has_template=*/true},
                                         Family{"qwen2.5-coder-1.5b", "tokens_qwen25.jsonl",
                                                "<|im_end|>", /*add_bos=*/false,
                                                /*has_template=*/true},
                                         Family{"gemma-3-270m", "tokens_gemma3.jsonl",
                                                "<end_of_turn>", /*add_bos=*/true,
                                                /*has_template=*/false}),
                         [](const testing::TestParamInfo<Family>& info) {
                           std::string name = info.param.model;
                           for (char& c : name) {
                             if (c == '.' || c == '-') c = '_';
                           }
                           return name;
                         });

}  // namespace
}  // namespace kvant
